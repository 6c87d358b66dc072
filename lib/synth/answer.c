/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of code between fences.
 */
#include "synth/answer.h"

#include <string.h>

static int is_fence(const char *line)
{
	return starts_with(line + strspn(line, " "), "```");
}

/* Adds a line to the block; whether it holds a model now. */
static int add_line(struct str *block, const char *p, size_t len)
{
	static const char name[] = "class Model";

	str_add(block, p, len);
	str_addc(block, '\n');
	return len >= sizeof(name) - 1 && !memcmp(p, name, sizeof(name) - 1);
}

/* The one block of code that holds a model; else why there is none. */
static const char *find_block(const char *text, struct str *code)
{
	int inside = 0, model = 0, found = 0, blocks = 0;
	struct str block = STR_INIT;

	while (*text) {
		size_t n = strcspn(text, "\n");

		if (is_fence(text)) {
			if (inside && model && !found++)
				str_add(code, block.buf, block.len);
			blocks += inside;
			inside = !inside;
			model = 0;
			str_reset(&block);
		} else if (inside) {
			model |= add_line(&block, text, n);
		}
		text += n + (text[n] == '\n');
	}
	str_release(&block);
	return inside ? "half a file: its block does not end" :
	       !blocks ? "prose: no block of code" :
	       !found ? "no model in any block of code" :
	       found > 1 ? "several blocks of code with a model" : NULL;
}

const char *answer_code(const char *text, struct str *code)
{
	const char *think, *why = NULL;

	while ((think = strstr(text, "</think>")))
		text = think + 8;
	if (starts_with(text, "import ") && !strstr(text, "```"))
		str_adds(code, text);
	else
		why = find_block(text, code);
	if (!why && (code->failed || code->len > ANSWER_CODE_MAX))
		why = "longer than a task has to be";
	return why;
}
