/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/model.h"

void nn_embed(const struct nn_model *m, const struct nn_step *s, void *x)
{
	gpu_do_embed(m->g, &(struct gpu_embed){
		.out = x, .w = m->w.embed, .ids = s->ids, .t = s->t,
		.c = m->cfg.hidden, .wtype = m->w.type });
}

void nn_norm(const struct nn_model *m, const void *w, int t, const void *x,
	     void *y)
{
	gpu_do_rmsnorm(m->g, &(struct gpu_rmsnorm){
		.y = y, .x = x, .w = w, .t = t, .c = m->cfg.hidden,
		.eps = m->cfg.eps });
}

static struct gpu_rope rope_of(const struct nn_model *m, int l,
			       const struct nn_step *s,
			       const struct nn_acts *a)
{
	const struct nn_config *c = &m->cfg;

	return (struct gpu_rope){
		.q = a->q, .k = a->k, .v = a->v, .qkv = a->qkv,
		.table = m->rope, .pos = s->pos, .slot = s->slot,
		.qn = m->w.layer[l].qn, .kn = m->w.layer[l].kn, .t = s->t,
		.heads = c->heads, .kv_heads = c->kv_heads,
		.dim = c->head_dim, .eps = c->eps };
}

void nn_rope(const struct nn_model *m, int l, const struct nn_step *s,
	     const struct nn_acts *a)
{
	const struct gpu_rope rope = rope_of(m, l, s, a);

	gpu_do_rope(m->g, &rope);
}

/* out = in + x w^T + bias */
static void add_linear(const struct nn_model *m, int t, const void *in,
		       void *out, const void *x, const void *w,
		       const void *bias, int k)
{
	int n = m->cfg.hidden;

	gpu_do_linear(m->g, &(struct gpu_linear){
		.y = out, .x = x, .w = w, .bias = bias, .m = t, .n = n,
		.k = k, .add = in, .wtype = m->w.type });
}

void nn_attention(const struct nn_model *m, int l, const struct nn_step *s,
		  const void *in, void *out, const struct nn_acts *a)
{
	const struct nn_config *c = &m->cfg;
	const struct nn_layer *w = &m->w.layer[l];
	const struct gpu_rope rope = rope_of(m, l, s, a);
	int q = c->heads * c->head_dim;
	int qkv = q + 2 * c->kv_heads * c->head_dim;

	gpu_do_linear(m->g, &(struct gpu_linear){
		.y = a->qkv, .x = in, .w = w->qkv, .bias = w->qkv_b,
		.m = s->t, .n = qkv, .k = c->hidden, .wtype = m->w.type,
		.norm = w->ln1, .normed = a->norm, .rope = &rope,
		.eps = c->eps, .lean = a->lean });
	gpu_do_attn(m->g, &(struct gpu_attn){
		.out = a->att, .lse = a->lse, .q = a->q, .k = a->k, .v = a->v,
		.first = s->first, .len = s->len, .pages = s->pages,
		.nseq = s->nseq, .stride = s->stride, .rows = s->t,
		.max_rows = s->max_rows, .max_len = s->max_len,
		.heads = c->heads, .kv_heads = c->kv_heads,
		.dim = c->head_dim,
		.scale = nn_config_scale(c) });
	add_linear(m, s->t, in, out, a->att, w->o, w->o_b, q);
}

void nn_mlp(const struct nn_model *m, int l, int t, const void *in, void *out,
	    const struct nn_acts *a)
{
	const struct nn_config *c = &m->cfg;
	const struct nn_layer *w = &m->w.layer[l];

	gpu_do_linear(m->g, &(struct gpu_linear){
		.y = a->gu, .x = in, .w = w->gu, .bias = w->gu_b, .m = t,
		.n = 2 * c->inter, .k = c->hidden, .wtype = m->w.type,
		.norm = w->ln2, .normed = a->norm2, .eps = c->eps,
		.act = a->act, .lean = a->lean });
	add_linear(m, t, in, out, a->act, w->down, w->down_b, c->inter);
}

int nn_head_width(const struct nn_model *m)
{
	return m->cfg.head == NN_HEAD_VALUE ? 1 : m->cfg.vocab;
}

static struct gpu_linear head_of(const struct nn_model *m, int rows,
				 const void *x, void *logits)
{
	int value = m->cfg.head == NN_HEAD_VALUE;

	return (struct gpu_linear){
		.y = logits, .x = x, .w = m->w.head, .bias = m->w.head_b,
		.m = rows, .n = nn_head_width(m), .k = m->cfg.hidden,
		.logits = 1, .wtype = value ? GPU_F32 : m->w.type };
}

void nn_head(const struct nn_model *m, int rows, const void *n, void *logits)
{
	const struct gpu_linear a = head_of(m, rows, n, logits);

	gpu_do_linear(m->g, &a);
}

void nn_final(const struct nn_model *m, int rows, const void *x, void *n,
	      void *logits)
{
	struct gpu_linear a = head_of(m, rows, x, logits);

	a.norm = m->w.norm;
	a.normed = n;
	a.eps = m->cfg.eps;
	gpu_do_linear(m->g, &a);
}

void nn_layers(const struct nn_model *m, void *keys, void *values,
	       size_t bytes, struct gpu_layer *out)
{
	for (int i = 0; i < m->cfg.layers; i++) {
		const struct nn_layer *w = &m->w.layer[i];

		out[i] = (struct gpu_layer){
			{ w->qkv, w->o, w->gu, w->down },
			{ w->qkv_b, w->o_b, w->gu_b, w->down_b },
			{ w->ln1, w->ln2 }, w->qn, w->kn,
			(char *)keys + (size_t)i * bytes,
			(char *)values + (size_t)i * bytes
		};
	}
}

int nn_token(const struct nn_model *m, const struct nn_step *s,
	     const void *layers, void *met, void *logits)
{
	const struct nn_config *c = &m->cfg;
	const struct nn_weights *w = &m->w;

	return gpu_do_token(m->g, &(struct gpu_token){
		.layers = layers, .nlayers = c->layers, .hidden = c->hidden,
		.heads = c->heads, .kv_heads = c->kv_heads,
		.dim = c->head_dim, .inter = c->inter, .vocab = c->vocab,
		.wtype = w->type, .eps = c->eps,
		.scale = nn_config_scale(c), .embed = w->embed,
		.head = w->head, .norm = w->norm, .table = m->rope,
		.ids = s->ids, .pos = s->pos, .slot = s->slot,
		.len = s->len, .pages = s->pages, .logits = logits,
		.met = met });
}
