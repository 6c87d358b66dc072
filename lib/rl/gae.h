/* SPDX-License-Identifier: Apache-2.0
 *
 * Advantages: generalised advantage estimation over one trajectory (arXiv
 * 1506.02438), and whitening over a batch.  All in double precision.
 */
#ifndef CA_RL_GAE_H
#define CA_RL_GAE_H

#include <stddef.h>
#include <stdint.h>

/*
 * What a step is, where a trajectory has tokens of the environment between
 * the agent's.  SKIP: a token of the agent; V and A carry over what lies
 * between, so that they do not depend on how long a tool's answer is.  ALL:
 * every token, as the formula is printed.  TURN: a run of the agent's tokens,
 * all of which get the advantage of their turn.
 */
enum gae_mode { GAE_SKIP, GAE_ALL, GAE_TURN };

struct gae_opts {
	enum gae_mode mode;
	double gamma, lambda;
};

/* The mode's name, and the other way round (-1: none). */
const char *gae_name(enum gae_mode m);
int gae_parse(const char *name);

/*
 * From rewards, values and which of n tokens are the agent's (agent[t] not
 * 0): advantages and returns (advantage + value, the target of a critic),
 * V after the last token being 0.  Under SKIP and TURN rewards and values of
 * other tokens are not read, and their results are 0; under ALL only agent[]
 * is not read.  In a turn, value is that of its first token, so every token of
 * it gets the same return.
 */
void gae(const struct gae_opts *o, size_t n, const uint8_t *agent,
	 const double *reward, const double *value, double *advantage,
	 double *returns);

/* Subtracts the mean of n advantages and divides by the root of their
 * variance (n - 1 in its denominator) plus 1e-8.  One alone becomes 0. */
void whiten(size_t n, double *advantage);

#endif
