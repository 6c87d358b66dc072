/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls out of a model's text: whatever it writes, a call is either checked
 * arguments or a refusal in words, and mending gives JSON or nothing.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/call.h"

static void check(const struct calls *c)
{
	size_t i;

	for (i = 0; i < c->n; i++) {
		const struct call *k = &c->c[i];

		if (!k->id || !*k->id || !k->name ||
		    (k->args == NULL) == (k->error == NULL))
			abort();
		if (k->args && json_type(k->args) != JSON_OBJECT)
			abort();
	}
}

/* As the content of a message, and as the arguments of a listed call. */
static void as_message(const char *text, size_t len)
{
	struct str s = STR_INIT;
	struct err e = ERR_INIT;
	struct calls c;
	struct json *j;
	struct jw w;

	jw_init(&w, &s);
	jw_obj(&w);
	jw_key(&w, "content");
	jw_strn(&w, text, len);
	jw_end_obj(&w);
	j = json_parse(s.buf, s.len, JSON_MAX_LINE, NULL, &e);
	if (j && calls_find(j, 1, &c, &e) == 0)
		check(&c);
	if (j)
		calls_release(&c);
	json_free(j);
	str_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str out = STR_INIT;
	char *text = malloc(size + 1);

	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (call_mend(text, size, &out) >= 0 &&
	    json_check(out.buf, out.len, JSON_MAX_LINE, NULL, NULL))
		abort();
	as_message(text, size);
	str_release(&out);
	free(text);
	return 0;
}
