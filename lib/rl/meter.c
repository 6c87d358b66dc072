/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "rl/meter.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rec/rec.h"

int meter_open(struct meter *m, const char *name, const struct common *c,
	       struct err *e)
{
	memset(m, 0, sizeof *m);
	m->name = name;
	m->shown = !c->quiet && isatty(STDERR_FILENO);
	m->prov = !c->no_prov;
	m->began = m->step_began = now_ns();
	return output_open(&m->out, c->out, e);
}

int meter_close(struct meter *m, int commit, struct err *e)
{
	if (m->shown)
		fputs("\r\033[K", stderr);
	str_release(&m->line);
	return output_close(&m->out, commit, e);
}

void meter_begin(struct meter *m, int64_t step)
{
	str_reset(&m->line);
	jw_init(&m->w, &m->line);
	jw_obj(&m->w);
	jw_kstr(&m->w, "kind", "metric");
	jw_kint(&m->w, "v", REC_V);
	jw_kint(&m->w, "step", step);
}

int meter_end_plain(struct meter *m, struct err *e)
{
	jw_end_obj(&m->w);
	str_addc(&m->line, '\n');
	if (m->line.failed)
		return err_set(e, CA_SOFTWARE, "no memory");
	if (!output_write(&m->out, m->line.buf, m->line.len, e))
		return 0;
	m->pipe_gone = errno == EPIPE;
	return -1;
}

int meter_end(struct meter *m, struct err *e)
{
	double s = (double)(now_ns() - m->step_began) * 1e-9;

	if (m->prov) {
		jw_knum(&m->w, "perf/time_per_step", s);
		jw_knum(&m->w, "perf/tokens_per_s", m->tokens / s);
		jw_knum(&m->w, "perf/mfu", m->peak > 0 ?
			m->flops / s / m->peak : (double)NAN);
	}
	return meter_end_plain(m, e);
}

void meter_start(struct meter *m)
{
	m->step_began = now_ns();
	m->flops = m->tokens = 0;
}

/* A pass forward and backward is three forward ones. */
void meter_work(struct meter *m, const struct learner *l,
		const struct rows *r, double passes)
{
	double len = r->nseq ? (double)r->tokens / (double)r->nseq : 0;

	m->flops += passes / 3 * learner_flops(l, len) * (double)r->tokens;
	if (passes >= 3 && (double)r->tokens > m->tokens)
		m->tokens = (double)r->tokens;
	m->peak = gpu_peak(train_gpu(l->t)) * comm_count(l->comm);
}

static void spread(struct jw *w, const char *name, double sum, double max,
		   double min, size_t n)
{
	char key[96];

	snprintf(key, sizeof key, "%s/mean", name);
	jw_knum(w, key, sum / (double)n);
	snprintf(key, sizeof key, "%s/max", name);
	jw_knum(w, key, max);
	snprintf(key, sizeof key, "%s/min", name);
	jw_knum(w, key, min);
}

void meter_spread(struct jw *w, const char *name, const double *x, size_t n)
{
	double sum = 0, max = -INFINITY, min = INFINITY;

	for (size_t i = 0; i < n; i++) {
		sum += x[i];
		max = x[i] > max ? x[i] : max;
		min = x[i] < min ? x[i] : min;
	}
	if (n)
		spread(w, name, sum, max, min, n);
}

void meter_spread_f(struct jw *w, const char *name, const float *x, size_t n)
{
	double *d = malloc((n + 1) * sizeof *d);

	for (size_t i = 0; d && i < n; i++)
		d[i] = (double)x[i];
	if (d)
		meter_spread(w, name, d, n);
	free(d);
}

double explained(const double *truth, const float *guess,
		 const uint8_t *use, size_t n)
{
	double sum[2] = { 0, 0 }, var[2] = { 0, 0 }, count = 0;

	for (size_t i = 0; i < n; i++)
		if (!use || use[i]) {
			sum[0] += truth[i];
			sum[1] += truth[i] - (double)guess[i];
			count++;
		}
	for (size_t i = 0; i < n; i++)
		if (!use || use[i]) {
			double a = truth[i] - sum[0] / count;
			double b = truth[i] - (double)guess[i] -
				   sum[1] / count;

			var[0] += a * a;
			var[1] += b * b;
		}
	return var[0] > 0 ? 1 - var[1] / var[0] : (double)NAN;
}

/* Of each trajectory: x[0] reward, x[1] tokens of the agent, x[2] turns. */
static void facts(const struct batch *b, double *x[3], size_t ctx,
		  double *clipped)
{
	*clipped = 0;
	for (size_t i = 0; i < b->n; i++) {
		x[0][i] = b->t[i].reward;
		x[1][i] = (double)b->t[i].agent;
		x[2][i] = (double)b->t[i].turns;
		*clipped += b->t[i].cut || traj_longest(&b->t[i]) >= ctx;
	}
}

void meter_batch(struct jw *w, const struct batch *b, size_t ctx)
{
	static const char *const words[] = { "-1", "1", "2", "3" };
	double *x = calloc(3 * b->n + 1, sizeof *x), clipped;
	double *part[3] = { x, x + b->n, x + 2 * b->n };
	char key[32];

	if (!x)
		return;
	facts(b, part, ctx, &clipped);
	meter_spread(w, "critic/score", part[0], b->n);
	meter_spread(w, "critic/rewards", part[0], b->n);
	meter_spread(w, "response_length", part[1], b->n);
	jw_knum(w, "response_length/clip_ratio",
		b->n ? clipped / (double)b->n : 0);
	meter_spread(w, "num_turns", part[2], b->n);
	for (int i = 0; i < 4; i++) {
		double value = strtod(words[i], NULL);
		size_t count = 0;

		for (size_t k = 0; k < b->n; k++)
			count += b->t[k].reward == value;
		snprintf(key, sizeof key, "reward/%s", words[i]);
		jw_kint(w, key, (int64_t)count);
	}
	free(x);
}

void meter_critic(struct jw *w, const struct batch *b)
{
	double *outcome = calloc(b->val.n + 1, sizeof *outcome);

	if (!outcome)
		return;
	for (size_t i = 0; i < b->n; i++)
		for (size_t k = b->val.first[i]; k < b->val.first[i + 1]; k++)
			outcome[k] = b->t[i].reward;
	jw_knum(w, "critic/vf_explained_var",
		explained(b->returns, b->old_value, NULL, b->val.n));
	jw_knum(w, "critic/mc_explained_var",
		explained(outcome, b->old_value, b->val.agent, b->val.n));
	meter_spread(w, "critic/returns", b->returns, b->val.n);
	meter_spread_f(w, "critic/values", b->old_value, b->val.n);
	free(outcome);
}

void meter_draw(struct meter *m, int64_t step)
{
	double s = (double)(now_ns() - m->began) * 1e-9;
	double now = (double)(now_ns() - m->step_began) * 1e-9;
	double done = (double)(step - m->first);
	char eta[64] = "", mfu[32] = "";

	if (!m->shown)
		return;
	if (m->last > step && done > 0)
		snprintf(eta, sizeof eta, ", %.0f s left",
			 s / done * (double)(m->last - step));
	if (m->peak > 0)
		snprintf(mfu, sizeof mfu, ", MFU %.1f %%",
			 100 * m->flops / now / m->peak);
	fprintf(stderr, "\r\033[K%s: step %lld%s%.0lld, %.0f tokens/s%s%s%s",
		m->name, (long long)step, m->last > 0 ? "/" : "",
		(long long)(m->last > 0 ? m->last : 0), m->tokens / now, mfu,
		m->note, eta);
	fflush(stderr);
}
