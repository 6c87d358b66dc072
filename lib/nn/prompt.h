/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model reads: texts and chat messages as token ids, by the tokenizer
 * and the chat template of its folder.
 */
#ifndef CA_NN_PROMPT_H
#define CA_NN_PROMPT_H

#include "base/err.h"
#include "nn/tok.h"
#include "rec/json.h"

struct prompt;

struct prompt *prompt_open(const char *dir, struct err *e);
void prompt_close(struct prompt *p);	/* NULL is fine */

/* For decoding and looking up; encoding is for the functions below. */
const struct tok *prompt_tok(const struct prompt *p);

/* Appends the ids of a text, with what the tokenizer puts around texts.
 * Special tokens in it are tokens: the text is the caller's own. */
int prompt_text(struct prompt *p, const char *text, size_t len,
		struct tok_ids *out, struct err *e);

/*
 * Appends the ids of an array of messages as OpenAI has them (and of tools,
 * or NULL), ready for the assistant's answer.  Content in parts becomes one
 * text, arguments of tool calls that are JSON in a text become JSON.  Special
 * tokens in what the messages say are ordinary text.  CA_DATAERR for what is
 * no message, and with the template's own words when it refuses them.
 */
int prompt_chat(struct prompt *p, const struct json *messages,
		const struct json *tools, struct tok_ids *out,
		struct err *e);

/* The same of the first n messages only; without `open` the ids end behind the
 * last of them. */
int prompt_chat_first(struct prompt *p, const struct json *messages, size_t n,
		      const struct json *tools, int open,
		      struct tok_ids *out, struct err *e);

/*
 * The same of all messages where `out` already holds the first n, the last of
 * which was drawn token by token: appends the rest.  1; or 0 with `out` as it
 * was when the template does not render what was said before as it did then, or
 * the answer did not end by itself.
 */
int prompt_chat_on(struct prompt *p, const struct json *messages, size_t n,
		   const struct json *tools, struct tok_ids *out,
		   struct err *e);

#endif
