/* SPDX-License-Identifier: Apache-2.0
 *
 * What backward needs is kept as it was computed: each layer's input, what
 * attention reads and makes, and the MLP's projections.  Norms and SwiGLU are
 * computed again, which costs less than reading them would; so are rotations
 * where heads have norms, whose gradients want the projections.
 */
#include "nn/shard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/safetensors.h"

/* Rows whose logits are made at once; each such part adds to the gradient of
 * the head, which on a GPU takes longer than the products of few rows. */
#define HEAD_ROWS_CPU  256
#define HEAD_ROWS_CUDA 2048

static void plan_weights(struct train *t)
{
	struct gpu_plan *p = &t->plan;
	size_t n = t->total;

	gpu_plan_add(p, "master weights", &t->master, n, 4);
	gpu_plan_add(p, "gradients", &t->grads, n, 4);
	gpu_plan_add(p, "Adam's moments", &t->adam_m, n / shard_count(t), 4);
	gpu_plan_add(p, "Adam's moments", &t->adam_v, n / shard_count(t), 4);
	if (t->o.type != GPU_F32)
		gpu_plan_add(p, "weights", &t->weights, t->m.nmat,
			     gpu_type_size(t->o.type));
	nn_model_plan_rope(&t->m, p);
}

static void plan_saved(struct train *t)
{
	static const char name[] = "kept activations";
	const struct nn_config *c = &t->m.cfg;
	size_t e = gpu_type_size(gpu_act(t->g)), n = (size_t)t->o.tokens;
	size_t h = (size_t)c->hidden, q = (size_t)(c->heads * c->head_dim);
	size_t kv = (size_t)(c->kv_heads * c->head_dim);
	struct gpu_plan *p = &t->plan;

	for (int l = 0; l <= c->layers; l++)
		gpu_plan_add(p, name, &t->layer[l].in, n * h, e);
	for (int l = 0; l < (t->o.recompute ? 1 : c->layers); l++) {
		struct saved *s = &t->layer[l];

		if (c->qk_norm) {
			gpu_plan_add(p, name, &s->qkv, n * (q + 2 * kv), e);
		} else {
			gpu_plan_add(p, name, &s->q, n * q, e);
			gpu_plan_add(p, name, &s->k, n * kv, e);
			gpu_plan_add(p, name, &s->v, n * kv, e);
		}
		gpu_plan_add(p, name, &s->att, n * q, e);
		gpu_plan_add(p, name, &s->lse, n * (size_t)c->heads, 4);
		gpu_plan_add(p, name, &s->mid, n * h, e);
		gpu_plan_add(p, name, &s->gu, n * 2 * (size_t)c->inter, e);
	}
}

static void plan_scratch(struct train *t)
{
	static const char name[] = "activations of a layer";
	const struct nn_config *c = &t->m.cfg;
	size_t e = gpu_type_size(gpu_act(t->g)), n = (size_t)t->o.tokens;
	size_t h = (size_t)c->hidden, q = (size_t)(c->heads * c->head_dim);
	size_t kv = (size_t)(c->kv_heads * c->head_dim);
	size_t f = (size_t)c->inter;
	const struct { void **where; size_t n; } row[] = {
		{ &t->norm, n * h }, { &t->act, n * f }, { &t->dx, n * h },
		{ &t->dn, n * h }, { &t->dqkv, n * (q + 2 * kv) },
		{ &t->dq, n * q }, { &t->dk, n * kv }, { &t->dv, n * kv },
		{ &t->datt, n * q }, { &t->dgu, n * 2 * f },
		{ &t->dact, n * f }, { &t->out_x, n * h },
		{ &t->out_n, n * h }, { &t->dout_x, n * h },
		{ &t->dout_n, n * h },
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		gpu_plan_add(&t->plan, name, row[i].where, row[i].n, e);
	if (c->qk_norm) {
		gpu_plan_add(&t->plan, name, &t->q, n * q, e);
		gpu_plan_add(&t->plan, name, &t->k, n * kv, e);
		gpu_plan_add(&t->plan, name, &t->v, n * kv, e);
	} else {
		gpu_plan_add(&t->plan, name, &t->qkv, n * (q + 2 * kv), e);
	}
	gpu_plan_add(&t->plan, name, &t->delta, n * (size_t)c->heads, 4);
}

static size_t ints_of(const struct train *t)
{
	return 6 * (size_t)t->o.tokens + 2 * (size_t)t->o.seqs + 1;
}

/* On a GPU, where it has not been seen to be right yet. */
#ifndef NN_KEEPS
#define NN_KEEPS 0
#endif

/* Whether what the backward pass could make again is kept: where that takes a
 * small part of what would be left. */
static int keeps(const struct train *t, size_t more)
{
	size_t avail = gpu_avail(t->g);

	if (t->o.recompute)
		return 0;
	if (gpu_is_cpu(t->g))
		return more <= (size_t)256 << 20;
	return NN_KEEPS && avail > t->plan.total &&
	       more <= (avail - t->plan.total) / 8;
}

static void plan_norms(struct train *t)
{
	size_t e = gpu_type_size(gpu_act(t->g));
	size_t layers = (size_t)t->m.cfg.layers;
	size_t n = (size_t)t->o.tokens * (size_t)t->m.cfg.hidden;

	if (!keeps(t, 2 * layers * n * e))
		return;
	for (size_t l = 0; l < layers; l++) {
		gpu_plan_add(&t->plan, "kept activations", &t->layer[l].norm,
			     n, e);
		gpu_plan_add(&t->plan, "kept activations",
			     &t->layer[l].norm2, n, e);
	}
}

static void plan_head(struct train *t)
{
	size_t n = (size_t)t->o.tokens, v = (size_t)nn_head_width(&t->m);
	size_t h = (size_t)t->m.cfg.hidden, width, matrix, all;
	struct gpu_plan *p = &t->plan;
	size_t part = gpu_is_cpu(t->g) ? HEAD_ROWS_CPU : HEAD_ROWS_CUDA;
	void **const row[] = { &t->lp, &t->ent, &t->lse, &t->dlp, &t->dent };

	part = part < n ? part : n;
	t->head_rows = (int)part;
	t->all_logits = keeps(t, (n - part) * v * sizeof(float));
	gpu_plan_add(p, "logits", &t->logits, (t->all_logits ? n : part) * v,
		     4);
	if (gpu_act(t->g) != GPU_F32)
		gpu_plan_add(p, "logits", &t->dlogits, part * v,
			     gpu_type_size(gpu_act(t->g)));
	for (size_t i = 0; i < 5; i++)
		gpu_plan_add(p, "step", row[i], n, 4);
	gpu_plan_add(p, "step", &t->sum, t->nbuckets, sizeof(double));
	gpu_plan_add(p, "step", &t->ints, ints_of(t), 4);
	nn_model_extent(&t->m, &width, &matrix);
	all = gpu_work_size(t->g, n, width, matrix);
	t->work_bytes = gpu_work_size(t->g, part, v + h, matrix);
	if (all > t->work_bytes)
		t->work_bytes = all;
	gpu_plan_add(p, "work space", &t->work, t->work_bytes, 1);
}

/* With recompute all layers share what the first one keeps. */
static void share_saved(struct train *t)
{
	for (int l = 1; t->o.recompute && l < t->m.cfg.layers; l++) {
		void *in = t->layer[l].in;

		t->layer[l] = t->layer[0];
		t->layer[l].in = in;
	}
}

/* A view of the model whose matrices are the masters. */
static struct nn_model master_view(const struct train *t)
{
	struct nn_model m = t->m;

	m.w.type = GPU_F32;
	m.w.mat = t->master;
	return m;
}

static int load(struct train *t, struct err *e)
{
	struct nn_model view = master_view(t);
	struct st *s = st_open(t->o.dir, e);
	int rc = -1;

	/* The head's two come last. */
	if (t->fresh_head)
		view.nparams -= 2;
	if (s)
		rc = nn_model_load(&view, s, e);
	if (s && rc)
		err_wrap(e, "'%s'", t->o.dir);
	st_close(s);
	if (!rc)
		shard_round(t);
	return rc;
}

static int bind(struct train *t, struct err *e)
{
	t->m.w.mat = t->weights ? t->weights : t->master;
	t->m.w.vec = (float *)t->master + t->m.nmat;
	t->grad.type = GPU_F32;
	t->grad.mat = t->grads;
	t->grad.vec = (float *)t->grads + t->m.nmat;
	share_saved(t);
	gpu_set_work(t->g, t->work, t->work_bytes);
	t->host = calloc(ints_of(t), sizeof *t->host);
	t->count = calloc((size_t)t->m.cfg.vocab + 1, sizeof *t->count);
	if (!t->host || !t->count)
		return err_set(e, CA_SOFTWARE, "no memory");
	return nn_model_bind(&t->m, e) ||
	       nn_weights_bind(&t->grad, &t->m, e) ? -1 : 0;
}

static int prepare(struct train *t, struct str *table, struct err *e)
{
	struct nn_config cfg;

	if (nn_config_load(&cfg, t->o.dir, e))
		return -1;
	t->fresh_head = t->o.critic && cfg.head == NN_HEAD_LM;
	if (t->fresh_head)
		cfg.head = NN_HEAD_VALUE;
	t->g = gpu_open(t->o.device, t->o.type, t->o.flags, e);
	if (!t->g)
		return -1;
	if (t->o.positions > cfg.max_pos)
		return err_set(e, CA_CONFIG, "sequences of %d tokens are "
			       "longer than the model's %d", t->o.positions,
			       cfg.max_pos);
	t->layer = calloc((size_t)cfg.layers + 1, sizeof *t->layer);
	if (!t->layer)
		return err_set(e, CA_SOFTWARE, "no memory");
	if (gpu_join(t->g, t->o.comm, e) ||
	    nn_model_init(&t->m, t->g, &cfg, t->o.type, t->o.positions,
			  comm_count(t->o.comm), e) || shard_make(t, e))
		return -1;
	plan_weights(t);
	plan_saved(t);
	plan_scratch(t);
	plan_head(t);
	plan_norms(t);
	if (table)
		gpu_plan_print(&t->plan, table);
	return gpu_plan_commit(t->g, &t->plan, e) || bind(t, e) ||
	       load(t, e) ? -1 : 0;
}

struct train *train_open(const struct train_opts *o, struct str *table,
			 struct err *e)
{
	struct train *t = calloc(1, sizeof *t);

	if (!t) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	t->o = *o;
	if (prepare(t, table, e)) {
		train_close(t);
		return NULL;
	}
	return t;
}

void train_close(struct train *t)
{
	if (!t)
		return;
	nn_weights_release(&t->grad);
	nn_model_release(&t->m);
	if (t->g)
		gpu_plan_release(t->g, &t->plan);
	gpu_close(t->g);
	free(t->layer);
	free(t->bucket);
	free(t->host);
	free(t->count);
	free(t);
}

const struct nn_model *train_model(const struct train *t)
{
	return &t->m;
}

struct gpu *train_gpu(const struct train *t)
{
	return t->g;
}

int64_t train_steps(const struct train *t)
{
	return t->steps;
}

void train_set_steps(struct train *t, int64_t steps)
{
	t->steps = steps;
}

static int check_batch(const struct train *t, const struct train_batch *b,
		       struct err *e)
{
	int n = b->nseq > 0 && b->nseq <= t->o.seqs ? b->first[b->nseq] : 0;

	if (n < 1 || n > t->o.tokens || b->first[0])
		return err_set(e, CA_DATAERR, "a batch of %d tokens in %d "
			       "sequences is not within %d in %d", n,
			       b->nseq, t->o.tokens, t->o.seqs);
	for (int s = 0; s < b->nseq; s++) {
		int len = b->first[s + 1] - b->first[s];

		if (len < 1 || len > t->o.positions)
			return err_set(e, CA_DATAERR, "a sequence of %d "
				       "tokens is not within %d", len,
				       t->o.positions);
	}
	for (int i = 0; i < n; i++)
		if (b->ids[i] < 0 || b->ids[i] >= t->m.cfg.vocab)
			return err_set(e, CA_DATAERR, "token %d is not in "
				       "the vocabulary", b->ids[i]);
	if (b->nout < 0 || b->nout > n)
		return err_set(e, CA_DATAERR, "%d outputs of %d rows",
			       b->nout, n);
	for (int i = 0; i < b->nout; i++)
		if (b->row[i] < 0 || b->row[i] >= n || (b->target &&
		    (b->target[i] < 0 || b->target[i] >= t->m.cfg.vocab)))
			return err_set(e, CA_DATAERR, "output %d is out of "
				       "range", i);
	return 0;
}

/* Counting sort of rows by id, stable; count has one more than ids. */
static void sort_rows(const int32_t *ids, int32_t n, int32_t *order,
		      int32_t *count, int vocab)
{
	memset(count, 0, ((size_t)vocab + 1) * sizeof *count);
	for (int32_t i = 0; i < n; i++)
		count[ids[i] + 1]++;
	for (int v = 0; v < vocab; v++)
		count[v + 1] += count[v];
	for (int32_t i = 0; i < n; i++)
		order[count[ids[i]]++] = i;
}

/* Integers in one upload: ids, pos, slot, order, first, len, row, target. */
static void upload(struct train *t, const struct train_batch *b)
{
	size_t n = (size_t)b->first[b->nseq], seqs = (size_t)b->nseq;
	int32_t *ids = t->host, *pos = ids + n, *slot = pos + n;
	int32_t *order = slot + n, *first = order + n;
	int32_t *len = first + seqs + 1;
	int32_t *row = len + seqs, *target = row + b->nout;
	const int32_t *dev = t->ints;
	int longest = 0;

	memcpy(ids, b->ids, n * 4);
	sort_rows(ids, (int32_t)n, order, t->count, t->m.cfg.vocab);
	memcpy(first, b->first, (seqs + 1) * 4);
	memcpy(row, b->row, (size_t)b->nout * 4);
	if (b->target)
		memcpy(target, b->target, (size_t)b->nout * 4);
	for (int s = 0; s < b->nseq; s++) {
		len[s] = first[s + 1] - first[s];
		longest = len[s] > longest ? len[s] : longest;
		for (int i = first[s]; i < first[s + 1]; i++) {
			pos[i] = i - first[s];
			slot[i] = i;
		}
	}
	gpu_upload(t->g, t->ints, t->host,
		   (size_t)(target + b->nout - ids) * 4);
	t->step = (struct nn_step){
		.ids = dev, .pos = dev + (pos - ids),
		.slot = dev + (slot - ids), .first = dev + (first - ids),
		.len = dev + (len - ids), .t = (int)n, .nseq = b->nseq,
		.max_rows = longest, .max_len = longest,
	};
	t->order = dev + (order - ids);
	t->row = dev + (row - ids);
	t->target = dev + (target - ids);
	t->nout = b->nout;
	t->inv_temp = b->inv_temp;
}

static struct nn_acts acts_of(const struct train *t, int l)
{
	const struct saved *s = &t->layer[l];
	int normed = t->m.cfg.qk_norm;

	return (struct nn_acts){
		.norm = s->norm ? s->norm : t->norm,
		.norm2 = s->norm2 ? s->norm2 : t->norm,
		.qkv = normed ? s->qkv : t->qkv,
		.q = normed ? t->q : s->q, .k = normed ? t->k : s->k,
		.v = normed ? t->v : s->v, .att = s->att, .lse = s->lse,
		.gu = s->gu, .act = t->act,
	};
}

/* Final states of the output rows, then their norm. */
static void final_rows(struct train *t)
{
	gpu_do_rows(t->g, &(struct gpu_rows){
		.out = t->out_x, .x = t->layer[t->m.cfg.layers].in,
		.index = t->row, .m = t->nout, .c = t->m.cfg.hidden });
	nn_norm(&t->m, t->m.w.norm, t->nout, t->out_x, t->out_n);
}

/* Row i of an array of activations, or of fp32. */
static void *act_row(const struct train *t, void *p, int i, int c)
{
	return (char *)p + (size_t)i * (size_t)c *
	       gpu_type_size(gpu_act(t->g));
}

static void *f32_at(void *p, int i)
{
	return (float *)p + i;
}

static const void *int_at(const void *p, int i)
{
	return (const int32_t *)p + i;
}

static int chunk_of(const struct train *t, int i)
{
	return t->nout - i < t->head_rows ? t->nout - i : t->head_rows;
}

/* Those of the part that begins at row i. */
static void *logits_at(const struct train *t, int i)
{
	return (float *)t->logits + (t->all_logits ? (size_t)i *
				     (size_t)t->m.cfg.vocab : 0);
}

static void head_forward(struct train *t)
{
	int n;

	for (int i = 0; i < t->nout; i += n) {
		void *states = act_row(t, t->out_n, i, t->m.cfg.hidden);

		n = chunk_of(t, i);
		if (t->m.cfg.head == NN_HEAD_VALUE) {
			nn_head(&t->m, n, states, f32_at(t->lp, i));
			continue;
		}
		nn_head(&t->m, n, states, logits_at(t, i));
		gpu_do_pick(t->g, &(struct gpu_pick){
			.logprob = f32_at(t->lp, i),
			.entropy = t->entropy ? f32_at(t->ent, i) : NULL,
			.lse = f32_at(t->lse, i), .logits = logits_at(t, i),
			.target = int_at(t->target, i), .m = n,
			.v = t->m.cfg.vocab, .inv_temp = t->inv_temp });
	}
}

int train_forward(struct train *t, const struct train_batch *b,
		  float *logprob, float *entropy, struct err *e)
{
	if (check_batch(t, b, e))
		return -1;
	upload(t, b);
	t->entropy = entropy != NULL;
	t->spent = 0;
	nn_embed(&t->m, &t->step, t->layer[0].in);
	for (int l = 0; l < t->m.cfg.layers; l++) {
		const struct saved *s = &t->layer[l];
		const struct nn_acts a = acts_of(t, l);

		nn_attention(&t->m, l, &t->step, s->in, s->mid, &a);
		nn_mlp(&t->m, l, t->step.t, s->mid, t->layer[l + 1].in, &a);
		gpu_mark(t->g);
	}
	final_rows(t);
	head_forward(t);
	if (entropy && gpu_download(t->g, entropy, t->ent,
				    (size_t)t->nout * 4, e))
		return -1;
	return gpu_download(t->g, logprob, t->lp, (size_t)t->nout * 4, e);
}

static void linear_back(struct train *t, int rows, void *dx, void *dw,
			void *db, const void *dy, const void *x,
			const void *w, int n, int k)
{
	gpu_do_linear_back(t->g, &(struct gpu_linear_back){
		.dx = dx, .dw = dw, .db = db, .dy = dy, .x = x, .w = w,
		.m = rows, .n = n, .k = k, .wtype = t->m.w.type });
}

static void norm_back(struct train *t, int rows, void *dx, void *dw,
		      const void *dy, const void *x, const void *w)
{
	gpu_do_rmsnorm_back(t->g, &(struct gpu_rmsnorm_back){
		.dx = dx, .dw = dw, .dy = dy, .x = x, .w = w, .t = rows,
		.c = t->m.cfg.hidden, .eps = t->m.cfg.eps });
}

/* The critic's head: dvalue is fp32, so are its weights. */
static void value_back(struct train *t)
{
	gpu_do_score_back(t->g, &(struct gpu_score_back){
		.dx = t->dout_n, .dw = t->grad.head, .db = t->grad.head_b,
		.dy = t->dlp, .x = t->out_n, .w = t->m.w.head, .m = t->nout,
		.k = t->m.cfg.hidden });
}

static void head_back(struct train *t, int entropy)
{
	int n, h = t->m.cfg.hidden, v = t->m.cfg.vocab;

	for (int i = 0; i < t->nout; i += n) {
		void *states = act_row(t, t->out_n, i, h);
		void *logits = logits_at(t, i);
		void *dlogits = t->dlogits ? t->dlogits : logits;

		n = chunk_of(t, i);
		if (!t->all_logits || t->spent)
			nn_head(&t->m, n, states, logits);
		gpu_do_pick_back(t->g, &(struct gpu_pick_back){
			.dlogits = dlogits, .logits = logits,
			.target = int_at(t->target, i),
			.lse = f32_at(t->lse, i),
			.entropy = entropy ? f32_at(t->ent, i) : NULL,
			.dlp = f32_at(t->dlp, i),
			.dent = entropy ? f32_at(t->dent, i) : NULL,
			.m = n, .v = v, .inv_temp = t->inv_temp });
		linear_back(t, n, act_row(t, t->dout_n, i, h), t->grad.head,
			    NULL, dlogits, states, t->m.w.head, v, h);
	}
	t->spent = !t->dlogits;
}

static void mlp_back(struct train *t, int l)
{
	const struct nn_config *c = &t->m.cfg;
	const struct nn_layer *w = &t->m.w.layer[l], *d = &t->grad.layer[l];
	const struct saved *s = &t->layer[l];
	int n = t->step.t;

	linear_back(t, n, t->dact, NULL, NULL, t->dx, NULL, w->down,
		    c->hidden, c->inter);
	gpu_do_swiglu_back(t->g, &(struct gpu_swiglu_back){
		.dgu = t->dgu, .out = t->act, .dout = t->dact, .gu = s->gu,
		.t = n, .f = c->inter });
	linear_back(t, n, NULL, d->down, d->down_b, t->dx, t->act, NULL,
		    c->hidden, c->inter);
	if (!s->norm2)
		nn_norm(&t->m, w->ln2, n, s->mid, t->norm);
	linear_back(t, n, t->dn, d->gu, d->gu_b, t->dgu,
		    s->norm2 ? s->norm2 : t->norm, w->gu,
		    2 * c->inter, c->hidden);
	norm_back(t, n, t->dx, d->ln2, t->dn, s->mid, w->ln2);
}

static void attention_back(struct train *t, int l)
{
	const struct nn_config *c = &t->m.cfg;
	const struct nn_layer *w = &t->m.w.layer[l], *d = &t->grad.layer[l];
	const struct saved *s = &t->layer[l];
	const struct nn_acts a = acts_of(t, l);
	int n = t->step.t, q = c->heads * c->head_dim;

	linear_back(t, n, t->datt, d->o, d->o_b, t->dx, s->att, w->o,
		    c->hidden, q);
	if (c->qk_norm)
		nn_rope(&t->m, l, &t->step, &a);
	gpu_do_attn_back(t->g, &(struct gpu_attn_back){
		.dq = t->dq, .dk = t->dk, .dv = t->dv, .work = t->delta,
		.dout = t->datt, .out = s->att, .lse = s->lse, .q = a.q,
		.k = a.k, .v = a.v, .first = t->step.first,
		.nseq = t->step.nseq, .rows = n,
		.max_rows = t->step.max_rows, .heads = c->heads,
		.kv_heads = c->kv_heads, .dim = c->head_dim,
		.scale = nn_config_scale(c) });
	gpu_do_rope_back(t->g, &(struct gpu_rope_back){
		.dqkv = t->dqkv, .dqn = d->qn, .dkn = d->kn, .dq = t->dq,
		.dk = t->dk, .dv = t->dv, .qkv = a.qkv, .table = t->m.rope,
		.pos = t->step.pos, .qn = w->qn, .kn = w->kn, .t = n,
		.heads = c->heads, .kv_heads = c->kv_heads,
		.dim = c->head_dim, .eps = c->eps });
	if (!s->norm)
		nn_norm(&t->m, w->ln1, n, s->in, t->norm);
	linear_back(t, n, t->dn, d->qkv, d->qkv_b, t->dqkv, a.norm, w->qkv,
		    q + 2 * c->kv_heads * c->head_dim, c->hidden);
	norm_back(t, n, t->dx, d->ln1, t->dn, s->in, w->ln1);
}

/* The layer's own activations again, from its input. */
static void compute_again(struct train *t, int l)
{
	const struct nn_acts a = acts_of(t, l);
	const struct saved *s = &t->layer[l];

	nn_attention(&t->m, l, &t->step, s->in, s->mid, &a);
	nn_mlp(&t->m, l, t->step.t, s->mid, t->dn, &a);
}

static void act_zero(struct train *t, void *p, int rows)
{
	gpu_zero(t->g, p, (size_t)rows * (size_t)t->m.cfg.hidden *
		 gpu_type_size(gpu_act(t->g)));
}

int train_backward(struct train *t, const float *dlp, const float *dent,
		   struct err *e)
{
	size_t bytes = (size_t)t->nout * sizeof(float);
	int h = t->m.cfg.hidden;

	if (dent && !t->entropy)
		return err_set(e, CA_SOFTWARE, "no entropy was computed");
	gpu_upload(t->g, t->dlp, dlp, bytes);
	if (dent)
		gpu_upload(t->g, t->dent, dent, bytes);
	act_zero(t, t->dx, t->step.t);
	if (t->m.cfg.head == NN_HEAD_VALUE)
		value_back(t);
	else
		head_back(t, dent != NULL);
	shard_reduce(t, (size_t)t->m.cfg.layers + 1);
	act_zero(t, t->dout_x, t->nout);
	norm_back(t, t->nout, t->dout_x, t->grad.norm, t->dout_n, t->out_x,
		  t->m.w.norm);
	gpu_do_rows_back(t->g, &(struct gpu_rows){
		.out = t->dx, .x = t->dout_x, .index = t->row, .m = t->nout,
		.c = h });
	for (int l = t->m.cfg.layers - 1; l >= 0; l--) {
		if (t->o.recompute)
			compute_again(t, l);
		mlp_back(t, l);
		attention_back(t, l);
		shard_reduce(t, (size_t)l + 1);
		gpu_mark(t->g);
	}
	gpu_do_embed_back(t->g, &(struct gpu_embed_back){
		.dw = t->grad.embed, .dout = t->dx, .ids = t->step.ids,
		.order = t->order, .t = t->step.t, .c = h });
	shard_reduce(t, 0);
	shard_reduce(t, (size_t)t->m.cfg.layers + 2);
	t->last = 0;
	return gpu_sync(t->g, e);
}

