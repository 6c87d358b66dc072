/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to a model, several on their way at once; answers are taken in the
 * order in which the requests were made.
 */
#ifndef CA_SYNTH_INFLIGHT_H
#define CA_SYNTH_INFLIGHT_H

#include "net/chat.h"

struct inflight;

/* At most n on their way, each with a connection of its own; `answer_s` is
 * the deadline of one with all its repetitions.  net_start comes first. */
struct inflight *inflight_open(const struct chat_opts *o, double answer_s,
			       size_t n, struct err *e);
/* Not while something is on its way: that ends with the process. */
void inflight_close(struct inflight *f);

/* How many are on their way. */
size_t inflight_count(const struct inflight *f);

/* Sends `body`, which is taken over.  There must be room.  The tag comes back
 * with the answer. */
int inflight_send(struct inflight *f, struct str *body, int tag,
		  struct err *e);

/* Waits for the oldest.  What it gives lives until the next inflight_send.
 * -1 as chat_ask. */
int inflight_take(struct inflight *f, const struct chat_answer **a, int *tag,
		  struct err *e);

#endif
