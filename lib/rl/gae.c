/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/gae.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {
	[GAE_SKIP] = "skip", [GAE_ALL] = "all", [GAE_TURN] = "turn",
};

const char *gae_name(enum gae_mode m)
{
	return names[m];
}

int gae_parse(const char *name)
{
	for (int i = 0; i < 3; i++)
		if (name && !strcmp(names[i], name))
			return i;
	return -1;
}

/* From the last step to the first: V and A of the step behind. */
struct tail {
	double value, advantage;
};

static void step(const struct gae_opts *o, struct tail *t, double reward,
		 double value, double *advantage, double *returns)
{
	double delta = reward + o->gamma * t->value - value;

	t->advantage = delta + o->gamma * o->lambda * t->advantage;
	t->value = value;
	*advantage = t->advantage;
	*returns = t->advantage + value;
}

static void by_token(const struct gae_opts *o, size_t n,
		     const uint8_t *agent, const double *reward,
		     const double *value, double *advantage, double *returns)
{
	struct tail t = { 0, 0 };

	for (size_t i = n; i-- > 0; ) {
		advantage[i] = returns[i] = 0;
		if (agent[i] || o->mode == GAE_ALL)
			step(o, &t, reward[i], value[i], &advantage[i],
			     &returns[i]);
	}
}

static void by_turn(const struct gae_opts *o, size_t n,
		    const uint8_t *agent, const double *reward,
		    const double *value, double *advantage, double *returns)
{
	struct tail t = { 0, 0 };
	size_t end = n, at;

	while (end > 0) {
		double sum = 0, a, r;

		if (!agent[end - 1]) {
			end--;
			advantage[end] = returns[end] = 0;
			continue;
		}
		for (at = end; at > 0 && agent[at - 1]; at--)
			sum += reward[at - 1];
		step(o, &t, sum, value[at], &a, &r);
		while (end > at) {
			end--;
			advantage[end] = a;
			returns[end] = r;
		}
	}
}

void gae(const struct gae_opts *o, size_t n, const uint8_t *agent,
	 const double *reward, const double *value, double *advantage,
	 double *returns)
{
	if (o->mode == GAE_TURN)
		by_turn(o, n, agent, reward, value, advantage, returns);
	else
		by_token(o, n, agent, reward, value, advantage, returns);
}

void whiten(size_t n, double *advantage)
{
	double mean = 0, var = 0;

	for (size_t i = 0; i < n; i++)
		mean += advantage[i];
	mean = n ? mean / (double)n : 0;
	for (size_t i = 0; i < n; i++) {
		advantage[i] -= mean;
		var += advantage[i] * advantage[i];
	}
	if (n > 1)
		var /= (double)(n - 1);
	for (size_t i = 0; i < n; i++)
		advantage[i] /= sqrt(var + 1e-8);
}
