/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int learner_open(struct learner *l, const char *name,
		 const struct train_opts *o, struct str *table,
		 struct err *e)
{
	size_t n = (size_t)o->tokens;

	memset(l, 0, sizeof *l);
	l->name = name;
	l->comm = o->comm;
	l->tokens = n;
	l->seqs = (size_t)o->seqs;
	l->ids = calloc(3 * n, sizeof *l->ids);
	l->first = calloc(l->seqs + 1, sizeof *l->first);
	l->out = calloc(3 * n, sizeof *l->out);
	if (!l->ids || !l->first || !l->out)
		return err_set(e, CA_SOFTWARE, "no memory");
	l->row = l->ids + n;
	l->target = l->row + n;
	l->entropy = l->out + n;
	l->dout = l->entropy + n;
	l->t = train_open(o, table, e);
	return l->t ? 0 : err_wrap(e, "%s", name);
}

void learner_close(struct learner *l)
{
	train_close(l->t);
	free(l->ids);
	free(l->first);
	free(l->out);
	memset(l, 0, sizeof *l);
}

/* Micro-batch of sequences list[0..n). */
static struct train_batch gather(struct learner *l, const struct rows *r,
				 const size_t *list, size_t n)
{
	struct train_batch b = { l->ids, l->first, l->row, l->target,
				 (int)n, 0, 1 };
	int32_t at = 0;

	for (size_t i = 0; i < n; i++) {
		const struct rows_seq *q = &r->seq[list[i]];

		l->first[i] = at;
		memcpy(l->ids + at, q->id, q->n * sizeof *q->id);
		for (size_t k = 0; k < q->nout; k++) {
			l->row[b.nout] = at + r->row[q->first + k];
			l->target[b.nout++] = r->target[q->first + k];
		}
		at += (int32_t)q->n;
	}
	l->first[n] = at;
	return b;
}

struct pass {
	const struct rows *r;
	float inv_temp;
	learner_loss *loss;
	void *ctx;
	float *out, *entropy;
};

/* Another's clock may hold the device for long. */
static void wait_turn(struct learner *l)
{
	if (!gpu_turn_enter(l->turn))
		return;
	comm_does(l->comm, COMM_WAITS);
	gpu_turn_wait(l->turn);
	comm_does(l->comm, COMM_COMPUTES);
}

static int micro(struct learner *l, const struct pass *p,
		 const size_t *list, size_t n, int last, struct err *e)
{
	struct train_batch b = gather(l, p->r, list, n);
	size_t at = 0;

	if (l->turn && (comm_count(l->comm) == 1 ||
			!gpu_is_cpu(train_gpu(l->t))))
		wait_turn(l);
	b.inv_temp = p->inv_temp;
	if (train_forward(l->t, &b, l->out,
			  p->entropy ? l->entropy : NULL, e))
		return -1;
	for (size_t i = 0; i < n; i++) {
		const struct rows_seq *q = &p->r->seq[list[i]];

		memcpy(p->out + q->first, l->out + at,
		       q->nout * sizeof *l->out);
		if (p->entropy)
			memcpy(p->entropy + q->first, l->entropy + at,
			       q->nout * sizeof *l->entropy);
		if (p->loss)
			p->loss(p->ctx, q->first, q->nout, l->out + at,
				l->dout + at);
		at += q->nout;
	}
	if (last)
		train_last(l->t);
	return p->loss ? train_backward(l->t, l->dout, NULL, e) : 0;
}

/* This rank's micro-batches; with the last of them its gradients are whole. */
static int own_share(struct learner *l, const struct pass *p,
		     const struct pack *k, struct err *e)
{
	size_t left = 0;
	int rc = 0;

	comm_does(l->comm, COMM_COMPUTES);
	for (size_t b = 0; b < k->n; b++)
		left += k->rank[b] == comm_mine(l->comm);
	if (!left && p->loss)
		return train_reduce(l->t, e);
	for (size_t b = 0; b < k->n && !rc; b++)
		if (k->rank[b] == comm_mine(l->comm))
			rc = micro(l, p, k->seq + k->first[b],
				   k->first[b + 1] - k->first[b],
				   !--left && p->loss, e);
	return rc;
}

/* What one sequence's outputs are worth to all others. */
static int check_outputs(struct learner *l, const struct rows *r,
			 const float *out, int drop, struct err *e)
{
	const char *what = train_model(l->t)->cfg.head == NN_HEAD_VALUE ?
			   "value" : "log-probability";

	for (size_t i = 0; i < r->nseq; i++) {
		const struct rows_seq *q = &r->seq[i];

		for (size_t k = q->first; k < q->first + q->nout; k++) {
			if (isfinite(out[k]))
				continue;
			l->bad = q->traj;
			if (drop && train_clear(l->t, e))
				return -1;
			err_set(e, CA_DATAERR, "%s: the %s of token %d is not "
				"finite", l->name, what, r->row[k] + 1);
			return 1;
		}
	}
	return 0;
}

/*
 * Ranks on the CPU are one user of it: rank 0 holds the lease for all, and
 * gives it up for a moment where none of them computes.  Otherwise whoever
 * waited for the lease would wait for a rank that waits for one that waits
 * behind him.
 */
static int take_turn(struct learner *l, struct err *e)
{
	int none = 0;

	if (!l->turn || comm_count(l->comm) == 1 ||
	    !gpu_is_cpu(train_gpu(l->t)))
		return 0;
	if (comm_any(l->comm, &none, e))
		return -1;
	if (!comm_mine(l->comm))
		wait_turn(l);
	return comm_any(l->comm, &none, e);
}

int learner_pass(struct learner *l, const struct rows *r, float inv_temp,
		 learner_loss *loss, void *ctx, float *out, float *entropy,
		 struct err *e)
{
	const struct pass p = { r, inv_temp, loss, ctx, out, entropy };
	struct pack k;
	int rc = 0;

	if (take_turn(l, e))
		return -1;
	if (pack_make(&k, r, l->tokens, l->seqs, comm_count(l->comm), e))
		return err_wrap(e, "%s", l->name);
	/* What others compute is added. */
	memset(out, 0, r->n * sizeof *out);
	if (entropy)
		memset(entropy, 0, r->n * sizeof *entropy);
	rc = own_share(l, &p, &k, e);
	pack_release(&k);
	if (!rc)
		rc = comm_sum(l->comm, out, r->n, e);
	if (!rc && entropy)
		rc = comm_sum(l->comm, entropy, r->n, e);
	return rc ? err_wrap(e, "%s", l->name) :
	       check_outputs(l, r, out, loss != NULL, e);
}

/* Every weight's gradient, through fn. */
static int each_gradient(struct learner *l,
			 int (*fn)(struct learner *l,
				   const struct nn_param *p, float *x,
				   struct err *e), struct err *e)
{
	const struct nn_model *m = train_model(l->t);
	int rc = 0;

	for (size_t i = 0; i < m->nparams && !rc; i++) {
		float *x = malloc(m->param[i].n * sizeof *x);

		if (!x)
			return err_set(e, CA_SOFTWARE, "no memory");
		rc = train_read(l->t, TRAIN_GRADIENT, &m->param[i], x, e) ?
		     -1 : fn(l, &m->param[i], x, e);
		free(x);
	}
	return rc;
}

/* 1 when this weight's gradient is not finite. */
static int find_bad(struct learner *l, const struct nn_param *p, float *x,
		    struct err *e)
{
	for (size_t i = 0; i < p->n; i++)
		if (!isfinite(x[i])) {
			err_set(e, CA_DATAERR, "%s: the gradient of '%s' is "
				"not finite", l->name, p->name[0]);
			return 1;
		}
	return 0;
}

int learner_step(struct learner *l, const struct train_adam *a, double norm,
		 double clip, struct err *e)
{
	struct train_adam scaled = *a;
	int rc;

	if (!isfinite(norm)) {
		rc = each_gradient(l, find_bad, e);
		if (!rc)
			err_set(e, CA_DATAERR, "%s: the norm of the gradient "
				"is not finite", l->name);
		return rc < 0 || train_clear(l->t, e) ? -1 : 1;
	}
	scaled.scale = clip > 0 && norm > clip ? clip / norm : 1;
	return train_step(l->t, &scaled, e);
}

double learner_flops(const struct learner *l, double len)
{
	const struct nn_config *c = &train_model(l->t)->cfg;

	return 6 * (double)nn_config_params(c) +
	       6.0 * c->layers * c->hidden * len;
}
