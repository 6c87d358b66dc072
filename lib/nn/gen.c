/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's thread: takes requests into slots, lays out a step, runs it,
 * hands out tokens.
 */
#include "nn/gen.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/rand.h"
#include "nn/model.h"
#include "nn/pages.h"
#include "nn/safetensors.h"

#define CHUNK_CPU  128		/* tokens of prompts in one step */
#define CHUNK_CUDA 8192

struct job {			/* a request that waits or runs */
	struct gen_req *r;
	struct job *next;
	int done, failed;
	struct err err;
	pthread_cond_t wake;
};

struct slot {
	struct job *job;		/* NULL: free */
	int32_t *token;			/* prompt, then what was drawn */
	int32_t *table;			/* pages */
	int ntoken, computed, tokens;	/* tokens: pages hold so many */
	struct rng rng;
};

/* Host side of a step; same names as struct nn_step. */
struct layout {
	int32_t *ids, *pos, *slot, *index, *first, *len, *pages;
	int32_t *score, *target;	/* rows to score, their next tokens */
	int *seq_slot;
	int32_t *drawn;
	float *drawn_lp;
	int t, nseq, max_rows, max_len;
	int nout;			/* rows whose logits are drawn from */
	int *out_slot;
	float *temp, *top_p, *u;
	int32_t *top_k;
};

struct gen {
	struct gpu *g;
	struct nn_model m;
	struct gpu_plan plan;
	struct gen_opts o;
	struct pages *pages;
	struct slot *slot;
	struct layout l;
	int chunk, rows, ntable;	/* rows: most of a step */
	/* On the device: integers of a step, activations, results. */
	void *ints, *floats, *x, *out_x, *out_n, *logits, *keys, *values;
	void *out_id, *out_lp, *out_lse, *work;
	struct nn_acts a;
	/* Steps that only decode, by their number of sequences. */
	struct gpu_tape **tape;
	int *decoded;			/* how many such steps there were */
	pthread_t thread;
	int started, closing;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job *head, **tail;
	struct gen_stats stats;
};

const struct nn_config *gen_config(const struct gen *g)
{
	return &g->m.cfg;
}

int gen_ctx(const struct gen *g)
{
	return g->o.ctx;
}

void gen_get_stats(struct gen *g, struct gen_stats *s)
{
	pthread_mutex_lock(&g->lock);
	*s = g->stats;
	pthread_mutex_unlock(&g->lock);
}

/* Rows whose logits are held at once. */
static size_t out_rows(const struct gen *g)
{
	return (size_t)g->o.slots > 64 ? (size_t)g->o.slots : 64;
}

static size_t ints_of(const struct gen *g)
{
	size_t rows = (size_t)g->rows, slots = (size_t)g->o.slots;
	size_t n = out_rows(g);

	return 4 * rows + 2 * n + 2 * slots + 1 + slots * (size_t)g->ntable;
}

static void plan_acts(struct gen *g, size_t t)
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

static void plan_step(struct gen *g)
{
	const struct nn_config *c = &g->m.cfg;
	size_t e = gpu_type_size(gpu_act(g->g)), n = out_rows(g);
	size_t kv = (size_t)(c->kv_heads * c->head_dim), width, matrix;
	size_t cached = (size_t)pages_for((int)g->o.cache) * GPU_PAGE *
			(size_t)c->layers * kv;
	struct gpu_plan *p = &g->plan;

	gpu_plan_add(p, "keys and values", &g->keys, cached, e);
	gpu_plan_add(p, "keys and values", &g->values, cached, e);
	gpu_plan_add(p, "logits", &g->logits, n * (size_t)nn_head_width(&g->m),
		     sizeof(float));
	gpu_plan_add(p, "logits", &g->out_x, n * (size_t)c->hidden, e);
	gpu_plan_add(p, "logits", &g->out_n, n * (size_t)c->hidden, e);
	gpu_plan_add(p, "step", &g->out_id, n, 4);
	gpu_plan_add(p, "step", &g->out_lp, n, 4);
	gpu_plan_add(p, "step", &g->out_lse, n, 4);
	gpu_plan_add(p, "step", &g->ints, ints_of(g), 4);
	gpu_plan_add(p, "step", &g->floats, 4 * n, 4);
	nn_model_extent(&g->m, &width, &matrix);
	gpu_plan_add(p, "work space", &g->work,
		     gpu_is_cpu(g->g) ? 1 : gpu_work_size(g->g, 1, 1, 1), 1);
}

static int host_arrays(struct gen *g, struct err *e)
{
	struct layout *l = &g->l;
	size_t rows = (size_t)g->rows, slots = (size_t)g->o.slots;
	size_t n = out_rows(g);
	int32_t *i = calloc(ints_of(g), sizeof *i);

	l->ids = i;
	g->slot = calloc(slots, sizeof *g->slot);
	l->out_slot = calloc(n, sizeof *l->out_slot);
	l->seq_slot = calloc(slots, sizeof *l->seq_slot);
	l->drawn = calloc(n, sizeof *l->drawn);
	l->drawn_lp = calloc(n, sizeof *l->drawn_lp);
	l->temp = calloc(4 * n, sizeof *l->temp);
	g->pages = pages_new(pages_for((int)g->o.cache));
	g->tape = calloc(slots + 1, sizeof *g->tape);
	g->decoded = calloc(slots + 1, sizeof *g->decoded);
	if (!i || !g->slot || !l->out_slot || !l->seq_slot ||
	    !l->drawn || !l->drawn_lp ||
	    !l->temp || !g->tape || !g->decoded || !g->pages)
		return err_set(e, CA_SOFTWARE, "no memory");
	l->pos = i + rows;
	l->slot = l->pos + rows;
	l->index = l->slot + rows;
	l->score = l->index + rows;
	l->target = l->score + n;
	l->first = l->target + n;
	l->len = l->first + slots + 1;
	l->pages = l->len + slots;
	l->top_p = l->temp + n;
	l->u = l->top_p + n;
	l->top_k = (int32_t *)(void *)(l->u + n);
	for (size_t s = 0; s < slots; s++) {
		g->slot[s].token = calloc((size_t)g->o.ctx, sizeof(int32_t));
		g->slot[s].table = calloc((size_t)g->ntable, sizeof(int32_t));
		if (!g->slot[s].token || !g->slot[s].table)
			return err_set(e, CA_SOFTWARE, "no memory");
	}
	return 0;
}

int gen_type(struct gen_opts *o, const char *name, struct err *e)
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

static int load(struct gen *g, struct err *e)
{
	struct st *s = st_open(g->o.dir, e);
	int rc = -1;

	if (s) {
		rc = nn_model_load(&g->m, s, e);
		if (rc)
			err_wrap(e, "'%s'", g->o.dir);
	}
	st_close(s);
	return rc;
}

static void settle(struct gen *g, const struct nn_config *cfg)
{
	struct gen_opts *o = &g->o;

	if (o->ctx <= 0 || o->ctx > cfg->max_pos)
		o->ctx = cfg->max_pos;
	if (o->slots < 1)
		o->slots = 1;
	if (o->cache <= 0)
		o->cache = (int64_t)o->slots * o->ctx;
	if (o->cache > (int64_t)1 << 30)
		o->cache = (int64_t)1 << 30;
	if (o->cache < o->ctx)
		o->cache = o->ctx;
	g->chunk = gpu_is_cpu(g->g) ? CHUNK_CPU : CHUNK_CUDA;
	g->rows = g->chunk + o->slots;
	g->ntable = pages_for(o->ctx);
}

static int prepare(struct gen *g, struct str *table, struct err *e)
{
	struct nn_config cfg;
	enum gpu_type act = g->o.type;

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
	if (nn_model_init(&g->m, g->g, &cfg, g->o.type, g->o.ctx, e))
		return -1;
	nn_model_plan(&g->m, &g->plan);
	plan_acts(g, (size_t)g->rows);
	plan_step(g);
	if (table)
		gpu_plan_print(&g->plan, table);
	if (gpu_plan_commit(g->g, &g->plan, e))
		return -1;
	gpu_set_work(g->g, g->work, gpu_is_cpu(g->g) ? 1 :
		     gpu_work_size(g->g, 1, 1, 1));
	return nn_model_bind(&g->m, e) || load(g, e) || host_arrays(g, e) ?
	       -1 : 0;
}

/* Takes waiting requests into free slots, in order. */
static void admit(struct gen *g)
{
	for (int i = 0; i < g->o.slots && g->head; i++) {
		struct slot *s = &g->slot[i];
		struct gen_req *r = g->head->r;
		int tokens = r->nprompt + r->max_new, there;

		if (s->job)
			continue;
		there = pages_take(g->pages, r->prompt,
				   r->prompt_logprob ? 0 : r->nprompt, tokens,
				   s->table);
		if (there < 0)
			return;
		s->job = g->head;
		g->head = g->head->next;
		if (!g->head)
			g->tail = &g->head;
		memcpy(s->token, r->prompt,
		       (size_t)r->nprompt * sizeof *s->token);
		s->ntoken = r->nprompt;
		s->computed = there;
		s->tokens = tokens;
		rng_seeded(&s->rng, r->seed);
		g->stats.prompt_tokens += (uint64_t)r->nprompt;
		g->stats.shared_tokens += (uint64_t)there;
	}
}

static void finish(struct gen *g, struct slot *s, enum gen_end end)
{
	struct job *j = s->job;

	pages_publish(g->pages, s->token, s->computed, s->table);
	pages_drop(g->pages, s->table, s->tokens);
	j->r->end = end;
	j->done = 1;
	s->job = NULL;
	pthread_cond_signal(&j->wake);
}

/* Adds the next rows of slot i: one token, or part of its prompt. */
static void add_rows(struct gen *g, int i, int rows)
{
	struct layout *l = &g->l;
	struct slot *s = &g->slot[i];

	l->seq_slot[l->nseq] = i;
	l->first[l->nseq] = l->t;
	for (int k = 0; k < rows; k++, l->t++) {
		int pos = s->computed + k;

		l->ids[l->t] = s->token[pos];
		l->pos[l->t] = pos;
		l->slot[l->t] = s->table[pos / GPU_PAGE] * GPU_PAGE +
				pos % GPU_PAGE;
	}
	s->computed += rows;
	l->len[l->nseq] = s->computed;
	memcpy(l->pages + (size_t)l->nseq * (size_t)g->ntable, s->table,
	       (size_t)pages_for(s->computed) * sizeof *l->pages);
	if (rows > l->max_rows)
		l->max_rows = rows;
	if (s->computed > l->max_len)
		l->max_len = s->computed;
	l->first[++l->nseq] = l->t;
}

/* The last row of slot i draws a token. */
static void add_output(struct gen *g, int i)
{
	struct layout *l = &g->l;
	struct slot *s = &g->slot[i];
	const struct gen_req *r = s->job->r;
	int k = l->nout++;

	l->index[k] = l->t - 1;
	l->out_slot[k] = i;
	l->temp[k] = r->temp;
	l->top_p[k] = r->top_p;
	l->top_k[k] = r->top_k;
	l->u[k] = (float)(rng_u64(&s->rng) >> 40) * 0x1p-24f;
}

/* Growing sequences first, then prompts as far as the step has room. */
static void lay_out(struct gen *g)
{
	struct layout *l = &g->l;
	int room = g->chunk;

	l->t = l->nseq = l->nout = l->max_rows = l->max_len = 0;
	for (int i = 0; i < g->o.slots; i++) {
		struct slot *s = &g->slot[i];

		if (s->job && s->ntoken - s->computed == 1) {
			add_rows(g, i, 1);
			add_output(g, i);
		}
	}
	for (int i = 0; i < g->o.slots && room; i++) {
		struct slot *s = &g->slot[i];
		int rows = s->job ? s->ntoken - s->computed : 0;

		if (rows < 1)
			continue;
		if (rows > room)
			rows = room;
		room -= rows;
		add_rows(g, i, rows);
		if (s->computed == s->ntoken)
			add_output(g, i);
	}
}

static const void *at_int(const struct gen *g, const int32_t *host)
{
	return (const int32_t *)g->ints + (host - g->l.ids);
}

static struct nn_step upload(struct gen *g)
{
	struct layout *l = &g->l;
	size_t n = (size_t)(l->pages - l->ids) +
		   (size_t)l->nseq * (size_t)g->ntable;

	gpu_upload(g->g, g->ints, l->ids, n * sizeof *l->ids);
	gpu_upload(g->g, g->floats, l->temp, 4 * out_rows(g) * sizeof(float));
	return (struct nn_step){
		.ids = at_int(g, l->ids), .pos = at_int(g, l->pos),
		.slot = at_int(g, l->slot), .first = at_int(g, l->first),
		.len = at_int(g, l->len), .pages = at_int(g, l->pages),
		.t = l->t, .nseq = l->nseq, .stride = g->ntable,
		.max_rows = l->max_rows, .max_len = l->max_len,
	};
}

static void run_layers(struct gen *g, const struct nn_step *s)
{
	const struct nn_config *c = &g->m.cfg;
	size_t layer = (size_t)pages_for((int)g->o.cache) * GPU_PAGE *
		       (size_t)(c->kv_heads * c->head_dim) *
		       gpu_type_size(gpu_act(g->g));

	nn_embed(&g->m, s, g->x);
	for (int i = 0; i < c->layers; i++) {
		g->a.k = (char *)g->keys + (size_t)i * layer;
		g->a.v = (char *)g->values + (size_t)i * layer;
		nn_attention(&g->m, i, s, g->x, g->x, &g->a);
		nn_mlp(&g->m, i, s->t, g->x, g->x, &g->a);
	}
}

/* Logits of the rows of x that `index` names. */
static void run_head(struct gen *g, const void *index, int rows)
{
	gpu_do_rows(g->g, &(struct gpu_rows){
		.out = g->out_x, .x = g->x, .index = index, .m = rows,
		.c = g->m.cfg.hidden });
	nn_norm(&g->m, g->m.w.norm, rows, g->out_x, g->out_n);
	nn_head(&g->m, rows, g->out_n, g->logits);
}

static void run_sample(struct gen *g)
{
	size_t n = out_rows(g);
	const float *f = g->floats;

	gpu_do_sample(g->g, &(struct gpu_sample){
		.id = g->out_id, .logprob = g->out_lp, .logits = g->logits,
		.temp = f, .top_p = f + n, .u = f + 2 * n, .top_k = f + 3 * n,
		.m = g->l.nout, .v = g->m.cfg.vocab });
}

/* Scores the next n tokens after rows `t` on, which are at positions `pos`
 * on; 0 or -1. */
static int score_some(struct gen *g, struct gen_req *r, int t, int pos, int n,
		      struct err *e)
{
	struct layout *l = &g->l;
	size_t bytes = (size_t)n * sizeof *l->score;
	void *score = (void *)at_int(g, l->score);
	void *target = (void *)at_int(g, l->target);

	for (int i = 0; i < n; i++) {
		l->score[i] = t + i;
		l->target[i] = r->prompt[pos + i + 1];
	}
	gpu_upload(g->g, score, l->score, bytes);
	gpu_upload(g->g, target, l->target, bytes);
	run_head(g, score, n);
	gpu_do_pick(g->g, &(struct gpu_pick){
		.logprob = g->out_lp, .lse = g->out_lse,
		.logits = g->logits, .target = target, .m = n,
		.v = g->m.cfg.vocab,
		.inv_temp = r->temp > 0 ? 1 / r->temp : 1 });
	return gpu_download(g->g, r->prompt_logprob + pos + 1, g->out_lp,
			    bytes, e);
}

/* Log-probabilities of prompts' tokens that this step's rows predict. */
static int score(struct gen *g, struct err *e)
{
	struct layout *l = &g->l;

	for (int i = 0; i < l->nseq; i++) {
		const struct slot *s = &g->slot[l->seq_slot[i]];
		struct gen_req *r = s->job->r;
		int t = l->first[i], pos = s->computed - (l->first[i + 1] - t);
		int end = s->computed < r->nprompt ? s->computed :
			  r->nprompt - 1, n;

		if (!r->prompt_logprob)
			continue;
		for (; pos < end; pos += n, t += n) {
			n = (int)out_rows(g);
			n = end - pos < n ? end - pos : n;
			if (score_some(g, r, t, pos, n, e))
				return -1;
		}
	}
	return 0;
}

static int is_eos(const struct gen *g, int32_t id)
{
	for (int i = 0; i < g->m.cfg.neos; i++)
		if (g->m.cfg.eos[i] == id)
			return 1;
	return 0;
}

/* Appends a drawn token; 1 when the sequence has ended. */
static int take_token(struct gen *g, struct slot *s, int32_t id, float lp,
		      enum gen_end *end)
{
	struct gen_req *r = s->job->r;

	*end = GEN_STOP;
	r->id[r->n] = id;
	r->logprob[r->n++] = lp;
	g->stats.new_tokens++;
	if (!r->ignore_eos && is_eos(g, id))
		return 1;
	if (r->more && !r->more(r->more_ctx, id, lp))
		return 1;
	*end = GEN_LENGTH;
	if (r->n == r->max_new)
		return 1;
	s->token[s->ntoken++] = id;
	return 0;
}

/* What was drawn, to the host. */
static int fetch(struct gen *g, struct err *e)
{
	size_t bytes = (size_t)g->l.nout * 4;

	return gpu_download(g->g, g->l.drawn, g->out_id, bytes, e) ||
	       gpu_download(g->g, g->l.drawn_lp, g->out_lp, bytes, e) ? -1 :
	       0;
}

static void hand_out(struct gen *g)
{
	struct layout *l = &g->l;
	enum gen_end end;

	pthread_mutex_lock(&g->lock);
	for (int i = 0; i < l->nout; i++) {
		struct slot *s = &g->slot[l->out_slot[i]];

		if (s->job->r->max_new == 0)
			finish(g, s, GEN_LENGTH);
		else if (take_token(g, s, l->drawn[i], l->drawn_lp[i], &end))
			finish(g, s, end);
	}
	pthread_mutex_unlock(&g->lock);
}

static void compute(struct gen *g, const struct nn_step *s)
{
	run_layers(g, s);
	if (g->l.nout) {
		run_head(g, at_int(g, g->l.index), g->l.nout);
		run_sample(g);
	}
}

/* A step that decodes is the same for any tokens: the third one with as many
 * sequences is recorded, and replayed from then on. */
static void decode(struct gen *g, const struct nn_step *s)
{
	struct gpu_tape **tape = &g->tape[s->nseq];

	if (!*tape && ++g->decoded[s->nseq] > 2 && gpu_record(g->g)) {
		compute(g, s);
		*tape = gpu_record_end(g->g);
	} else if (!*tape) {
		compute(g, s);
		return;
	}
	if (*tape)
		gpu_replay(g->g, *tape);
}

/* Lays out and runs one step. */
static int step(struct gen *g, struct err *e)
{
	struct nn_step s;

	lay_out(g);
	s = upload(g);
	if (s.max_rows == 1 && s.t == g->l.nout)
		decode(g, &s);
	else
		compute(g, &s);
	/* Scores use the same buffers, so what was drawn leaves first. */
	if (fetch(g, e) || score(g, e))
		return -1;
	hand_out(g);
	return 0;
}

static void fail_all(struct gen *g, const struct err *why)
{
	for (int i = 0; i < g->o.slots; i++) {
		struct slot *s = &g->slot[i];

		if (!s->job)
			continue;
		s->job->failed = 1;
		s->job->err = *why;
		s->computed = 0;	/* nothing to share */
		finish(g, s, GEN_FAILED);
	}
	pages_forget(g->pages);
}

static int any_job(const struct gen *g)
{
	for (int i = 0; i < g->o.slots; i++)
		if (g->slot[i].job)
			return 1;
	return 0;
}

static void *serve(void *arg)
{
	struct gen *g = arg;
	struct err e = ERR_INIT;
	int64_t start;
	int rc;

	pthread_mutex_lock(&g->lock);
	for (;;) {
		while (!g->closing && !g->head && !any_job(g))
			pthread_cond_wait(&g->more, &g->lock);
		if (g->closing)
			break;
		admit(g);
		pthread_mutex_unlock(&g->lock);
		start = now_ns();
		rc = step(g, &e);
		pthread_mutex_lock(&g->lock);
		g->stats.steps++;
		g->stats.busy_s += (double)(now_ns() - start) * 1e-9;
		if (rc)
			fail_all(g, &e);
	}
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

static int start(struct gen *g, struct err *e)
{
	g->tail = &g->head;
	if (pthread_create(&g->thread, NULL, serve, g))
		return err_set(e, CA_SOFTWARE, "cannot start a thread");
	g->started = 1;
	return 0;
}

struct gen *gen_open(const struct gen_opts *o, struct str *table,
		     struct err *e)
{
	struct gen *g = calloc(1, sizeof *g);

	if (!g) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	g->o = *o;
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->more, NULL);
	if (prepare(g, table, e) || start(g, e)) {
		gen_close(g);
		return NULL;
	}
	return g;
}

void gen_close(struct gen *g)
{
	if (!g)
		return;
	if (g->started) {
		pthread_mutex_lock(&g->lock);
		g->closing = 1;
		pthread_cond_signal(&g->more);
		pthread_mutex_unlock(&g->lock);
		pthread_join(g->thread, NULL);
	}
	for (int i = 0; g->slot && i < g->o.slots; i++) {
		free(g->slot[i].token);
		free(g->slot[i].table);
	}
	free(g->slot);
	free(g->l.ids);
	free(g->l.out_slot);
	free(g->l.seq_slot);
	free(g->l.drawn);
	free(g->l.drawn_lp);
	for (int i = 0; g->tape && i <= g->o.slots; i++)
		gpu_tape_free(g->g, g->tape[i]);
	free(g->tape);
	free(g->decoded);
	free(g->l.temp);
	pages_free(g->pages);
	nn_model_release(&g->m);
	if (g->g)
		gpu_plan_release(g->g, &g->plan);
	gpu_close(g->g);
	pthread_cond_destroy(&g->more);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static int check(const struct gen *g, const struct gen_req *r, struct err *e)
{
	if (r->nprompt < 1)
		return err_set(e, CA_DATAERR, "prompt is empty");
	if (r->max_new < 0 || r->nprompt > g->o.ctx ||
	    r->max_new > g->o.ctx - r->nprompt)
		return err_set(e, CA_DATAERR, "%d tokens of prompt and %d new "
			       "ones are more than the context of %d",
			       r->nprompt, r->max_new, g->o.ctx);
	for (int i = 0; i < r->nprompt; i++)
		if (r->prompt[i] < 0 || r->prompt[i] >= g->m.cfg.vocab)
			return err_set(e, CA_DATAERR, "token %d is not in the "
				       "vocabulary of %d", r->prompt[i],
				       g->m.cfg.vocab);
	if (!(r->temp >= 0 && r->temp < 1e6f) ||
	    !(r->top_p > 0 && r->top_p <= 1) || r->top_k < 0)
		return err_set(e, CA_DATAERR, "temperature, top_p or top_k is "
			       "out of range");
	return 0;
}

int gen_run(struct gen *g, struct gen_req *r, struct err *e)
{
	struct job j = { .r = r };

	r->n = 0;
	r->end = GEN_FAILED;
	if (check(g, r, e))
		return -1;
	pthread_cond_init(&j.wake, NULL);
	pthread_mutex_lock(&g->lock);
	*g->tail = &j;
	g->tail = &j.next;
	pthread_cond_signal(&g->more);
	while (!j.done)
		pthread_cond_wait(&j.wake, &g->lock);
	pthread_mutex_unlock(&g->lock);
	pthread_cond_destroy(&j.wake);
	if (j.failed)
		return err_set(e, j.err.code, "%s", j.err.msg);
	return 0;
}
