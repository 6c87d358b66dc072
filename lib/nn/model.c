/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout and loading of weights.
 */
#include "nn/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PER_LAYER 12		/* at most */
#define ALIGN	  64		/* elements */
#define STAGE	  ((size_t)4 << 20)	/* elements converted at once */

static struct nn_param *new_param(struct nn_model *m, int cols, int dims,
				  int vector)
{
	struct nn_param *p = &m->param[m->nparams++];

	/* Products want matrices that begin at whole vectors. */
	m->nmat = (m->nmat + ALIGN - 1) / ALIGN * ALIGN;
	memset(p, 0, sizeof *p);
	p->cols = cols;
	p->dims = dims;
	p->vector = vector;
	p->at = vector ? m->nvec : m->nmat;
	return p;
}

static void add_part(struct nn_model *m, struct nn_param *p, int rows,
		     const char *fmt, int layer)
{
	size_t n = (size_t)rows * (size_t)p->cols;
	char *name = p->name[p->parts];

	if (layer >= 0)
		snprintf(name, sizeof p->name[0], "model.layers.%d.%s", layer,
			 fmt);
	else
		snprintf(name, sizeof p->name[0], "%s", fmt);
	p->rows[p->parts++] = rows;
	p->n += n;
	*(p->vector ? &m->nvec : &m->nmat) += n;
}

static void add_matrix(struct nn_model *m, int rows, int cols,
		       const char *name, int layer)
{
	add_part(m, new_param(m, cols, 2, 0), rows, name, layer);
}

static void add_vector(struct nn_model *m, int rows, const char *name,
		       int layer)
{
	add_part(m, new_param(m, 1, 1, 1), rows, name, layer);
}

static void add_three(struct nn_model *m, struct nn_param *p,
		      const char *what, int layer)
{
	const struct nn_config *c = &m->cfg;
	char name[3][64];

	for (int i = 0; i < 3; i++) {
		snprintf(name[i], sizeof name[i], "self_attn.%c_proj.%s",
			 "qkv"[i], what);
		add_part(m, p, (i ? c->kv_heads : c->heads) * c->head_dim,
			 name[i], layer);
	}
}

static void add_two(struct nn_model *m, struct nn_param *p, const char *what,
		    int layer)
{
	char name[64];

	snprintf(name, sizeof name, "mlp.gate_proj.%s", what);
	add_part(m, p, m->cfg.inter, name, layer);
	snprintf(name, sizeof name, "mlp.up_proj.%s", what);
	add_part(m, p, m->cfg.inter, name, layer);
}

/* In the order of struct nn_layer; nn_weights_bind relies on it. */
static void add_layer(struct nn_model *m, int l)
{
	const struct nn_config *c = &m->cfg;
	int q = c->heads * c->head_dim;

	add_vector(m, c->hidden, "input_layernorm.weight", l);
	add_three(m, new_param(m, c->hidden, 2, 0), "weight", l);
	if (c->qkv_bias)
		add_three(m, new_param(m, 1, 1, 1), "bias", l);
	if (c->qk_norm) {
		add_vector(m, c->head_dim, "self_attn.q_norm.weight", l);
		add_vector(m, c->head_dim, "self_attn.k_norm.weight", l);
	}
	add_matrix(m, c->hidden, q, "self_attn.o_proj.weight", l);
	if (c->o_bias)
		add_vector(m, c->hidden, "self_attn.o_proj.bias", l);
	add_vector(m, c->hidden, "post_attention_layernorm.weight", l);
	add_two(m, new_param(m, c->hidden, 2, 0), "weight", l);
	if (c->mlp_bias)
		add_two(m, new_param(m, 1, 1, 1), "bias", l);
	add_matrix(m, c->hidden, c->inter, "mlp.down_proj.weight", l);
	if (c->mlp_bias)
		add_vector(m, c->hidden, "mlp.down_proj.bias", l);
}

static void cut(struct nn_model *m, int i, int parts)
{
	size_t whole = ALIGN * (size_t)parts;

	m->nmat = (m->nmat + whole - 1) / whole * whole;
	m->cut[i] = m->nmat;
}

int nn_model_init(struct nn_model *m, struct gpu *g,
		  const struct nn_config *cfg, enum gpu_type type,
		  int positions, int parts, struct err *e)
{
	memset(m, 0, sizeof *m);
	m->cfg = *cfg;
	m->g = g;
	m->w.type = type;
	m->positions = positions;
	m->param = calloc((size_t)cfg->layers * PER_LAYER + 4,
			  sizeof *m->param);
	m->cut = calloc((size_t)cfg->layers + 3, sizeof *m->cut);
	if (!m->param || !m->cut)
		return err_set(e, CA_SOFTWARE, "no memory");
	add_matrix(m, cfg->vocab, cfg->hidden, "model.embed_tokens.weight",
		   -1);
	for (int l = 0; l < cfg->layers; l++) {
		cut(m, l + 1, parts);
		add_layer(m, l);
	}
	cut(m, cfg->layers + 1, parts);
	add_vector(m, cfg->hidden, "model.norm.weight", -1);
	if (cfg->head == NN_HEAD_VALUE) {
		add_part(m, new_param(m, cfg->hidden, 2, 1), 1,
			 "score.weight", -1);
		add_vector(m, 1, "score.bias", -1);
	} else if (!cfg->tied) {
		add_matrix(m, cfg->vocab, cfg->hidden, "lm_head.weight", -1);
	}
	cut(m, cfg->layers + 2, parts);
	return 0;
}

void nn_model_release(struct nn_model *m)
{
	nn_weights_release(&m->w);
	free(m->param);
	free(m->cut);
	m->param = NULL;
	m->cut = NULL;
}

void nn_model_plan(struct nn_model *m, struct gpu_plan *p)
{
	gpu_plan_add(p, "weights", &m->w.mat, m->nmat,
		     gpu_type_size(m->w.type));
	gpu_plan_add(p, "weights", &m->w.vec, m->nvec, sizeof(float));
	nn_model_plan_rope(m, p);
}

void nn_model_plan_rope(struct nn_model *m, struct gpu_plan *p)
{
	gpu_plan_add(p, "rotations", &m->rope,
		     (size_t)m->positions * (size_t)m->cfg.head_dim,
		     sizeof(float));
}

static void *place(const struct nn_weights *w, const struct nn_param *p)
{
	if (p->vector)
		return (float *)w->vec + p->at;
	return (char *)w->mat + p->at * gpu_type_size(w->type);
}

/* The next parameter, if there is to be one. */
static void *take(const struct nn_weights *w, const struct nn_param **p,
		  int there)
{
	return there ? place(w, (*p)++) : NULL;
}

static void bind_layer(struct nn_weights *w, const struct nn_config *c,
		       struct nn_layer *y, const struct nn_param **p)
{
	y->ln1 = take(w, p, 1);
	y->qkv = take(w, p, 1);
	y->qkv_b = take(w, p, c->qkv_bias);
	y->qn = take(w, p, c->qk_norm);
	y->kn = take(w, p, c->qk_norm);
	y->o = take(w, p, 1);
	y->o_b = take(w, p, c->o_bias);
	y->ln2 = take(w, p, 1);
	y->gu = take(w, p, 1);
	y->gu_b = take(w, p, c->mlp_bias);
	y->down = take(w, p, 1);
	y->down_b = take(w, p, c->mlp_bias);
}

int nn_weights_bind(struct nn_weights *w, const struct nn_model *m,
		    struct err *e)
{
	const struct nn_param *p = m->param;

	w->layer = calloc((size_t)m->cfg.layers, sizeof *w->layer);
	if (!w->layer)
		return err_set(e, CA_SOFTWARE, "no memory");
	w->embed = take(w, &p, 1);
	for (int l = 0; l < m->cfg.layers; l++)
		bind_layer(w, &m->cfg, &w->layer[l], &p);
	w->norm = take(w, &p, 1);
	if (m->cfg.head == NN_HEAD_VALUE) {
		w->head = take(w, &p, 1);
		w->head_b = take(w, &p, 1);
	} else {
		w->head = m->cfg.tied ? w->embed : take(w, &p, 1);
	}
	return 0;
}

void nn_weights_release(struct nn_weights *w)
{
	free(w->layer);
	w->layer = NULL;
}

int nn_model_bind(struct nn_model *m, struct err *e)
{
	size_t half = (size_t)m->cfg.head_dim / 2, at = 0;
	size_t n = (size_t)m->positions * 2 * half;
	float *table = malloc(n * sizeof *table);
	double freq[128], factor;

	if (!table)
		return err_set(e, CA_SOFTWARE, "no memory");
	factor = nn_config_freqs(&m->cfg, freq);
	for (int pos = 0; pos < m->positions; pos++) {
		for (size_t i = 0; i < half; i++) {
			/* In single precision, as the models were trained. */
			float angle = (float)pos * (float)freq[i];

			table[at + i] = (float)(cos((double)angle) * factor);
			table[at + half + i] = (float)(sin((double)angle) *
						       factor);
		}
		at += 2 * half;
	}
	gpu_upload(m->g, m->rope, table, n * sizeof *table);
	/* The upload may still read it. */
	if (gpu_sync(m->g, e)) {
		free(table);
		return -1;
	}
	free(table);
	return nn_weights_bind(&m->w, m, e);
}

static int check_tensor(const struct st_tensor *t, const struct nn_param *p,
			int part, struct err *e)
{
	int64_t rows = p->rows[part];

	if (!t)
		return err_set(e, CA_DATAERR, "tensor '%s' is missing",
			       p->name[part]);
	if (!t->floats)
		return err_set(e, CA_DATAERR, "tensor '%s' is of type %s: "
			       "F32, BF16 and F16 are read", t->name,
			       t->dtype);
	if (t->ndim != p->dims || t->shape[0] != rows ||
	    (p->dims == 2 && t->shape[1] != p->cols))
		return err_set(e, CA_DATAERR, "tensor '%s' is not %lld%s%.0d "
			       "as the config has it", t->name,
			       (long long)rows, p->dims == 2 ? " x " : "",
			       p->dims == 2 ? p->cols : 0);
	return 0;
}

static int load_part(struct nn_model *m, const struct st_tensor *t,
		     char *to, enum gpu_type type, void *stage, struct err *e)
{
	size_t n = t->bytes / gpu_type_size(t->type), k;
	size_t in = gpu_type_size(t->type), out = gpu_type_size(type);

	for (size_t i = 0; i < n; i += k) {
		k = n - i < STAGE ? n - i : STAGE;
		gpu_convert(stage, type, (const char *)t->data + i * in,
			    t->type, k);
		gpu_upload(m->g, to + i * out, stage, k * out);
		if (gpu_sync(m->g, e))
			return -1;
	}
	return 0;
}

static int load_param(struct nn_model *m, const struct nn_param *p,
		      const struct st *s, void *stage, struct err *e)
{
	enum gpu_type type = p->vector ? GPU_F32 : m->w.type;
	char *to = place(&m->w, p);

	for (int i = 0; i < p->parts; i++) {
		const struct st_tensor *t = st_get(s, p->name[i]);

		if (check_tensor(t, p, i, e) ||
		    load_part(m, t, to, type, stage, e))
			return -1;
		to += (size_t)p->rows[i] * (size_t)p->cols *
		      gpu_type_size(type);
	}
	return 0;
}

int nn_model_check(const struct nn_model *m, const struct st *s,
		   struct err *e)
{
	for (size_t i = 0; i < m->nparams; i++)
		for (int k = 0; k < m->param[i].parts; k++)
			if (check_tensor(st_get(s, m->param[i].name[k]),
					 &m->param[i], k, e))
				return -1;
	return 0;
}

int nn_model_load(struct nn_model *m, const struct st *s, struct err *e)
{
	void *stage = malloc(STAGE * sizeof(float));
	int rc;

	if (!stage)
		return err_set(e, CA_SOFTWARE, "no memory");
	rc = nn_model_check(m, s, e);
	for (size_t i = 0; i < m->nparams && !rc; i++)
		rc = load_param(m, &m->param[i], s, stage, e);
	free(stage);
	return rc;
}

void nn_model_extent(const struct nn_model *m, size_t *width, size_t *matrix)
{
	*width = *matrix = 0;
	for (size_t i = 0; i < m->nparams; i++) {
		const struct nn_param *p = &m->param[i];
		size_t cols = (size_t)p->cols, rows = p->n / cols;

		if (p->vector && p->dims == 1)
			continue;
		if (p->n > *matrix)
			*matrix = p->n;
		/* The vocabulary's rows come in chunks of their own. */
		if (rows != (size_t)m->cfg.vocab && rows + cols > *width)
			*width = rows + cols;
	}
}
