/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "serve/query.h"

static void *work(void *arg)
{
	struct lane *l = arg;
	struct core *c = l->c;
	struct task *t;

	prctl(PR_SET_NAME, l == &c->prompts ? "prompts" : "orders");
	pthread_mutex_lock(&c->lock);
	for (;;) {
		while (!l->tasks && !c->closing)
			pthread_cond_wait(&l->work, &c->lock);
		t = l->tasks;
		if (!t)
			break;
		l->tasks = t->next;
		if (!l->tasks)
			l->last = &l->tasks;
		pthread_mutex_unlock(&c->lock);
		t->run(t);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

void core_do(struct core *c, struct lane *l, struct task *t)
{
	t->next = NULL;
	pthread_mutex_lock(&c->lock);
	*l->last = t;
	l->last = &t->next;
	pthread_mutex_unlock(&c->lock);
	/* Whoever wakes finds the lock free. */
	pthread_cond_signal(&l->work);
}

static void init_lane(struct core *c, struct lane *l)
{
	l->c = c;
	l->last = &l->tasks;
	pthread_cond_init(&l->work, NULL);
}

static int start_lane(struct lane *l, int threads, struct err *e)
{
	for (; l->threads < threads; l->threads++)
		if (pthread_create(&l->thread[l->threads], NULL, work, l))
			return err_set(e, CA_SOFTWARE, "cannot start a "
				       "thread");
	return 0;
}

static void end_lane(struct lane *l)
{
	while (l->threads > 0)
		pthread_join(l->thread[--l->threads], NULL);
	pthread_cond_destroy(&l->work);
}

/* Takes all that are ready, with their news: a list by told_next. */
static struct query *take_ready(struct teller *t)
{
	struct query *first = t->ready;

	for (struct query *q = first; q; q = q->ready_next) {
		q->told_next = q->ready_next;
		query_take_news(q);
	}
	t->ready = NULL;
	t->last = &t->ready;
	return first;
}

static void *tell(void *arg)
{
	struct teller *t = arg;
	struct core *c = t->c;
	struct query *q, *next;

	prctl(PR_SET_NAME, "teller");
	pthread_mutex_lock(&c->lock);
	for (;;) {
		while (!t->ready && !c->closing)
			pthread_cond_wait(&t->news, &c->lock);
		q = take_ready(t);
		if (!q)
			break;
		pthread_mutex_unlock(&c->lock);
		for (; q; q = next) {
			next = q->told_next;
			query_tell(q);
		}
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

int core_threads(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	return cores < 8 ? 1 : cores < 16 ? 4 : CORE_TELLERS;
}

static void init_tellers(struct core *c)
{
	/* Two at least: what many do is tried everywhere. */
	c->ntellers = core_threads() > 2 ? core_threads() : 2;
	for (int i = 0; i < c->ntellers; i++) {
		c->teller[i].c = c;
		c->teller[i].last = &c->teller[i].ready;
		pthread_cond_init(&c->teller[i].news, NULL);
	}
}

static int start(struct core *c, struct err *e)
{
	if (start_lane(&c->prompts, 2, e) || start_lane(&c->orders, 1, e))
		return -1;
	for (; c->telling < c->ntellers; c->telling++)
		if (pthread_create(&c->teller[c->telling].thread, NULL, tell,
				   &c->teller[c->telling]))
			return err_set(e, CA_SOFTWARE, "cannot start a "
				       "thread");
	return 0;
}

struct core *core_open(const struct core_opts *o, struct gen *const *g, int n,
		       struct prompt *p, struct err *e)
{
	struct core *c = calloc(1, sizeof *c);

	if (!c) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	c->o = *o;
	memcpy(c->gen, g, (size_t)n * sizeof *g);
	c->ngens = n;
	c->prompt = p;
	c->mean_s = 1;
	c->started = (int64_t)time(NULL);
	rng_fresh(&c->seeds);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->wording, NULL);
	init_lane(c, &c->prompts);
	init_lane(c, &c->orders);
	init_tellers(c);
	for (int i = 0; i < n; i++) {
		c->burst[i].c = c;
		gen_on_step(g[i], query_burst, &c->burst[i]);
	}
	c->recall = recall_new();
	if (!c->recall)
		err_set(e, CA_SOFTWARE, "no memory");
	else if (!start(c, e))
		return c;
	c->ngens = 0;
	c->prompt = NULL;
	core_close(c);
	return NULL;
}

void core_close(struct core *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = 1;
	pthread_cond_broadcast(&c->prompts.work);
	pthread_cond_broadcast(&c->orders.work);
	for (int i = 0; i < c->ntellers; i++)
		pthread_cond_broadcast(&c->teller[i].news);
	pthread_mutex_unlock(&c->lock);
	end_lane(&c->prompts);
	end_lane(&c->orders);
	while (c->telling > 0)
		pthread_join(c->teller[--c->telling].thread, NULL);
	while (c->ngens > 0)
		gen_close(c->gen[--c->ngens]);
	prompt_close(c->prompt);
	recall_free(c->recall);
	words_free(c->words);
	for (int i = 0; i < c->ntellers; i++)
		pthread_cond_destroy(&c->teller[i].news);
	pthread_mutex_destroy(&c->wording);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void core_drain(struct core *c)
{
	pthread_mutex_lock(&c->lock);
	c->draining = 1;
	pthread_mutex_unlock(&c->lock);
}

int core_live(struct core *c)
{
	int n = 0;

	pthread_mutex_lock(&c->lock);
	for (const struct query *q = c->live; q; q = q->after)
		n++;
	pthread_mutex_unlock(&c->lock);
	return n;
}

void core_expire(struct core *c, int now)
{
	int64_t t = now_ns();

	for (int i = 0; now && i < c->ngens; i++)
		gen_hurry(c->gen[i]);
	pthread_mutex_lock(&c->lock);
	for (struct query *q = c->live; q; q = q->after)
		if (now || q->deadline < t) {
			q->expired = q->deadline < t ? 1 : 2;
			query_has_news(q);
		}
	pthread_mutex_unlock(&c->lock);
}

int core_slots(const struct core *c)
{
	return c->ngens * gen_slots(c->gen[0]);
}

void core_stats(struct core *c, struct gen_stats *s)
{
	struct gen_stats one;

	gen_get_stats(c->gen[0], s);
	for (int i = 1; i < c->ngens; i++) {
		gen_get_stats(c->gen[i], &one);
		s->prompt_tokens += one.prompt_tokens;
		s->shared_tokens += one.shared_tokens;
		s->new_tokens += one.new_tokens;
		s->steps += one.steps;
		s->put_off += one.put_off;
		s->requests += one.requests;
		s->cancelled += one.cancelled;
		s->failed += one.failed;
		s->busy_s += one.busy_s;
		s->running += one.running;
		s->waiting += one.waiting;
		s->asleep |= one.asleep;
		s->pages += one.pages;
		s->free_pages += one.free_pages;
		if (one.reload_s > s->reload_s)
			s->reload_s = one.reload_s;
	}
}

/* Whether replica a has less in its way than b. */
static int is_freer(const struct core *c, int a, int b)
{
	return c->asleep[a] != c->asleep[b] ? c->asleep[a] < c->asleep[b] :
	       c->load[a] < c->load[b];
}

int core_choose(const struct core *c, int home)
{
	int best = 0, more = gen_slots(c->gen[0]) / 4;

	for (int i = 1; i < c->ngens; i++)
		if (is_freer(c, i, best))
			best = i;
	return home >= 0 && c->asleep[home] <= c->asleep[best] &&
	       c->load[home] <= c->load[best] + more ? home : best;
}

const struct words *core_words(struct core *c)
{
	const struct nn_config *cfg = gen_config(c->gen[0]);
	const struct words *w;

	pthread_mutex_lock(&c->wording);
	if (!c->words)
		c->words = words_new(prompt_tok(c->prompt), cfg->eos,
				     cfg->neos);
	w = c->words;
	pthread_mutex_unlock(&c->wording);
	return w;
}

void core_count(struct core *c, int status)
{
	pthread_mutex_lock(&c->lock);
	c->answered[status / 100 % 6]++;
	c->refused += status == 429;
	pthread_mutex_unlock(&c->lock);
}
