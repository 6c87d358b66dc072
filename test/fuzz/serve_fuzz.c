/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes to the server from outside: bodies of requests, and calls in a
 * model's text.  A request is understood or refused with a status and words;
 * found calls are of a listed tool, and what a stream may tell early is a
 * beginning of the content.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/tools.h"
#include "serve/want.h"

static const char listed[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";

static void read_request(const char *text, size_t len, enum want_kind kind)
{
	const struct want_defaults d = { .temperature = 1, .top_p = 1 };
	struct fault f = { 0 };
	struct str s = STR_INIT;
	struct want w;

	if (want_parse(&w, kind, text, len, &d, &f)) {
		fault_write(&f, &s);
		if (f.status != 400 || !*f.text || s.failed ||
		    json_check(s.buf, s.len, JSON_MAX_LINE, NULL, NULL))
			abort();
	} else {
		if (f.status || w.n < 1 || !(w.top_p > 0))
			abort();
		for (int i = 0; i < w.nprompts; i++)
			if (!w.ids.n && !want_prompt(&w, i))
				abort();
	}
	str_release(&s);
	want_release(&w);
}

static void find_calls(const struct json *tools, const char *text, size_t len)
{
	struct tools_calls c;

	if (tools_find(tools, text, len, &c))
		abort();
	if (c.content > len || c.n > TOOLS_CALLS)
		abort();
	for (size_t i = 0; i < c.n; i++)
		if (strcmp(c.call[i].name, "f") || !c.call[i].arguments)
			abort();
	/* Whatever of it has come, nothing was told that is no content. */
	for (size_t n = 0; n <= len; n += 1 + len / 64)
		if (c.n && tools_content(text, n) > c.content)
			abort();
	tools_release(&c);
}

/* In two parts it is told as at once. */
static void follow_calls(const struct json *tools, const char *text,
			 size_t len)
{
	struct tools_scan s = { .state = TOOLS_CONTENT }, t = s;

	for (size_t n = len / 2; n <= len; n += len - n ? len - n : 1)
		while (tools_follow(&s, tools, text, n) &&
		       s.state == TOOLS_TAIL)
			;
	while (tools_follow(&t, tools, text, len) && t.state == TOOLS_TAIL)
		;
	if (s.state != t.state || s.calls != t.calls ||
	    s.calls > TOOLS_CALLS || (s.calls && (s.from != t.from ||
	    s.to != t.to || s.to > len || s.from >= s.to)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json *tools = json_build(listed, sizeof listed - 1, NULL);
	char *text = malloc(size + 1);

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	read_request(text, size, WANT_CHAT);
	read_request(text, size, WANT_TEXT);
	find_calls(tools, text, size);
	follow_calls(tools, text, size);
	free(text);
	json_free(tools);
	return 0;
}
