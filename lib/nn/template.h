/* SPDX-License-Identifier: Apache-2.0
 *
 * From messages to the text that a model was trained on, by the chat template
 * of its folder: in this process as far as lib/jinja understands it, else in
 * Jinja's sandbox (torch/chat.py), a process that ends with the thread whose
 * request started it and is started again when it is needed.
 */
#ifndef CA_NN_TEMPLATE_H
#define CA_NN_TEMPLATE_H

#include "base/err.h"
#include "base/str.h"
#include "rec/json.h"

struct tmpl;

/*
 * Reads dir/chat_template.jinja, or the template in tokenizer_config.json.
 * Without one *out is NULL and tmpl_render says so.  CA_UNAVAILABLE when it
 * needs Python and there is none.
 */
int tmpl_open(const char *dir, struct tmpl **out, struct err *e);
void tmpl_close(struct tmpl *c);

/* Appends the text of the first n of an array of messages (and of tools, which
 * may be NULL), with `open` ready for the assistant's answer.  CA_DATAERR with
 * the template's own words when it refuses them.  Thread safe. */
int tmpl_render(struct tmpl *c, const struct json *messages, size_t n,
		const struct json *tools, int open, struct str *out,
		struct err *e);

#endif
