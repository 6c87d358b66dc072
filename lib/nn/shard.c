/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/shard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t shard_count(const struct train *t)
{
	return (size_t)comm_count(t->o.comm);
}

int shard_make(struct train *t, struct err *e)
{
	size_t n = shard_count(t), whole = 64 * n, nvec = t->m.nvec, k = 0;
	int layers = t->m.cfg.layers;

	t->bucket = calloc((size_t)layers + 3, sizeof *t->bucket);
	if (!t->bucket)
		return err_set(e, CA_SOFTWARE, "no memory");
	if (n == 1)
		t->bucket[k++].n = t->m.nmat;
	for (int i = 0; n > 1 && i < layers + 2; i++)
		t->bucket[k++] = (struct bucket){
			t->m.cut[i], t->m.cut[i + 1] - t->m.cut[i] };
	if (n > 1)
		nvec = (nvec + whole - 1) / whole * whole;
	t->bucket[k++] = (struct bucket){ t->m.nmat, nvec };
	t->nbuckets = k;
	t->total = t->m.nmat + nvec;
	return 0;
}

/* What is this rank's own of a bucket; its moments lie behind those of the
 * buckets before it. */
struct part {
	size_t at, n, moment;
};

static struct part own(const struct train *t, size_t bucket)
{
	const struct bucket *b = &t->bucket[bucket];
	size_t n = b->n / shard_count(t);

	return (struct part){ b->at + (size_t)comm_mine(t->o.comm) * n, n,
			      b->at / shard_count(t) };
}

/* Of the rounded weights. */
static void *rounded(const struct train *t, size_t at)
{
	return (char *)t->weights + at * gpu_type_size(t->o.type);
}

/* A step of size 0 writes them, and leaves moments as they are. */
void shard_round(struct train *t)
{
	size_t n = t->m.nmat / shard_count(t);

	for (size_t i = 0; t->weights && i < shard_count(t); i++)
		gpu_do_adamw(t->g, &(struct gpu_adamw){
			.w = (float *)t->master + i * n, .m = t->adam_m,
			.v = t->adam_v, .out = rounded(t, i * n),
			.g = (float *)t->grads + i * n, .n = n,
			.otype = t->o.type, .eps = 1, .c1 = 1, .c2 = 1,
			.beta1 = 1, .beta2 = 1 });
}

void shard_reduce(struct train *t, size_t bucket)
{
	if (t->last)
		gpu_reduce_scatter(t->g, (float *)t->grads +
				   t->bucket[bucket].at, own(t, bucket).n);
}

void train_last(struct train *t)
{
	t->last = shard_count(t) > 1;
}

/* In the order in which train_backward does it. */
int train_reduce(struct train *t, struct err *e)
{
	size_t layers = (size_t)t->m.cfg.layers;

	train_last(t);
	shard_reduce(t, layers + 1);
	for (size_t l = layers; l > 0; l--)
		shard_reduce(t, l);
	shard_reduce(t, 0);
	shard_reduce(t, layers + 2);
	t->last = 0;
	return gpu_sync(t->g, e);
}

/* Of this rank's own parts. */
static int own_sum(struct train *t, double *sum, struct err *e)
{
	double *each = calloc(t->nbuckets, sizeof *each);
	int rc;

	if (!each)
		return err_set(e, CA_SOFTWARE, "no memory");
	gpu_collected(t->g);
	for (size_t b = 0; b < t->nbuckets; b++) {
		const struct part p = own(t, b);

		if (p.n)
			gpu_do_sumsq(t->g, &(struct gpu_sumsq){
				.out = (double *)t->sum + b,
				.x = (float *)t->grads + p.at, .n = p.n });
	}
	rc = gpu_download(t->g, each, t->sum, t->nbuckets * sizeof *each, e);
	*sum = 0;
	for (size_t b = 0; b < t->nbuckets; b++)
		*sum += each[b];
	free(each);
	return rc;
}

int train_grad_norm(struct train *t, double *norm, struct err *e)
{
	double sum, all[COMM_MAX];

	if (own_sum(t, &sum, e) ||
	    comm_gather(t->o.comm, &sum, sizeof sum, all, e))
		return -1;
	sum = 0;
	for (int i = 0; i < comm_count(t->o.comm); i++)
		sum += all[i];
	*norm = sqrt(sum);
	return 0;
}

static void step_part(struct train *t, const struct train_adam *a,
		      struct part p, void *out, double decay)
{
	double step = (double)t->steps;

	gpu_do_adamw(t->g, &(struct gpu_adamw){
		.w = (float *)t->master + p.at,
		.m = (float *)t->adam_m + p.moment,
		.v = (float *)t->adam_v + p.moment,
		.g = (float *)t->grads + p.at,
		.out = out, .otype = t->o.type, .n = p.n, .lr = (float)a->lr,
		.beta1 = (float)a->beta1, .beta2 = (float)a->beta2,
		.eps = (float)a->eps, .decay = (float)decay,
		.c1 = (float)(1 - pow(a->beta1, step)),
		.c2 = (float)(1 - pow(a->beta2, step)),
		.gscale = (float)a->scale });
}

/* What forward reads of a bucket, each rank's part from where it was made. */
static void share_weights(struct train *t, size_t bucket)
{
	size_t at = t->bucket[bucket].at, n = own(t, bucket).n;

	if (t->weights && at < t->m.nmat)
		gpu_all_gather(t->g, rounded(t, at),
			       n * gpu_type_size(t->o.type));
	else
		gpu_all_gather(t->g, (float *)t->master + at, n * 4);
}

int train_step(struct train *t, const struct train_adam *a, struct err *e)
{
	t->steps++;
	gpu_collected(t->g);
	for (size_t b = 0; b < t->nbuckets; b++) {
		const struct part p = own(t, b);
		int matrices = b + 1 < t->nbuckets;

		if (!p.n)
			continue;
		step_part(t, a, p, matrices && t->weights ?
			  rounded(t, p.at) : NULL, matrices ? a->decay : 0);
		share_weights(t, b);
	}
	return train_clear(t, e);
}

int train_clear(struct train *t, struct err *e)
{
	gpu_collected(t->g);
	gpu_zero(t->g, t->grads, t->total * 4);
	return gpu_sync(t->g, e);
}

/* Where a weight begins among all. */
static size_t place(const struct train *t, const struct nn_param *p)
{
	return p->at + (p->vector ? t->m.nmat : 0);
}

/* Weights are whole on every rank, but for the masters of rounded ones. */
static int is_whole(const struct train *t, enum train_what what,
		    const struct nn_param *p)
{
	return shard_count(t) == 1 ||
	       (what == TRAIN_WEIGHT && (p->vector || !t->weights));
}

/* What is this rank's own of the n elements at `at`, all in one bucket. */
static struct part overlap(const struct train *t, size_t at, size_t n)
{
	size_t b = 0, from, to;
	struct part p;

	while (at >= t->bucket[b].at + t->bucket[b].n)
		b++;
	p = own(t, b);
	from = at > p.at ? at : p.at;
	to = at + n < p.at + p.n ? at + n : p.at + p.n;
	if (from >= to)
		return (struct part){ 0, 0, 0 };
	return (struct part){ from, to - from, p.moment + from - p.at };
}

static void *what_at(struct train *t, enum train_what what, struct part p)
{
	void *const base[] = { t->master, t->grads, t->adam_m, t->adam_v };

	return (float *)base[what] + (what == TRAIN_M || what == TRAIN_V ?
				      p.moment : p.at);
}

int train_read(struct train *t, enum train_what what,
	       const struct nn_param *p, float *out, struct err *e)
{
	size_t at = place(t, p);
	const struct part all = { at, p->n, at }, o = overlap(t, at, p->n);

	if (is_whole(t, what, p))
		return gpu_download(t->g, out, what_at(t, what, all),
				    p->n * 4, e);
	gpu_collected(t->g);
	memset(out, 0, p->n * sizeof *out);
	if (o.n && gpu_download(t->g, out + (o.at - at), what_at(t, what, o),
				o.n * 4, e))
		return -1;
	return comm_sum(t->o.comm, out, p->n, e);
}

int train_write(struct train *t, enum train_what what,
		const struct nn_param *p, const float *in, struct err *e)
{
	size_t at = place(t, p);
	struct part o = { at, p->n, at };

	if (what == TRAIN_M || what == TRAIN_V)
		o = overlap(t, at, p->n);
	if (o.n)
		gpu_upload(t->g, what_at(t, what, o), in + (o.at - at),
			   o.n * 4);
	if (what == TRAIN_WEIGHT)
		shard_round(t);
	return gpu_sync(t->g, e);
}
