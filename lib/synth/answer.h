/* SPDX-License-Identifier: Apache-2.0
 *
 * The task file in what a model answers.
 */
#ifndef CA_SYNTH_ANSWER_H
#define CA_SYNTH_ANSWER_H

#include "base/str.h"

#define ANSWER_CODE_MAX (24 << 10)

/*
 * Adds to `code` the one block of code of an answer that defines a model, or
 * the answer itself where it is nothing but code; what was thought before
 * ("</think>") does not count.  NULL, or why there is none.
 */
const char *answer_code(const char *text, struct str *code);

#endif
