/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's thread: takes requests and orders, lets steps be laid out and
 * computed, hands out tokens.
 */
#include "nn/gen.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/rand.h"
#include "gpu/turn.h"
#include "nn/order.h"
#include "nn/sched.h"

#define TOP_ROWS 64		/* whose likeliest tokens are found in a step */

struct gen_job {		/* a request that waits or runs */
	struct sched_seq seq;
	struct gen_req *r;
	struct rng rng;
	int cancelled;
	int refused;			/* by its mask, with r->err */
	struct gen_job *next;		/* that is new, or has ended */
	struct gen_job *before, *after;	/* of those that the scheduler has */
};

struct gen {
	struct engine *engine;
	struct sched *sched;
	struct sched_part *part;	/* a step, for the scheduler */
	struct engine_part *work;	/* and for the engine */
	struct engine_top *top;
	struct gpu_turn turn;
	pthread_t thread;
	int started;
	void (*stepped)(void *ctx, int asleep);	/* NULL: nobody asks */
	void *stepped_ctx;
	/* What the last step brought, while it is not said: the thread's. */
	struct gen_job *ended;
	int news;
	struct gen_folder folder;
	/* Of what follows. */
	pthread_mutex_t lock;
	pthread_cond_t more, obeyed;
	struct gen_job *fresh, **tail;	/* not seen by the thread yet */
	struct gen_job *jobs;
	struct order *order;
	int closing, hurry, cancels;
	struct gen_stats stats;
};

const struct nn_config *gen_config(const struct gen *g)
{
	return engine_config(g->engine);
}

int gen_ctx(const struct gen *g)
{
	return engine_opts(g->engine)->ctx;
}

int gen_slots(const struct gen *g)
{
	return engine_opts(g->engine)->slots;
}

void gen_on_step(struct gen *g, void (*stepped)(void *ctx, int asleep),
		 void *ctx)
{
	g->stepped = stepped;
	g->stepped_ctx = ctx;
}

void gen_get_stats(struct gen *g, struct gen_stats *s)
{
	pthread_mutex_lock(&g->lock);
	*s = g->stats;
	for (struct gen_job *j = g->fresh; j; j = j->next)
		s->waiting++;
	pthread_mutex_unlock(&g->lock);
}

/* The scheduler's counts, for others to see.  With the lock. */
static void note_counts(struct gen *g)
{
	struct sched_counts c;

	sched_count(g->sched, &c);
	g->stats.running = c.running;
	g->stats.waiting = c.waiting;
	g->stats.free_pages = c.free_pages;
	g->stats.put_off = c.put_off;
	g->stats.prompt_tokens = c.prompt;
	g->stats.shared_tokens = c.shared;
}

static int in_hurry(struct gen *g)
{
	int hurry;

	pthread_mutex_lock(&g->lock);
	hurry = g->closing || g->hurry;
	pthread_mutex_unlock(&g->lock);
	return hurry;
}

void gen_hurry(struct gen *g)
{
	pthread_mutex_lock(&g->lock);
	g->hurry = 1;
	pthread_mutex_unlock(&g->lock);
}

/* As long as it takes; -1: there is no time. */
static int wait_for_device(struct gen *g)
{
	while (gpu_turn_enter(&g->turn))
		if (in_hurry(g))
			return -1;
	return 0;
}

/* To be said of what has ended. */
static void has_ended(struct gen *g, struct gen_job *j)
{
	j->r->job = NULL;
	j->next = g->ended;
	g->ended = j;
}

/* Takes j out of the scheduler's hands.  With the lock. */
static void finish(struct gen *g, struct gen_job *j, enum gen_end end)
{
	sched_remove(g->sched, &j->seq);
	*(j->before ? &j->before->after : &g->jobs) = j->after;
	if (j->after)
		j->after->before = j->before;
	j->r->end = end;
	j->r->shared = j->seq.shared;
	g->stats.requests++;
	g->stats.cancelled += end == GEN_CANCELLED;
	g->stats.failed += end == GEN_FAILED;
	has_ended(g, j);
}

static void free_job(struct gen_job *j)
{
	free(j->seq.token);
	free(j);
}

/* Tells those who wait for tokens and ends: the tokens first, since a request
 * that has ended may be freed.  Without the lock. */
static void say(void *arg)
{
	struct gen *g = arg;
	struct gen_job *j;

	if (g->news && g->stepped)
		g->stepped(g->stepped_ctx, g->stats.asleep);
	g->news = 0;
	while ((j = g->ended)) {
		struct gen_req *r = j->r;

		g->ended = j->next;
		free_job(j);
		r->ended(r->ctx);
	}
}

static void fail(struct gen *g, struct gen_job *j, const struct err *why)
{
	j->r->err = *why;
	finish(g, j, GEN_FAILED);
}

/* No weights that can be used compute that. */
static void senseless(struct gen *g, struct gen_job *j)
{
	struct err e = ERR_INIT;

	err_set(&e, CA_DATAERR, "the model's logits are not finite: its "
		"weights are damaged, or training diverged");
	fail(g, j, &e);
}

/* Hands new requests to the scheduler, drops those nobody wants any more.
 * With the lock. */
static void take_requests(struct gen *g)
{
	static const struct err none = { CA_SOFTWARE, "no memory" };
	struct gen_job *j, *next;

	while ((j = g->fresh)) {
		g->fresh = j->next;
		if (sched_add(g->sched, &j->seq)) {
			j->r->err = none;
			j->r->end = GEN_FAILED;
			has_ended(g, j);
			continue;
		}
		j->before = NULL;
		j->after = g->jobs;
		if (g->jobs)
			g->jobs->before = j;
		g->jobs = j;
	}
	g->tail = &g->fresh;
	for (j = g->cancels ? g->jobs : NULL; j; j = next) {
		next = j->after;
		if (j->cancelled)
			finish(g, j, GEN_CANCELLED);
	}
	g->cancels = 0;
	note_counts(g);
}

static struct gen_job *job_of(const struct sched_part *p)
{
	return (struct gen_job *)p->seq;	/* its first member */
}

static void mask_job(void *ctx, float *logits)
{
	struct gen_job *j = ctx;

	if (j->r->mask(j->r->mask_ctx, logits, &j->r->err))
		j->refused = 1;
}

static void ready_job(void *ctx)
{
	const struct gen_job *j = ctx;

	j->r->ready(j->r->mask_ctx);
}

/* The scheduler's parts as the engine wants them. */
static void fill_parts(struct gen *g, int n)
{
	for (int i = 0; i < n; i++) {
		const struct sched_part *p = &g->part[i];
		struct gen_job *j = job_of(p);
		const struct gen_req *r = j->r;

		g->work[i] = (struct engine_part){
			.token = p->seq->token, .pages = p->seq->pages,
			.from = p->from, .rows = p->rows, .draws = p->draws,
			.temp = r->temp, .top_p = r->top_p, .top_k = r->top_k,
			.min_p = r->min_p,
			/* Once: what is computed again after its first token
			 * may be read by others by then. */
			.score = r->n ? NULL : r->prompt_logprob,
			.scored = r->nprompt,
			.score_top = r->n ? NULL : r->prompt_top,
			.score_ntop = r->ntop,
		};
		if (!p->draws)
			continue;
		g->work[i].u = (float)(rng_u64(&j->rng) >> 40) * 0x1p-24f;
		g->work[i].ntop = r->top ? r->ntop : 0;
		g->work[i].top = g->top + i * ENGINE_TOP;
		g->work[i].mask = r->max_new && r->mask ? mask_job : NULL;
		g->work[i].ready = r->ready ? ready_job : NULL;
		g->work[i].mask_ctx = j;
	}
}

static int is_eos(const struct gen *g, int32_t id)
{
	const struct nn_config *c = gen_config(g);

	for (int i = 0; i < c->neos; i++)
		if (c->eos[i] == id)
			return 1;
	return 0;
}

/* Appends a drawn token; 1 when the sequence has ended. */
static int take_token(struct gen *g, struct gen_job *j,
		      const struct engine_part *p, enum gen_end *end)
{
	struct gen_req *r = j->r;

	*end = GEN_LENGTH;
	r->weights[1] = g->stats.weights;
	if (!r->n)
		r->weights[0] = r->weights[1];
	if (r->max_new == 0)
		return 1;
	r->id[r->n] = p->id;
	r->logprob[r->n] = p->logprob;
	if (p->ntop)
		memcpy(r->top + (size_t)r->n * (size_t)r->ntop, p->top,
		       (size_t)r->ntop * sizeof *r->top);
	r->n++;
	j->seq.most = 0;		/* its prompt is scored by now */
	g->stats.new_tokens++;
	*end = GEN_STOP;
	if (!r->ignore_eos && is_eos(g, p->id)) {
		if (r->more)
			r->more(r->ctx, p->id, p->logprob);
		return 1;
	}
	if (r->more && !r->more(r->ctx, p->id, p->logprob))
		return 1;
	*end = GEN_LENGTH;
	if (r->n == r->max_new)
		return 1;
	j->seq.token[j->seq.ntoken++] = p->id;
	return 0;
}

/* Lays out and computes one step, and says meanwhile what the last one brought;
 * the device is ours.  With the lock, but for that. */
static void step(struct gen *g)
{
	struct err e = ERR_INIT;
	int64_t start = now_ns();
	enum gen_end end;
	int n, rc;

	n = sched_step(g->sched, g->part);
	fill_parts(g, n);
	note_counts(g);
	pthread_mutex_unlock(&g->lock);
	rc = n ? engine_step(g->engine, g->work, n, &e) : 0;
	if (!n)
		say(g);
	pthread_mutex_lock(&g->lock);
	if (!rc)
		sched_done(g->sched, g->part, n);
	for (int i = 0; i < n; i++) {
		struct gen_job *j = job_of(&g->part[i]);

		if (rc)
			fail(g, j, &e);
		else if (j->refused)
			finish(g, j, GEN_FAILED);
		else if (g->work[i].draws && isnan(g->work[i].logprob))
			senseless(g, j);
		else if (g->work[i].draws &&
			 take_token(g, j, &g->work[i], &end))
			finish(g, j, end);
	}
	if (rc)
		sched_forget(g->sched);
	g->news = 1;
	g->stats.steps++;
	g->stats.busy_s += (double)(now_ns() - start) * 1e-9;
}

/* With the lock, which is not held meanwhile. */
static void obey(struct gen *g)
{
	struct order *o = g->order;
	int64_t start = now_ns();
	int failed = 0;

	pthread_mutex_unlock(&g->lock);
	if (o->kind == ORDER_SLEEP) {
		sched_forget(g->sched);
		engine_sleep(g->engine);
		gpu_turn_leave(&g->turn);
	} else if (wait_for_device(g)) {
		o->rc = err_set(&o->err, CA_UNAVAILABLE, "shutting down");
	} else if (o->kind == ORDER_LOAD) {
		sched_forget(g->sched);
		o->rc = engine_load(g->engine, o->st, &o->err);
		/* It may have some of both: none is served. */
		failed = o->rc != 0;
		if (failed)
			engine_sleep(g->engine);
	} else {
		o->rc = engine_wake(g->engine, o->st, &o->err);
	}
	pthread_mutex_lock(&g->lock);
	if (!o->rc && o->kind != ORDER_LOAD)
		g->stats.asleep = o->kind == ORDER_SLEEP;
	if (failed)
		g->stats.asleep = 1;
	if (!o->rc && o->kind != ORDER_SLEEP)
		g->stats.weights = o->weights;
	if (!o->rc && o->kind == ORDER_LOAD)
		g->stats.reload_s = (double)(now_ns() - start) * 1e-9;
	note_counts(g);
	g->news = 1;
	say(g);
	o->done = 1;
	g->order = NULL;
	pthread_cond_broadcast(&g->obeyed);
}

static int may_step(const struct gen *g)
{
	return g->jobs && !g->stats.asleep;
}

/* Whether a step follows at once, in which there is time to say something. */
static int steps_on(const struct gen *g)
{
	return !g->order && may_step(g) && gpu_turn_goes_on(&g->turn);
}

static void *serve(void *arg)
{
	struct gen *g = arg;
	int rc;

	prctl(PR_SET_NAME, "engine");
	pthread_mutex_lock(&g->lock);
	while (!g->closing) {
		take_requests(g);
		if ((g->news || g->ended) && !steps_on(g)) {
			pthread_mutex_unlock(&g->lock);
			say(g);
			pthread_mutex_lock(&g->lock);
		} else if (g->order) {
			obey(g);
		} else if (may_step(g)) {
			pthread_mutex_unlock(&g->lock);
			rc = gpu_turn_enter(&g->turn);
			pthread_mutex_lock(&g->lock);
			if (!rc)
				step(g);
		} else {
			gpu_turn_leave(&g->turn);
			pthread_cond_wait(&g->more, &g->lock);
		}
	}
	pthread_mutex_unlock(&g->lock);
	say(g);
	return NULL;
}

static int prepare(struct gen *g, const struct engine_opts *o,
		   struct str *table, struct err *e)
{
	const struct engine_opts *p;
	size_t slots;

	if (strlen(o->dir) >= sizeof g->folder.dir)
		return err_set(e, CA_USAGE, "'%s' is too long", o->dir);
	strcpy(g->folder.dir, o->dir);
	g->engine = engine_open(o, table, e);
	if (!g->engine ||
	    gpu_turn_open(&g->turn, engine_gpu(g->engine), e))
		return -1;
	engine_meanwhile(g->engine, say, g);
	p = engine_opts(g->engine);
	slots = (size_t)p->slots;
	g->stats.weights.version = 1;
	g->stats.weights.sum = engine_sum(g->engine);
	g->stats.pages = g->stats.free_pages = pages_for((int)p->cache);
	g->sched = sched_new(&(struct sched_opts){
		.slots = p->slots, .ctx = p->ctx, .pages = g->stats.pages,
		.chunk = engine_chunk(g->engine) }, e);
	if (!g->sched)
		return -1;
	g->part = calloc(slots, sizeof *g->part);
	g->work = calloc(slots, sizeof *g->work);
	g->top = calloc(slots * ENGINE_TOP, sizeof *g->top);
	if (!g->part || !g->work || !g->top)
		return err_set(e, CA_SOFTWARE, "no memory");
	g->tail = &g->fresh;
	if (pthread_create(&g->thread, NULL, serve, g))
		return err_set(e, CA_SOFTWARE, "cannot start a thread");
	g->started = 1;
	return 0;
}

struct gen *gen_open(const struct engine_opts *o, struct str *table,
		     struct err *e)
{
	struct gen *g = calloc(1, sizeof *g);

	if (!g) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	pthread_mutex_init(&g->folder.ordering, NULL);
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->more, NULL);
	pthread_cond_init(&g->obeyed, NULL);
	if (prepare(g, o, table, e)) {
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
	gpu_turn_close(&g->turn);
	sched_free(g->sched);
	engine_close(g->engine);
	free(g->part);
	free(g->work);
	free(g->top);
	pthread_cond_destroy(&g->obeyed);
	pthread_cond_destroy(&g->more);
	pthread_mutex_destroy(&g->lock);
	pthread_mutex_destroy(&g->folder.ordering);
	free(g);
}

int gen_check(const struct gen *g, const struct gen_req *r, struct err *e)
{
	int ctx = gen_ctx(g), vocab = gen_config(g)->vocab;
	uint32_t most = 0;

	if (r->nprompt < 1)
		return err_set(e, CA_DATAERR, "prompt is empty");
	if (r->max_new < 0 || r->nprompt > ctx ||
	    r->max_new > ctx - r->nprompt)
		return err_set(e, CA_DATAERR, "%d tokens of prompt and %d new "
			       "ones are more than the context of %d",
			       r->nprompt, r->max_new, ctx);
	for (int i = 0; i < r->nprompt; i++)
		most = (uint32_t)r->prompt[i] > most ? (uint32_t)r->prompt[i] :
		       most;
	if (most >= (uint32_t)vocab)
		return err_set(e, CA_DATAERR, "token %d is not in the "
			       "vocabulary of %d", (int32_t)most, vocab);
	/* Logits over a temperature of next to nothing leave a float. */
	if (r->temp > 0 && r->temp < GEN_COOLEST)
		return err_set(e, CA_DATAERR, "temperature is 0, or at least "
			       "%g", (double)GEN_COOLEST);
	if (!(r->temp >= 0 && r->temp < 1e6f) || r->top_k < 0 ||
	    !(r->top_p > 0 && r->top_p <= 1) ||
	    !(r->min_p >= 0 && r->min_p <= 1))
		return err_set(e, CA_DATAERR, "temperature, top_p, top_k or "
			       "min_p is out of range");
	if (r->ntop < 0 || r->ntop > ENGINE_TOP || r->ntop > vocab)
		return err_set(e, CA_DATAERR, "%d alternatives are too many",
			       r->ntop);
	return 0;
}

int gen_submit(struct gen *g, struct gen_req *r, struct err *e)
{
	size_t most = (size_t)r->nprompt + (size_t)r->max_new;
	struct gen_job *j;

	r->n = r->shared = 0;
	r->weights[0] = r->weights[1] = (struct gen_weights){ 0, 0 };
	r->end = GEN_FAILED;
	if (gen_check(g, r, e))
		return -1;
	j = calloc(1, sizeof *j);
	if (j)
		j->seq.token = malloc(most * sizeof *j->seq.token);
	if (!j || !j->seq.token) {
		free(j);
		return err_set(e, CA_SOFTWARE, "no memory");
	}
	memcpy(j->seq.token, r->prompt,
	       (size_t)r->nprompt * sizeof *r->prompt);
	j->seq.ntoken = r->nprompt;
	j->seq.party = r->party;
	j->seq.whole = r->prompt_logprob != NULL;
	j->seq.most = r->prompt_top ? TOP_ROWS : 0;
	j->r = r;
	rng_seeded(&j->rng, r->seed);
	pthread_mutex_lock(&g->lock);
	r->job = j;
	*g->tail = j;
	g->tail = &j->next;
	pthread_mutex_unlock(&g->lock);
	pthread_cond_signal(&g->more);
	return 0;
}

void gen_cancel(struct gen *g, struct gen_req *r)
{
	pthread_mutex_lock(&g->lock);
	if (r->job) {
		r->job->cancelled = 1;
		g->cancels = 1;
		pthread_cond_signal(&g->more);
	}
	pthread_mutex_unlock(&g->lock);
}

/* For gen_run: the caller's own callbacks go on. */
struct waiter {
	int (*more)(void *ctx, int32_t token, float logprob);
	void *ctx;
	int done;
	pthread_mutex_t lock;
	pthread_cond_t wake;
};

static int pass_on(void *ctx, int32_t token, float logprob)
{
	struct waiter *w = ctx;

	return !w->more || w->more(w->ctx, token, logprob);
}

static void wake_up(void *ctx)
{
	struct waiter *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->done = 1;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

int gen_run(struct gen *g, struct gen_req *r, struct err *e)
{
	struct waiter w = { .more = r->more, .ctx = r->ctx };
	int rc;

	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.wake, NULL);
	r->more = pass_on;
	r->ended = wake_up;
	r->ctx = &w;
	rc = gen_submit(g, r, e);
	pthread_mutex_lock(&w.lock);
	while (!rc && !w.done)
		pthread_cond_wait(&w.wake, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.wake);
	pthread_mutex_destroy(&w.lock);
	r->more = w.more;
	r->ctx = w.ctx;
	if (!rc && r->end == GEN_FAILED)
		return err_set(e, r->err.code, "%s", r->err.msg);
	return rc;
}

void gen_give(struct gen *g, struct order *o)
{
	pthread_mutex_lock(&g->lock);
	g->order = o;
	pthread_cond_signal(&g->more);
	pthread_mutex_unlock(&g->lock);
}

int gen_await(struct gen *g, struct order *o, struct err *e)
{
	pthread_mutex_lock(&g->lock);
	while (!o->done)
		pthread_cond_wait(&g->obeyed, &g->lock);
	pthread_mutex_unlock(&g->lock);
	return o->rc ? err_set(e, o->err.code, "%s", o->err.msg) : 0;
}

void gen_note(struct gen *g, struct order *o)
{
	pthread_mutex_lock(&g->lock);
	g->stats.weights = o->weights;
	pthread_mutex_unlock(&g->lock);
	o->done = 1;
}

struct gen_folder *gen_folder(struct gen *g)
{
	return &g->folder;
}

struct engine *gen_engine(struct gen *g)
{
	return g->engine;
}
