/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory, the layout of a step on host and device, its operations.
 */
#include "nn/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/model.h"
#include "nn/pages.h"

#define CHUNK_CPU  128		/* tokens of prompts in one step */
#define CHUNK_CUDA 8192

/* Host side of a step; same names as struct nn_step. */
struct layout {
	int32_t *ids, *pos, *slot, *index, *first, *len, *pages;
	int32_t *score, *target;	/* rows to score, their next tokens */
	int32_t *drawn;			/* one download with the next */
	float *drawn_lp;
	int t, nseq, max_rows, max_len;
	int nout;			/* rows whose logits are drawn from */
	int *out_part;
	float *temp, *top_p, *min_p, *u;
	int32_t *top_k;
};

#define DRAW_ARRAYS 5			/* temp to top_k */

struct engine {
	struct gpu *g;
	struct nn_model m;
	struct gpu_plan plan;
	struct engine_opts o;
	struct layout l;
	int chunk, rows, ntable;	/* rows: most of a step */
	/* On the device: integers of a step, activations, results. */
	void *ints, *floats, *x, *out_x, *out_n, *logits, *keys, *values;
	void *out_id, *out_lp, *out_lse, *work;
	struct nn_acts a;
	/* Steps that only decode, by their number of sequences. */
	struct gpu_tape **tape;
	int *decoded;			/* how many such steps there were */
	int *taped;			/* and for how long sequences */
	float *words;			/* a row of logits */
	uint64_t sum;
};

const struct nn_config *engine_config(const struct engine *g)
{
	return &g->m.cfg;
}

struct gpu *engine_gpu(const struct engine *g)
{
	return g->g;
}

const struct engine_opts *engine_opts(const struct engine *g)
{
	return &g->o;
}

int engine_chunk(const struct engine *g)
{
	return g->chunk;
}

uint64_t engine_sum(const struct engine *g)
{
	return g->sum;
}

/* Rows whose logits are held at once. */
static size_t out_rows(const struct engine *g)
{
	return (size_t)g->o.slots > 64 ? (size_t)g->o.slots : 64;
}

static size_t ints_of(const struct engine *g)
{
	size_t rows = (size_t)g->rows, slots = (size_t)g->o.slots;
	size_t n = out_rows(g);

	return 4 * rows + 2 * n + 2 * slots + 1 + slots * (size_t)g->ntable;
}

static void plan_acts(struct engine *g, size_t t)
{
	const struct nn_config *c = &g->m.cfg;
	size_t e = gpu_type_size(gpu_act(g->g)), h = (size_t)c->hidden;
	size_t q = (size_t)(c->heads * c->head_dim);
	size_t kv = (size_t)(c->kv_heads * c->head_dim);
	size_t f = (size_t)c->inter;
	struct gpu_plan *p = &g->plan;

	gpu_plan_add(p, "activations", &g->x, t * h, e);
	gpu_plan_add(p, "activations", &g->a.norm, t * h, e);
	gpu_plan_add(p, "activations", &g->a.qkv, t * (q + 2 * kv), e);
	gpu_plan_add(p, "activations", &g->a.q, t * q, e);
	gpu_plan_add(p, "activations", &g->a.att, t * q, e);
	gpu_plan_add(p, "activations", &g->a.gu, t * 2 * f, e);
	gpu_plan_add(p, "activations", &g->a.act, t * f, e);
}

static void plan_step(struct engine *g)
{
	const struct nn_config *c = &g->m.cfg;
	size_t e = gpu_type_size(gpu_act(g->g)), n = out_rows(g);
	size_t kv = (size_t)(c->kv_heads * c->head_dim);
	size_t cached = (size_t)pages_for((int)g->o.cache) * GPU_PAGE *
			(size_t)c->layers * kv;
	struct gpu_plan *p = &g->plan;

	gpu_plan_add(p, "keys and values", &g->keys, cached, e);
	gpu_plan_add(p, "keys and values", &g->values, cached, e);
	gpu_plan_add(p, "logits", &g->logits, n * (size_t)nn_head_width(&g->m),
		     sizeof(float));
	gpu_plan_add(p, "logits", &g->out_x, n * (size_t)c->hidden, e);
	gpu_plan_add(p, "logits", &g->out_n, n * (size_t)c->hidden, e);
	gpu_plan_add(p, "step", &g->out_id, 2 * n, 4);
	gpu_plan_add(p, "step", &g->out_lse, n, 4);
	gpu_plan_add(p, "step", &g->ints, ints_of(g), 4);
	gpu_plan_add(p, "step", &g->floats, DRAW_ARRAYS * n, 4);
	gpu_plan_add(p, "work space", &g->work,
		     gpu_is_cpu(g->g) ? 1 : gpu_work_size(g->g, 1, 1, 1), 1);
}

static int host_arrays(struct engine *g, struct err *e)
{
	struct layout *l = &g->l;
	size_t rows = (size_t)g->rows, slots = (size_t)g->o.slots;
	size_t n = out_rows(g);
	int32_t *i = calloc(ints_of(g), sizeof *i);

	l->ids = i;
	l->out_part = calloc(n, sizeof *l->out_part);
	l->drawn = calloc(2 * n, sizeof *l->drawn);
	l->temp = calloc(DRAW_ARRAYS * n, sizeof *l->temp);
	g->words = calloc((size_t)g->m.cfg.vocab, sizeof *g->words);
	g->tape = calloc(slots + 1, sizeof *g->tape);
	g->decoded = calloc(slots + 1, sizeof *g->decoded);
	g->taped = calloc(slots + 1, sizeof *g->taped);
	if (!i || !l->out_part || !l->drawn || !l->temp ||
	    !g->words || !g->tape || !g->decoded || !g->taped)
		return err_set(e, CA_SOFTWARE, "no memory");
	l->drawn_lp = (float *)(void *)(l->drawn + n);
	l->pos = i + rows;
	l->slot = l->pos + rows;
	l->index = l->slot + rows;
	l->score = l->index + rows;
	l->target = l->score + n;
	l->first = l->target + n;
	l->len = l->first + slots + 1;
	l->pages = l->len + slots;
	l->top_p = l->temp + n;
	l->min_p = l->top_p + n;
	l->u = l->min_p + n;
	l->top_k = (int32_t *)(void *)(l->u + n);
	return 0;
}

int engine_type(struct engine_opts *o, const char *name, struct err *e)
{
	const struct st_tensor *t;
	struct st *s;

	o->type = strcmp(name, "bf16") ? GPU_F32 : GPU_BF16;
	if (strcmp(name, "auto"))
		return 0;
	s = st_open(o->dir, e);
	if (!s)
		return -1;
	t = st_get(s, "model.embed_tokens.weight");
	if (t && t->floats && t->type == GPU_BF16)
		o->type = GPU_BF16;
	st_close(s);
	return 0;
}

static void settle(struct engine *g, const struct nn_config *cfg)
{
	struct engine_opts *o = &g->o;

	if (o->ctx <= 0 || o->ctx > cfg->max_pos)
		o->ctx = cfg->max_pos;
	if (o->slots < 1)
		o->slots = 1;
	g->chunk = gpu_is_cpu(g->g) ? CHUNK_CPU : CHUNK_CUDA;
	g->rows = g->chunk + o->slots;
	g->ntable = pages_for(o->ctx);
}

static void plan_all(struct engine *g)
{
	nn_model_plan(&g->m, &g->plan);
	plan_acts(g, (size_t)g->rows);
	plan_step(g);
}

/* Tokens of keys and values for which there is memory beside the rest. */
static int64_t cache_that_fits(struct engine *g)
{
	const struct nn_config *c = &g->m.cfg;
	size_t token = 2 * (size_t)c->layers * (size_t)c->kv_heads *
		       (size_t)c->head_dim * gpu_type_size(gpu_act(g->g));
	size_t avail = gpu_avail(g->g), rest;

	g->o.cache = GPU_PAGE;
	plan_all(g);
	rest = g->plan.total;
	gpu_plan_release(g->g, &g->plan);
	if (!avail)
		return INT64_MAX;
	avail -= avail / 10;		/* others need some as well */
	if (g->o.sharing > 1)
		avail /= (size_t)g->o.sharing;
	return avail > rest ? (int64_t)((avail - rest) / token) : 0;
}

static void settle_cache(struct engine *g)
{
	struct engine_opts *o = &g->o;
	int64_t want = o->cache, fits;

	if (want <= 0) {
		want = (int64_t)o->slots * o->ctx;
		fits = cache_that_fits(g);
		want = want < fits ? want : fits;
	}
	if (want > (int64_t)1 << 30)
		want = (int64_t)1 << 30;
	o->cache = want < o->ctx ? o->ctx : want;
}

/* Takes the device's memory. */
static int occupy(struct engine *g, struct str *table, struct err *e)
{
	plan_all(g);
	if (table)
		gpu_plan_print(&g->plan, table);
	if (gpu_plan_commit(g->g, &g->plan, e))
		return -1;
	g->out_lp = (float *)g->out_id + out_rows(g);
	gpu_set_work(g->g, g->work, gpu_is_cpu(g->g) ? 1 :
		     gpu_work_size(g->g, 1, 1, 1));
	return nn_model_bind(&g->m, e);
}

static int prepare(struct engine *g, struct str *table, struct err *e)
{
	struct nn_config cfg;
	enum gpu_type act = g->o.type;
	struct st *s;
	int rc;

	if (nn_config_load(&cfg, g->o.dir, e))
		return -1;
	if (cfg.head != NN_HEAD_LM)
		return err_set(e, CA_CONFIG, "'%s' is a value model: it "
			       "generates nothing", g->o.dir);
	if (!strcmp(g->o.device, "cpu"))
		act = GPU_F32;
	g->g = gpu_open(g->o.device, act, g->o.flags, e);
	if (!g->g)
		return -1;
	settle(g, &cfg);
	if (nn_model_init(&g->m, g->g, &cfg, g->o.type, g->o.ctx, 1, e))
		return -1;
	settle_cache(g);
	if (occupy(g, table, e) || host_arrays(g, e))
		return -1;
	s = st_open(g->o.dir, e);
	rc = s ? nn_model_load(&g->m, s, e) : -1;
	if (s && rc)
		err_wrap(e, "'%s'", g->o.dir);
	else if (s)
		g->sum = st_sum(s);
	st_close(s);
	return rc;
}

struct engine *engine_open(const struct engine_opts *o, struct str *table,
			   struct err *e)
{
	struct engine *g = calloc(1, sizeof *g);

	if (!g) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	g->o = *o;
	if (prepare(g, table, e)) {
		engine_close(g);
		return NULL;
	}
	return g;
}

void engine_sleep(struct engine *g)
{
	for (int i = 0; g->tape && i <= g->o.slots; i++) {
		gpu_tape_free(g->g, g->tape[i]);
		g->tape[i] = NULL;
	}
	nn_weights_release(&g->m.w);
	if (g->g)
		gpu_plan_release(g->g, &g->plan);
}

int engine_wake(struct engine *g, const struct st *s, struct err *e)
{
	if (occupy(g, NULL, e) || nn_model_load(&g->m, s, e)) {
		engine_sleep(g);
		return -1;
	}
	return 0;
}

void engine_close(struct engine *g)
{
	if (!g)
		return;
	engine_sleep(g);
	free(g->l.ids);
	free(g->l.out_part);
	free(g->l.drawn);
	free(g->l.temp);
	free(g->words);
	free(g->tape);
	free(g->decoded);
	free(g->taped);
	nn_model_release(&g->m);
	gpu_close(g->g);
	free(g);
}

/* Whether two configs compute the same from the same weights. */
static int alike(const struct nn_config *a, const struct nn_config *b)
{
	const int x[] = { (int)a->family - (int)b->family,
		(int)a->head - (int)b->head, a->layers - b->layers,
		a->hidden - b->hidden, a->heads - b->heads,
		a->kv_heads - b->kv_heads, a->head_dim - b->head_dim,
		a->inter - b->inter, a->vocab - b->vocab, a->tied - b->tied,
		a->qkv_bias - b->qkv_bias, a->o_bias - b->o_bias,
		a->mlp_bias - b->mlp_bias, a->qk_norm - b->qk_norm,
		(int)a->rope - (int)b->rope, a->rope_orig - b->rope_orig };
	const double y[] = { (double)a->eps - (double)b->eps,
		a->rope_theta - b->rope_theta, a->rope_low - b->rope_low,
		a->rope_factor - b->rope_factor, a->rope_high - b->rope_high,
		a->rope_fast - b->rope_fast, a->rope_slow - b->rope_slow,
		a->rope_mscale - b->rope_mscale };

	for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
		if (x[i])
			return 0;
	for (size_t i = 0; i < sizeof y / sizeof y[0]; i++)
		if (fabs(y[i]) > 0)
			return 0;
	return 1;
}

int engine_fits(const struct engine *g, const char *dir, const struct st *s,
		struct err *e)
{
	struct nn_config cfg;

	if (nn_config_load(&cfg, dir, e))
		return -1;
	if (!alike(&cfg, &g->m.cfg))
		return err_set(e, CA_CONFIG, "'%s' is another kind of model "
			       "than the one that is served", dir);
	if (nn_model_check(&g->m, s, e))
		return err_wrap(e, "'%s'", dir);
	return 0;
}

int engine_load(struct engine *g, const struct st *s, struct err *e)
{
	return nn_model_load(&g->m, s, e);
}

/* Adds a part's rows to the step. */
static void add_rows(struct engine *g, const struct engine_part *p)
{
	struct layout *l = &g->l;
	int end = p->from + p->rows;

	l->first[l->nseq] = l->t;
	for (int pos = p->from; pos < end; pos++, l->t++) {
		l->ids[l->t] = p->token[pos];
		l->pos[l->t] = pos;
		l->slot[l->t] = p->pages[pos / GPU_PAGE] * GPU_PAGE +
				pos % GPU_PAGE;
	}
	l->len[l->nseq] = end;
	memcpy(l->pages + (size_t)l->nseq * (size_t)g->ntable, p->pages,
	       (size_t)pages_for(end) * sizeof *l->pages);
	if (p->rows > l->max_rows)
		l->max_rows = p->rows;
	if (end > l->max_len)
		l->max_len = end;
	l->first[++l->nseq] = l->t;
}

/* The last row that was added draws a token. */
static void add_output(struct engine *g, const struct engine_part *p, int i)
{
	struct layout *l = &g->l;
	int k = l->nout++;

	l->index[k] = l->t - 1;
	l->out_part[k] = i;
	l->temp[k] = p->temp;
	l->top_p[k] = p->top_p;
	l->min_p[k] = p->min_p;
	l->top_k[k] = p->top_k;
	l->u[k] = p->u;
}

static void lay_out(struct engine *g, const struct engine_part *part, int n)
{
	struct layout *l = &g->l;

	l->t = l->nseq = l->nout = l->max_rows = l->max_len = 0;
	for (int i = 0; i < n; i++) {
		add_rows(g, &part[i]);
		if (part[i].draws)
			add_output(g, &part[i], i);
	}
}

static const void *at_int(const struct engine *g, const int32_t *host)
{
	return (const int32_t *)g->ints + (host - g->l.ids);
}

static struct nn_step upload(struct engine *g)
{
	struct layout *l = &g->l;
	size_t n = (size_t)(l->pages - l->ids) +
		   (size_t)l->nseq * (size_t)g->ntable;

	gpu_upload(g->g, g->ints, l->ids, n * sizeof *l->ids);
	gpu_upload(g->g, g->floats, l->temp,
		   DRAW_ARRAYS * out_rows(g) * sizeof(float));
	return (struct nn_step){
		.ids = at_int(g, l->ids), .pos = at_int(g, l->pos),
		.slot = at_int(g, l->slot), .first = at_int(g, l->first),
		.len = at_int(g, l->len), .pages = at_int(g, l->pages),
		.t = l->t, .nseq = l->nseq, .stride = g->ntable,
		.max_rows = l->max_rows, .max_len = l->max_len,
	};
}

static void run_layers(struct engine *g, const struct nn_step *s)
{
	const struct nn_config *c = &g->m.cfg;
	size_t layer = (size_t)pages_for((int)g->o.cache) * GPU_PAGE *
		       (size_t)(c->kv_heads * c->head_dim) *
		       gpu_type_size(gpu_act(g->g));

	nn_embed(&g->m, s, g->x);
	g->a.lean = 1;
	for (int i = 0; i < c->layers; i++) {
		g->a.k = (char *)g->keys + (size_t)i * layer;
		g->a.v = (char *)g->values + (size_t)i * layer;
		nn_attention(&g->m, i, s, g->x, g->x, &g->a);
		nn_mlp(&g->m, i, s->t, g->x, g->x, &g->a);
	}
}

/* Logits of the rows of x that `index` names. */
static void run_head(struct engine *g, const void *index, int rows)
{
	gpu_do_rows(g->g, &(struct gpu_rows){
		.out = g->out_x, .x = g->x, .index = index, .m = rows,
		.c = g->m.cfg.hidden });
	nn_norm(&g->m, g->m.w.norm, rows, g->out_x, g->out_n);
	nn_head(&g->m, rows, g->out_n, g->logits);
}

static void run_sample(struct engine *g)
{
	size_t n = out_rows(g);
	const float *f = g->floats;

	gpu_do_sample(g->g, &(struct gpu_sample){
		.id = g->out_id, .logprob = g->out_lp, .logits = g->logits,
		.temp = f, .top_p = f + n, .min_p = f + 2 * n, .u = f + 3 * n,
		.top_k = f + 4 * n,
		.m = g->l.nout, .v = g->m.cfg.vocab });
}

/* Keeps the n likeliest of the words seen so far, in order. */
static void keep_top(struct engine_top *top, int n, int have, int32_t id,
		     float x)
{
	int at = have;

	while (at > 0 && x > top[at - 1].logprob)
		at--;
	if (at == n)
		return;
	if (have == n)
		have--;
	memmove(top + at + 1, top + at, (size_t)(have - at) * sizeof *top);
	top[at] = (struct engine_top){ id, x };
}

/* The n likeliest words of row k of the logits, of which `own` is known. */
static int find_top(struct engine *g, struct engine_top *top, int n, int k,
		    float temp, struct engine_top own, struct err *e)
{
	int v = g->m.cfg.vocab;
	float inv = temp > 0 ? 1 / temp : 1, *w = g->words;
	double sum = 0, lse;

	if (gpu_download(g->g, w, (float *)g->logits + (size_t)k * (size_t)v,
			 (size_t)v * sizeof *w, e))
		return -1;
	for (int i = 0; i < v; i++)
		keep_top(top, n, i < n ? i : n, i, w[i]);
	for (int i = 0; i < v; i++)
		sum += exp((double)((w[i] - top[0].logprob) * inv));
	lse = (double)(top[0].logprob * inv) + log(sum);
	for (int i = 0; i < n; i++) {
		struct engine_top *t = &top[i];

		t->logprob = (float)((double)(t->logprob * inv) - lse);
		if (t->logprob < ENGINE_NEVER)
			t->logprob = ENGINE_NEVER;
		if (t->id == own.id)
			t->logprob = own.logprob;
	}
	return 0;
}

/* Scores the next n tokens after rows `t` on, which are at positions `pos`
 * on; 0 or -1. */
static int score_some(struct engine *g, const struct engine_part *p, int t,
		      int pos, int n, struct err *e)
{
	struct layout *l = &g->l;
	size_t bytes = (size_t)n * sizeof *l->score;
	void *score = (void *)at_int(g, l->score);
	void *target = (void *)at_int(g, l->target);

	for (int i = 0; i < n; i++) {
		l->score[i] = t + i;
		l->target[i] = p->token[pos + i + 1];
	}
	gpu_upload(g->g, score, l->score, bytes);
	gpu_upload(g->g, target, l->target, bytes);
	run_head(g, score, n);
	gpu_do_pick(g->g, &(struct gpu_pick){
		.logprob = g->out_lp, .lse = g->out_lse,
		.logits = g->logits, .target = target, .m = n,
		.v = g->m.cfg.vocab,
		.inv_temp = p->temp > 0 ? 1 / p->temp : 1 });
	if (gpu_download(g->g, p->score + pos + 1, g->out_lp, bytes, e))
		return -1;
	for (int i = pos + 1; p->score_top && i <= pos + n; i++) {
		struct engine_top own = { p->token[i], p->score[i] };

		if (find_top(g, p->score_top + i * p->score_ntop,
			     p->score_ntop, i - pos - 1, p->temp, own, e))
			return -1;
	}
	return 0;
}

/* Log-probabilities of tokens that this step's rows predict. */
static int score(struct engine *g, const struct engine_part *part, int nparts,
		 struct err *e)
{
	for (int i = 0; i < nparts; i++) {
		const struct engine_part *p = &part[i];
		int end = p->from + p->rows, n;

		if (!p->score)
			continue;
		if (end > p->scored - 1)
			end = p->scored - 1;
		for (int pos = p->from; pos < end; pos += n) {
			n = (int)out_rows(g);
			n = end - pos < n ? end - pos : n;
			if (score_some(g, p, g->l.first[i] + pos - p->from,
				       pos, n, e))
				return -1;
		}
	}
	return 0;
}

/* What was drawn, to the host. */
static int fetch(struct engine *g, struct engine_part *part, struct err *e)
{
	struct layout *l = &g->l;
	size_t bytes = l->nout ? (out_rows(g) + (size_t)l->nout) * 4 : 0;

	if (gpu_download(g->g, l->drawn, g->out_id, bytes, e))
		return -1;
	for (int i = 0; i < l->nout; i++) {
		struct engine_part *p = &part[l->out_part[i]];

		p->id = l->drawn[i];
		p->logprob = l->drawn_lp[i];
		if (p->ntop && find_top(g, p->top, p->ntop, i, p->temp,
					(struct engine_top){ p->id,
							     p->logprob }, e))
			return -1;
	}
	return 0;
}

static int has_mask(const struct engine *g, const struct engine_part *part)
{
	for (int k = 0; k < g->l.nout; k++)
		if (part[g->l.out_part[k]].mask)
			return 1;
	return 0;
}

/* Logits that are masked go through the host. */
static int mask(struct engine *g, const struct engine_part *part,
		struct err *e)
{
	size_t v = (size_t)g->m.cfg.vocab, bytes = v * sizeof *g->words;

	for (int k = 0; k < g->l.nout; k++) {
		const struct engine_part *p = &part[g->l.out_part[k]];
		float *row = (float *)g->logits + (size_t)k * v;

		if (!p->mask)
			continue;
		if (gpu_download(g->g, g->words, row, bytes, e))
			return -1;
		p->mask(p->mask_ctx, g->words);
		gpu_upload(g->g, row, g->words, bytes);
	}
	return 0;
}

static int compute_masked(struct engine *g, const struct engine_part *part,
			  const struct nn_step *s, struct err *e)
{
	run_layers(g, s);
	run_head(g, at_int(g, g->l.index), g->l.nout);
	for (int k = 0; k < g->l.nout; k++) {
		const struct engine_part *p = &part[g->l.out_part[k]];

		if (p->mask && p->ready)
			p->ready(p->mask_ctx);
	}
	if (mask(g, part, e))
		return -1;
	run_sample(g);
	return 0;
}

static void compute(struct engine *g, const struct nn_step *s)
{
	run_layers(g, s);
	if (g->l.nout) {
		run_head(g, at_int(g, g->l.index), g->l.nout);
		run_sample(g);
	}
}

/* A step that decodes is the same for any tokens: the third one with as many
 * sequences is recorded, and replayed until they are twice as long. */
static void decode(struct engine *g, struct nn_step *s)
{
	struct gpu_tape **tape = &g->tape[s->nseq];
	int longest = s->max_len;

	for (s->max_len = 256; s->max_len < longest; )
		s->max_len *= 2;
	if (*tape && s->max_len > g->taped[s->nseq]) {
		gpu_tape_free(g->g, *tape);
		*tape = NULL;
	}
	if (!*tape && ++g->decoded[s->nseq] > 2 && gpu_record(g->g)) {
		g->taped[s->nseq] = s->max_len;
		compute(g, s);
		*tape = gpu_record_end(g->g);
	} else if (!*tape) {
		compute(g, s);
		return;
	}
	if (*tape)
		gpu_replay(g->g, *tape);
}

int engine_step(struct engine *g, struct engine_part *part, int nparts,
		struct err *e)
{
	struct nn_step s;

	lay_out(g, part, nparts);
	s = upload(g);
	if (has_mask(g, part)) {
		if (compute_masked(g, part, &s, e))
			return -1;
	} else if (s.max_rows == 1 && s.t == g->l.nout) {
		decode(g, &s);
	} else {
		compute(g, &s);
	}
	/* Scores use the same buffers, so what was drawn leaves first. */
	return fetch(g, part, e) || score(g, part, nparts, e) ? -1 : 0;
}
