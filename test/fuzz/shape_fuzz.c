/* SPDX-License-Identifier: Apache-2.0
 *
 * Schemas of requests, and texts that follow them: a line with the schema,
 * then bytes to draw.  A schema is understood or refused with 400 and words.
 * Whatever was drawn, something may come or the text may end; an ended one is
 * JSON.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/shape.h"

#define STEPS 1024

/* A byte that may come, the first from c on; -1: none. */
static int next_byte(const struct shape *s, const struct shape_at *at, int c)
{
	struct shape_at next;

	for (int i = 0; i < 256; i++) {
		memcpy(&next, at, sizeof next);
		if (shape_step(s, &next, (unsigned char)(c + i)))
			return (c + i) & 255;
	}
	return -1;
}

/* Inside of a text with room any plain byte may come; and a class is as long
 * as its states. */
static void check_state(const struct shape *s, const struct shape_at *at,
			unsigned char c)
{
	struct shape_at class, next;

	memset(&class, 0, sizeof class);
	shape_class(s, at, 65, &class);
	if (shape_size(&class) != shape_size(at))
		abort();
	memcpy(&next, at, sizeof next);
	if (shape_room(s, at) && c >= 0x20 && c < 0x7f && c != '"' &&
	    c != '\\' && !shape_step(s, &next, c))
		abort();
}

static void check_end(const char *text, size_t len)
{
	struct err e = ERR_INIT;

	if (json_check(text, len, JSON_MAX_LINE, NULL, &e) &&
	    !strstr(e.msg, "duplicate"))
		abort();
}

static void draw(const struct shape *s, int call, const uint8_t *data,
		 size_t size)
{
	static char text[STEPS];
	struct shape_at at;
	size_t n = 0;
	int c;

	shape_begin(s, &at);
	while (n < STEPS) {
		check_state(s, &at, n < size ? data[n] : '}');
		/* What closes something first, once the bytes are used up. */
		c = next_byte(s, &at, n < size ? data[n] :
			      shape_room(s, &at) ? '"' : ']');
		if (c < 0)
			break;
		if (!shape_step(s, &at, (unsigned char)c))
			abort();
		text[n++] = (char)c;
	}
	if (n < STEPS && !shape_whole(s, &at))
		abort();
	if (n < STEPS && !call)
		check_end(text, n);
}

/* As a schema, and as that of a strict tool. */
static void follow(const struct json *schema, const uint8_t *data, size_t size)
{
	struct fault f = { 0 };
	struct shape *s = shape_json(schema, "x", &f);

	if (!s && (f.status != 400 || !*f.text))
		abort();
	if (s)
		draw(s, 0, data, size);
	shape_free(s);
	f.status = 0;
	s = json_type(schema) == JSON_ARRAY ?
	    shape_call(schema, NULL, size & 1, &f) : NULL;
	if (s)
		draw(s, 1, data, size);
	shape_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
	size_t len = line ? (size_t)(line - data) : size;
	struct json *j = json_parse((const char *)data, len, JSON_MAX_LINE,
				    NULL, NULL);

	if (size)
		shape_is_object((const char *)data, size);
	if (j)
		follow(j, data + len, size - len);
	json_free(j);
	return 0;
}
