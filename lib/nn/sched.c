/* SPDX-License-Identifier: Apache-2.0
 *
 * Two lists, both in the order of arrival.  The oldest that runs is never put
 * off for another, and the cache holds the longest sequence, so that every
 * sequence ends.
 */
#include "nn/sched.h"

#include <stdlib.h>
#include <string.h>

#define WORTH_WAITING 64	/* tokens that another is about to compute */
#define SHARES 4		/* of a step's room, for prompts */
#define BUCKETS 256

struct party {
	uint64_t id;
	uint64_t served;		/* tokens computed for it */
	int seqs, running;		/* all; of them those that run */
	struct party *next;		/* in its bucket */
};

struct list {
	struct sched_seq *first, *last;
	int n;
};

struct sched {
	struct sched_opts o;
	struct pages *pages;
	struct list waiting, running;
	struct party *party[BUCKETS];
	uint64_t orders, put_off, prompts, shared;
};

struct sched *sched_new(const struct sched_opts *o, struct err *e)
{
	struct sched *s = calloc(1, sizeof *s);

	if (s) {
		s->o = *o;
		s->pages = pages_new(o->pages);
	}
	if (s && s->pages)
		return s;
	sched_free(s);
	err_set(e, CA_SOFTWARE, "no memory");
	return NULL;
}

void sched_free(struct sched *s)
{
	if (!s)
		return;
	pages_free(s->pages);
	free(s);
}

static void unlink_seq(struct list *l, struct sched_seq *q)
{
	*(q->before ? &q->before->after : &l->first) = q->after;
	*(q->after ? &q->after->before : &l->last) = q->before;
	l->n--;
}

/* Puts q where its age belongs; it is looked for from the youngest on. */
static void link_seq(struct list *l, struct sched_seq *q)
{
	struct sched_seq *older = l->last;

	while (older && older->order > q->order)
		older = older->before;
	q->before = older;
	q->after = older ? older->after : l->first;
	*(older ? &older->after : &l->first) = q;
	*(q->after ? &q->after->before : &l->last) = q;
	l->n++;
}

/* Who comes new has got as much as the one with the least, lest it be served
 * alone until it has caught up. */
static uint64_t least_served(const struct sched *s)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < BUCKETS; i++)
		for (const struct party *p = s->party[i]; p; p = p->next)
			if (p->served < least)
				least = p->served;
	return least == UINT64_MAX ? 0 : least;
}

static struct party **party_at(struct sched *s, uint64_t id)
{
	struct party **p = &s->party[(id * 0x9e3779b97f4a7c15u) >> 56];

	while (*p && (*p)->id != id)
		p = &(*p)->next;
	return p;
}

static struct party *join(struct sched *s, uint64_t id)
{
	uint64_t served = least_served(s);
	struct party **p = party_at(s, id);

	if (!*p) {
		*p = calloc(1, sizeof **p);
		if (!*p)
			return NULL;
		(*p)->id = id;
		(*p)->served = served;
	}
	(*p)->seqs++;
	return *p;
}

static void leave(struct sched *s, struct party *of)
{
	struct party **p;

	if (--of->seqs)
		return;
	p = party_at(s, of->id);
	*p = of->next;
	free(of);
}

int sched_add(struct sched *s, struct sched_seq *q)
{
	q->of = join(s, q->party);
	if (!q->of)
		return -1;
	q->order = ++s->orders;
	q->running = q->computed = q->shared = q->put_off = q->npages = 0;
	q->twin = 0;
	q->same = 0;
	q->pages = NULL;
	link_seq(&s->waiting, q);
	return 0;
}

/* Gives its pages back. */
static void stop(struct sched *s, struct sched_seq *q)
{
	pages_drop(s->pages, q->pages, q->npages * GPU_PAGE);
	free(q->pages);
	q->pages = NULL;
	q->npages = q->computed = q->running = 0;
	q->of->running--;
	unlink_seq(&s->running, q);
}

static void put_off(struct sched *s, struct sched_seq *q)
{
	stop(s, q);
	q->put_off++;
	s->put_off++;
	link_seq(&s->waiting, q);
}

void sched_remove(struct sched *s, struct sched_seq *q)
{
	if (q->running)
		stop(s, q);
	else
		unlink_seq(&s->waiting, q);
	leave(s, q->of);
}

void sched_forget(struct sched *s)
{
	while (s->running.last)
		put_off(s, s->running.last);
	pages_forget(s->pages);
}

/* Whether q begins with the first n tokens of r.  It is asked at every step
 * while q waits, so how far they are the same, which stays true, is found once:
 * a step costs the same for each that waits, however long what they share. */
static int begins_with(struct sched_seq *q, const struct sched_seq *r, int n)
{
	if (q->twin == r->order && q->same >= n)
		return 1;
	if (memcmp(r->token, q->token, (size_t)n * sizeof *r->token))
		return 0;
	if (q->twin != r->order)
		q->same = n;
	q->twin = r->order;
	while (q->same < q->ntoken && q->same < r->ntoken &&
	       q->token[q->same] == r->token[q->same])
		q->same++;
	return 1;
}

/* Whether one that runs is about to compute much of what q begins with. */
static int worth_waiting(const struct sched *s, struct sched_seq *q)
{
	for (struct sched_seq *r = s->running.first; r; r = r->after) {
		int n = r->computed + WORTH_WAITING;

		/* Its next ones first, to be quick. */
		if (r->ntoken - r->computed > 1 && n <= r->ntoken &&
		    n <= q->ntoken &&
		    !memcmp(r->token + r->computed, q->token + r->computed,
			    WORTH_WAITING * sizeof *r->token) &&
		    begins_with(q, r, n))
			return 1;
	}
	return 0;
}

static int before(const struct party *a, const struct party *b)
{
	return a->running != b->running ? a->running < b->running :
	       a->served < b->served;
}

/* The next to run: one that was put off, else of the party that has the least;
 * NULL when none should now. */
static struct sched_seq *choose(const struct sched *s)
{
	struct sched_seq *best = NULL;

	for (struct sched_seq *q = s->waiting.first; q; q = q->after) {
		if (q->put_off)
			return q;
		if ((!best || before(q->of, best->of)) &&
		    (q->whole || !worth_waiting(s, q)))
			best = q;
	}
	return best;
}

/* Gives q what it needs to run; -1: pages or memory are short. */
static int begin(struct sched *s, struct sched_seq *q)
{
	/* A page for each to grow, lest it be put off at once. */
	int spare = s->running.n;
	int there;

	if (pages_avail(s->pages) < spare)
		return -1;
	q->pages = calloc((size_t)pages_for(s->o.ctx), sizeof *q->pages);
	if (!q->pages)
		return -1;
	there = pages_take(s->pages, q->token, q->whole ? 0 : q->ntoken,
			   q->ntoken, q->pages, &q->at);
	if (there >= 0)
		q->npages = pages_for(q->ntoken);
	if (there < 0 || pages_avail(s->pages) < spare) {
		pages_drop(s->pages, q->pages, q->npages * GPU_PAGE);
		free(q->pages);
		q->pages = NULL;
		q->npages = 0;
		return -1;
	}
	q->computed = there;
	q->running = 1;
	q->of->running++;
	if (!q->put_off) {
		q->shared = there;
		s->shared += (uint64_t)there;
		s->prompts += (uint64_t)q->ntoken;
	}
	return 0;
}

static void admit(struct sched *s)
{
	while (s->running.n < s->o.slots) {
		struct sched_seq *q = choose(s);

		if (!q || begin(s, q))
			return;
		unlink_seq(&s->waiting, q);
		link_seq(&s->running, q);
	}
}

/* Pages for all tokens of q, taken from younger ones if need be; 0, or -1
 * when q itself was put off. */
static int make_room(struct sched *s, struct sched_seq *q)
{
	while (pages_for(q->ntoken) > q->npages) {
		if (!pages_more(s->pages, 1, q->pages + q->npages)) {
			q->npages++;
			continue;
		}
		if (s->running.last == q) {
			put_off(s, q);
			return -1;
		}
		put_off(s, s->running.last);
	}
	return 0;
}

static void add_part(struct sched_part *part, struct sched_seq *q, int rows)
{
	part->seq = q;
	part->from = q->computed;
	part->rows = rows;
	part->draws = q->computed + rows == q->ntoken;
}

static int rows_left(const struct sched_seq *q)
{
	return q->ntoken - q->computed;
}

/* What q would have of a step. */
static int wanted(const struct sched_seq *q)
{
	int left = rows_left(q);

	return q->most && q->most < left ? q->most : left;
}

/* The prompts that are not computed yet: the oldest, then by what they lack.
 * Returns the number of parts with them. */
static int sort_prompts(const struct sched *s, struct sched_part *part, int n)
{
	int first = -1, at;

	for (struct sched_seq *q = s->running.first; q; q = q->after) {
		if (rows_left(q) < 2)
			continue;
		first = first < 0 ? n : first;
		for (at = n++; at > first + 1 &&
		     rows_left(part[at - 1].seq) > rows_left(q); at--)
			part[at] = part[at - 1];
		part[at].seq = q;
	}
	return n;
}

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

/* Divides the step's room among prompts, in shares of a quarter at least; the
 * oldest has one for sure, and what others leave. */
static int add_prompts(struct sched *s, struct sched_part *part, int n)
{
	int all = sort_prompts(s, part, n), room = s->o.chunk, end = n + 1;
	int least = s->o.chunk / SHARES, own, share;

	if (all == n)
		return n;
	share = room / (all - n) > least ? room / (all - n) : least;
	own = smaller(share, wanted(part[n].seq));
	room -= own;
	for (; end < all && room; end++) {
		share = (room + all - end - 1) / (all - end);
		share = share < least ? least : share;
		share = smaller(room, smaller(share, wanted(part[end].seq)));
		room -= share;
		add_part(&part[end], part[end].seq, share);
	}
	add_part(&part[n], part[n].seq,
		 smaller(own + room, wanted(part[n].seq)));
	return end;
}

int sched_step(struct sched *s, struct sched_part *part)
{
	struct sched_seq *next;
	int n = 0;

	for (struct sched_seq *q = s->running.first; q; q = next) {
		if (!make_room(s, q))
			next = q->after;
		else
			next = NULL;	/* it was the youngest */
	}
	admit(s);
	for (struct sched_seq *q = s->running.first; q; q = q->after)
		if (rows_left(q) == 1)
			add_part(&part[n++], q, 1);
	return add_prompts(s, part, n);
}

void sched_done(struct sched *s, const struct sched_part *part, int n)
{
	for (int i = 0; i < n; i++) {
		struct sched_seq *q = part[i].seq;

		q->computed = part[i].from + part[i].rows;
		q->of->served += (uint64_t)part[i].rows;
		pages_publish(s->pages, q->token, q->computed, q->pages,
			      &q->at);
	}
}

void sched_count(const struct sched *s, struct sched_counts *c)
{
	*c = (struct sched_counts){
		.running = s->running.n, .waiting = s->waiting.n,
		.free_pages = pages_avail(s->pages), .put_off = s->put_off,
		.prompt = s->prompts, .shared = s->shared };
}
