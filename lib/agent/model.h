/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of a rollout: an endpoint, or a coprocess that reads a request
 * and writes an answer, a line each.
 */
#ifndef CA_AGENT_MODEL_H
#define CA_AGENT_MODEL_H

#include "agent/agent.h"
#include "net/chat.h"

struct model;

/* Starts the command where endpoint is NULL, with the caller's rights and in
 * its directory: so before a rollout drops either. */
struct model *model_open(const struct agent_opts *o, const char *endpoint,
			 struct err *e);
/* What is served while we wait for answers. */
void model_idle(struct model *m, const struct net_idle *idle);
void model_close(struct model *m);

/* As chat_ask.  An answer of the coprocess is the body of a completion, or
 * {"error": {"message", "code"}} with an HTTP status as code. */
int model_ask(struct model *m, const char *body, size_t len, int64_t deadline,
	      struct chat_answer *a, struct err *e);

#endif
