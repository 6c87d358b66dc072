/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers in OpenAI's shapes: whole ones, and the events of streams.
 */
#ifndef CA_SERVE_REPLY_H
#define CA_SERVE_REPLY_H

#include "serve/query.h"

/* Appends the whole answer. */
int reply_whole(const struct query *q, struct str *out);

/* Appends the event that opens a choice of a chat, the one with what is new
 * up to byte `upto` of its text (nothing new: no event), and the one that
 * ends it. */
void reply_open(const struct query *q, const struct choice *h,
		struct str *out);
void reply_more(const struct query *q, struct choice *h, size_t upto,
		struct str *out);
/* Appends what calls have begun up to byte `upto`, and of their arguments what
 * is new; for what is no content. */
void reply_calls(const struct query *q, struct choice *h, size_t upto,
		 struct str *out);
int reply_finish(const struct query *q, struct choice *h, struct str *out);

/* Appends the last events, or the one with a fault. */
void reply_end(const struct query *q, struct str *out);
void reply_fault(const struct fault *f, struct str *out);

#endif
