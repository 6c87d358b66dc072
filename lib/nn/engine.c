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

/* Host side of a step; same names as struct nn_step.  The arrays of a step lie
 * one behind the other as long as the step needs them, for one upload; where
 * depends on what struct nn_step has of sizes alone. */
struct layout {
	int32_t *score, *target;	/* rows to score, their next tokens */
	int32_t *ids, *pos, *slot, *index, *first, *len, *pages;
	float *temp, *top_p, *min_p, *u;
	int32_t *top_k, *end;
	int32_t *drawn;			/* one download with the next */
	float *drawn_lp;
	int t, nseq, stride, max_rows, max_len;
	int nout;			/* rows whose logits are drawn from */
	int *out_part;
};

#define DRAW_ARRAYS 5			/* temp to top_k */

/* Lengths for which a step that decodes is recorded: LEAST << level. */
#define LEAST  256
#define LEVELS 24
#define TAPES  256			/* kept at once, of some MiB each */

struct taped {
	struct gpu_tape *tape;
	int seen;			/* steps of its kind */
};

struct engine {
	struct gpu *g;
	struct nn_model m;
	struct gpu_plan plan;
	struct engine_opts o;
	struct layout l;
	int chunk, rows, ntable;	/* rows: most of a step */
	/* On the device: numbers of a step, activations, results. */
	void *ints, *x, *out_x, *out_n, *logits, *keys, *values;
	void *out_id, *out_lp, *out_lse, *work;
	void *layers, *met;		/* of struct gpu_token */
	struct nn_acts a;
	struct taped *taped;		/* by number of sequences and level */
	int ntaped;			/* tapes that there are */
	int untaped;			/* recording failed */
	float *words;			/* a row of logits */
	uint64_t sum;
	void (*meanwhile)(void *ctx);	/* or NULL */
	void *meanwhile_ctx;
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

	return 3 * rows + (3 + DRAW_ARRAYS) * n + 2 * slots + 1 +
	       slots * (size_t)g->ntable;
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
	gpu_plan_add(p, "step", &g->layers, (size_t)c->layers,
		     sizeof(struct gpu_layer));
	gpu_plan_add(p, "step", &g->met, GPU_MEET, sizeof(uint32_t));
	gpu_plan_add(p, "work space", &g->work,
		     gpu_is_cpu(g->g) ? 1 : gpu_work_size(g->g, 1, 1, 1), 1);
}

static int host_arrays(struct engine *g, struct err *e)
{
	struct layout *l = &g->l;
	size_t slots = (size_t)g->o.slots, n = out_rows(g);

	l->score = gpu_host(g->g, ints_of(g) * sizeof *l->score, e);
	l->drawn = gpu_host(g->g, 2 * n * sizeof *l->drawn, e);
	if (!l->score || !l->drawn)
		return -1;
	l->out_part = calloc(n, sizeof *l->out_part);
	g->words = calloc((size_t)g->m.cfg.vocab, sizeof *g->words);
	g->taped = calloc((slots + 1) * LEVELS, sizeof *g->taped);
	if (!l->out_part || !g->words || !g->taped)
		return err_set(e, CA_SOFTWARE, "no memory");
	l->drawn_lp = (float *)(void *)(l->drawn + n);
	l->target = l->score + n;
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

static size_t bytes_of_layer(const struct engine *g)
{
	const struct nn_config *c = &g->m.cfg;

	return (size_t)pages_for((int)g->o.cache) * GPU_PAGE *
	       (size_t)(c->kv_heads * c->head_dim) *
	       gpu_type_size(gpu_act(g->g));
}

/* Tells the device where layers lie. */
static int upload_layers(struct engine *g, struct err *e)
{
	size_t n = (size_t)g->m.cfg.layers;
	struct gpu_layer *a = calloc(n, sizeof *a);
	int rc;

	if (!a)
		return err_set(e, CA_SOFTWARE, "no memory");
	nn_layers(&g->m, g->keys, g->values, bytes_of_layer(g), a);
	gpu_upload(g->g, g->layers, a, n * sizeof *a);
	rc = gpu_sync(g->g, e);
	free(a);
	return rc;
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
	return nn_model_bind(&g->m, e) || upload_layers(g, e) ? -1 : 0;
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
	for (int i = 0; g->taped && i < (g->o.slots + 1) * LEVELS; i++) {
		gpu_tape_free(g->g, g->taped[i].tape);
		g->taped[i].tape = NULL;
	}
	g->ntaped = 0;
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
	if (g->g) {
		gpu_host_free(g->g, g->l.score);
		gpu_host_free(g->g, g->l.drawn);
	}
	free(g->l.out_part);
	free(g->words);
	free(g->taped);
	nn_model_release(&g->m);
	gpu_close(g->g);
	free(g);
}

int engine_fits(const struct engine *g, const char *dir, const struct st *s,
		struct err *e)
{
	struct nn_config cfg;

	if (nn_config_load(&cfg, dir, e))
		return -1;
	if (!nn_config_alike(&cfg, &g->m.cfg))
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
	memcpy(l->pages + (size_t)l->nseq * (size_t)l->stride, p->pages,
	       (size_t)pages_for(end) * sizeof *l->pages);
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

static int level_of(int len)
{
	int level = 0;

	while ((int64_t)LEAST << level < len)
		level++;
	return level;
}

/* The sizes of a step, and where its arrays lie. */
static void divide(struct engine *g, const struct engine_part *part, int n)
{
	struct layout *l = &g->l;
	int32_t *at = l->target + out_rows(g);
	int64_t longest;
	size_t t = 0, out = 0;
	int end;

	l->max_rows = l->max_len = 0;
	for (int i = 0; i < n; i++) {
		end = part[i].from + part[i].rows;
		t += (size_t)part[i].rows;
		out += part[i].draws != 0;
		if (part[i].rows > l->max_rows)
			l->max_rows = part[i].rows;
		if (end > l->max_len)
			l->max_len = end;
	}
	longest = (int64_t)LEAST << level_of(l->max_len);
	l->stride = longest < g->o.ctx ? pages_for((int)longest) : g->ntable;
	l->ids = at;
	l->pos = l->ids + t;
	l->slot = l->pos + t;
	l->index = l->slot + t;
	l->first = l->index + out;
	l->len = l->first + n + 1;
	l->pages = l->len + n;
	l->temp = (float *)(void *)(l->pages + n * l->stride);
	l->top_p = l->temp + out;
	l->min_p = l->top_p + out;
	l->u = l->min_p + out;
	l->top_k = (int32_t *)(void *)(l->u + out);
	l->end = l->top_k + out;
}

static void lay_out(struct engine *g, const struct engine_part *part, int n)
{
	struct layout *l = &g->l;

	divide(g, part, n);
	l->t = l->nseq = l->nout = 0;
	for (int i = 0; i < n; i++) {
		add_rows(g, &part[i]);
		if (part[i].draws)
			add_output(g, &part[i], i);
	}
}

/* Where on the device an array of the layout is. */
static const void *there(const struct engine *g, const void *host)
{
	return (const char *)g->ints +
	       ((const char *)host - (const char *)g->l.score);
}

static struct nn_step upload(struct engine *g)
{
	struct layout *l = &g->l;

	gpu_upload(g->g, (void *)there(g, l->ids), l->ids,
		   (size_t)(l->end - l->ids) * sizeof *l->ids);
	return (struct nn_step){
		.ids = there(g, l->ids), .pos = there(g, l->pos),
		.slot = there(g, l->slot), .first = there(g, l->first),
		.len = there(g, l->len), .pages = there(g, l->pages),
		.t = l->t, .nseq = l->nseq, .stride = l->stride,
		.max_rows = l->max_rows, .max_len = l->max_len,
	};
}

static void run_layers(struct engine *g, const struct nn_step *s)
{
	const struct nn_config *c = &g->m.cfg;
	size_t layer = bytes_of_layer(g);

	nn_embed(&g->m, s, g->x);
	g->a.lean = 1;
	g->a.norm2 = g->a.norm;
	for (int i = 0; i < c->layers; i++) {
		g->a.k = (char *)g->keys + (size_t)i * layer;
		g->a.v = (char *)g->values + (size_t)i * layer;
		nn_attention(&g->m, i, s, g->x, g->x, &g->a);
		nn_mlp(&g->m, i, s->t, g->x, g->x, &g->a);
	}
}

/* Logits of the rows of x that `index` names; NULL: of the first ones. */
static void run_head(struct engine *g, const void *index, int rows)
{
	if (index)
		gpu_do_rows(g->g, &(struct gpu_rows){
			.out = g->out_x, .x = g->x, .index = index,
			.m = rows, .c = g->m.cfg.hidden });
	nn_final(&g->m, rows, index ? g->out_x : g->x, g->out_n, g->logits);
}

static void run_sample(struct engine *g)
{
	const struct layout *l = &g->l;

	gpu_do_sample(g->g, &(struct gpu_sample){
		.id = g->out_id, .logprob = g->out_lp, .logits = g->logits,
		.temp = there(g, l->temp), .top_p = there(g, l->top_p),
		.min_p = there(g, l->min_p), .u = there(g, l->u),
		.top_k = there(g, l->top_k), .m = l->nout,
		.v = g->m.cfg.vocab });
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
	void *score = (void *)there(g, l->score);
	void *target = (void *)there(g, l->target);

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

void engine_meanwhile(struct engine *g, void (*fn)(void *ctx), void *ctx)
{
	g->meanwhile = fn;
	g->meanwhile_ctx = ctx;
}

/* The device has all it needs to be `busy`, or is about to get it. */
static void meanwhile(struct engine *g, int busy)
{
	if (g->meanwhile && busy != gpu_is_cpu(g->g))
		g->meanwhile(g->meanwhile_ctx);
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
	run_head(g, there(g, g->l.index), g->l.nout);
	meanwhile(g, 1);
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
	if (s->t == 1 && g->l.nout == 1 &&
	    nn_token(&g->m, s, g->layers, g->met, g->logits)) {
		run_sample(g);
		return;
	}
	run_layers(g, s);
	if (g->l.nout) {
		run_head(g, s->t == g->l.nout ? NULL :
			 there(g, g->l.index), g->l.nout);
		run_sample(g);
	}
}

/* A step that decodes is the same for any tokens: the third one of as many
 * sequences and of lengths alike is recorded, and replayed from then on, until
 * there are too many of them. */
static void decode(struct engine *g, struct nn_step *s)
{
	int level = level_of(s->max_len);
	struct taped *t = &g->taped[s->nseq * LEVELS + level];

	s->max_len = LEAST << level;
	if (!t->tape && !g->untaped && g->ntaped < TAPES && ++t->seen > 2 &&
	    gpu_record(g->g)) {
		compute(g, s);
		t->tape = gpu_record_end(g->g);
		/* Nothing has been done yet. */
		if (t->tape) {
			g->ntaped++;
		} else {
			g->untaped = 1;
			gpu_sync(g->g, NULL);
		}
	}
	if (t->tape)
		gpu_replay(g->g, t->tape);
	else
		compute(g, s);
}

int engine_step(struct engine *g, struct engine_part *part, int nparts,
		struct err *e)
{
	struct nn_step s;

	lay_out(g, part, nparts);
	s = upload(g);
	meanwhile(g, 0);
	if (has_mask(g, part)) {
		if (compute_masked(g, part, &s, e))
			return -1;
	} else {
		if (s.max_rows == 1 && s.t == g->l.nout)
			decode(g, &s);
		else
			compute(g, &s);
		meanwhile(g, 1);
	}
	/* Scores use the same buffers, so what was drawn leaves first. */
	return fetch(g, part, e) || score(g, part, nparts, e) ? -1 : 0;
}
