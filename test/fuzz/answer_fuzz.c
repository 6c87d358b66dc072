/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model answers: a task file that is part of it, or a reason.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "synth/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str code = STR_INIT;
	char *text = malloc(size + 1);
	const char *why;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	why = answer_code(text, &code);
	if (!why && (!code.len || code.len > ANSWER_CODE_MAX ||
		     code.len > size + 1))
		abort();
	str_release(&code);
	free(text);
	return 0;
}
