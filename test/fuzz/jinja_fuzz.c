/* SPDX-License-Identifier: Apache-2.0
 *
 * A chat template over a conversation: the input up to its first LF is
 * {"messages", "tools"}, the rest the template.  Whatever it is, there is a
 * text or a reason.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(const struct jinja *j, const struct json *request)
{
	struct jinja_vars v = {
		.messages = json_get(request, "messages"), .n = SIZE_MAX,
		.tools = json_get(request, "tools"), .open = 1,
		.bos = "<s>", .eos = "</s>" };
	struct str out = STR_INIT;
	struct err e = ERR_INIT;
	size_t line;

	/* A loop in a loop in a loop takes its time. */
	out.cap = (size_t)1 << 20;
	if (jinja_render(j, &v, &out, &e) == JINJA_TEXT) {
		if (utf8_bad(out.buf ? out.buf : "", out.len, &line))
			abort();
	} else if (!*e.msg || out.len) {
		abort();
	}
	str_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *all = (const char *)data;
	const char *lf = size ? memchr(all, '\n', size) : NULL;
	struct err e = ERR_INIT;
	struct json *request;
	struct jinja *j;
	size_t line;

	if (!lf || utf8_bad(lf + 1, size - (size_t)(lf + 1 - all), &line))
		return 0;
	request = json_parse(all, (size_t)(lf - all), JSON_MAX_LINE, NULL,
			     NULL);
	j = jinja_parse(lf + 1, size - (size_t)(lf + 1 - all), &e);
	if (!j && !*e.msg)
		abort();
	if (j && request)
		render(j, request);
	jinja_free(j);
	json_free(request);
	return 0;
}
