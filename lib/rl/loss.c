/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/loss.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {
	[AGG_TOKEN_MEAN] = "token-mean",
	[AGG_SEQ_SUM] = "seq-mean-token-sum",
	[AGG_SEQ_MEAN] = "seq-mean-token-mean",
	[AGG_TOKEN_SUM] = "token-sum",
};

const char *agg_name(enum loss_agg a)
{
	return names[a];
}

int agg_parse(const char *name)
{
	for (int i = 0; i < 4; i++)
		if (name && !strcmp(names[i], name))
			return i;
	return -1;
}

double agg_weight(enum loss_agg a, size_t own, size_t tokens, size_t seqs)
{
	if (!own)
		return 0;
	switch (a) {
	case AGG_TOKEN_MEAN:
		return 1 / (double)tokens;
	case AGG_SEQ_SUM:
		return 1 / (double)seqs;
	case AGG_SEQ_MEAN:
		return 1 / ((double)seqs * (double)own);
	case AGG_TOKEN_SUM:
		return 1;
	}
	return 0;
}

static double limit(double x, double low, double high)
{
	return x < low ? low : x > high ? high : x;
}

double log_ratio(double now, double old)
{
	return limit(now - old, -LOG_RATIO_MAX, LOG_RATIO_MAX);
}

struct term ppo_term(const struct ppo_opts *o, double now, double old,
		     double advantage)
{
	double l = log_ratio(now, old), rho = exp(l);
	double plain = -advantage * rho;
	double held = -advantage * limit(rho, 1 - o->clip_low,
					 1 + o->clip_high);
	struct term t = { plain, plain, 0 };

	if (fabs(now - old) > LOG_RATIO_MAX)
		t.grad = 0;
	if (held > plain)
		t = (struct term){ held, 0, 1 };
	if (advantage < 0 && t.loss > -advantage * o->dual)
		t = (struct term){ -advantage * o->dual, 0, t.clipped };
	return t;
}

struct term value_term(double v, double old, double target, double clip)
{
	double held = limit(v, old - clip, old + clip);
	double a = v - target, b = held - target;
	struct term t = { a * a / 2, a, 0 };

	if (b * b > a * a)
		t = (struct term){ b * b / 2, 0, 1 };
	return t;
}
