/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler without a model: what is "computed" is noted for each page,
 * and every step checks that what a part relies on has been computed for its
 * own tokens.
 */
#include "tests.h"

#include "nn/sched.h"

#define SLOTS 6
#define CTX   256
#define CHUNK 64
#define PAGES 40

struct world {
	struct sched *s;
	int32_t at[PAGES][GPU_PAGE];	/* the token whose keys a row holds */
	struct sched_part part[SLOTS];
	int n;
	int rows;			/* computed so far */
};

static void begin(struct world *w, int pages)
{
	memset(w, 0xff, sizeof *w);
	w->rows = 0;
	w->s = sched_new(&(struct sched_opts){ SLOTS, CTX, pages, CHUNK },
			 NULL);
	assert_non_null(w->s);
}

static struct sched_seq *add(struct world *w, int from, int n, uint64_t party)
{
	struct sched_seq *q = calloc(1, sizeof *q);

	assert_non_null(q);
	q->token = calloc(CTX, sizeof *q->token);
	assert_non_null(q->token);
	for (int i = 0; i < n; i++)
		q->token[i] = from + i;
	q->ntoken = n;
	q->party = party;
	assert_int_equal(sched_add(w->s, q), 0);
	return q;
}

static void drop(struct world *w, struct sched_seq *q)
{
	sched_remove(w->s, q);
	free(q->token);
	free(q);
}

/* All tokens before the part's own are in the cache under its pages. */
static void check_cache(const struct world *w, const struct sched_part *p)
{
	const struct sched_seq *q = p->seq;

	for (int i = 0; i < p->from; i++)
		assert_int_equal(w->at[q->pages[i / GPU_PAGE]][i % GPU_PAGE],
				 q->token[i]);
}

/* One step; sequences that draw get a token that tells them apart. */
static int step(struct world *w)
{
	int prompts = 0;

	w->n = sched_step(w->s, w->part);
	assert_in_range(w->n, 0, SLOTS);
	for (int i = 0; i < w->n; i++)
		check_cache(w, &w->part[i]);
	for (int i = 0; i < w->n; i++) {
		const struct sched_part *p = &w->part[i];
		struct sched_seq *q = p->seq;

		assert_true(p->rows > 0);
		assert_int_equal(p->draws, p->from + p->rows == q->ntoken);
		for (int k = p->from; k < p->from + p->rows; k++)
			w->at[q->pages[k / GPU_PAGE]][k % GPU_PAGE] =
				q->token[k];
		prompts += p->rows > 1 ? p->rows : 0;
		w->rows += p->rows;
	}
	assert_in_range(prompts, 0, CHUNK);
	sched_done(w->s, w->part, w->n);
	for (int i = 0; i < w->n; i++) {
		struct sched_seq *q = w->part[i].seq;

		if (w->part[i].draws && q->ntoken < CTX) {
			q->token[q->ntoken] = -(int)q->order * 1000 -
					      q->ntoken;
			q->ntoken++;
		}
	}
	return w->n;
}

static int in_step(const struct world *w, const struct sched_seq *q)
{
	for (int i = 0; i < w->n; i++)
		if (w->part[i].seq == q)
			return 1;
	return 0;
}

static void one_grows(void **state)
{
	struct world w;
	struct sched_seq *q;

	(void)state;
	begin(&w, PAGES);
	assert_int_equal(step(&w), 0);
	q = add(&w, 0, 100, 1);
	step(&w);
	assert_int_equal(q->computed, CHUNK);
	step(&w);
	assert_int_equal(q->ntoken, 101);
	for (int i = 0; i < 20; i++)
		assert_int_equal(step(&w), 1);
	assert_int_equal(q->ntoken, 121);
	assert_int_equal(w.rows, 120);
	drop(&w, q);
	sched_free(w.s);
}

/* A growing sequence grows in every step, whatever prompts there are. */
static void prompts_do_not_stop_growing(void **state)
{
	struct world w;
	struct sched_seq *q, *p[4];

	(void)state;
	begin(&w, PAGES);
	q = add(&w, 0, 10, 1);
	step(&w);
	for (int i = 0; i < 4; i++)
		p[i] = add(&w, 1000 * (i + 1), 100, 2);
	for (int i = 0; i < 6; i++) {
		step(&w);
		assert_true(in_step(&w, q));
	}
	for (int i = 0; i < 4; i++)
		drop(&w, p[i]);
	drop(&w, q);
	sched_free(w.s);
}

/* A short prompt does not wait for a long one that came before. */
static void short_prompts_pass(void **state)
{
	struct world w;
	struct sched_seq *l, *k;

	(void)state;
	begin(&w, PAGES);
	l = add(&w, 0, 250, 1);
	k = add(&w, 1000, 20, 2);
	step(&w);
	assert_int_equal(k->ntoken, 21);
	assert_int_equal(l->computed, CHUNK - 20);
	drop(&w, l);
	drop(&w, k);
	sched_free(w.s);
}

/* Who may have few rows of a step leaves the others to who comes after. */
static void rows_can_be_limited(void **state)
{
	struct world w;
	struct sched_seq *l, *k;

	(void)state;
	begin(&w, PAGES);
	l = add(&w, 0, 100, 1);
	l->most = 8;
	k = add(&w, 1000, 200, 2);
	for (int i = 1; i < 5; i++) {
		step(&w);
		assert_int_equal(l->computed, i * 8);
		assert_int_equal(k->computed, i * (CHUNK - 8) < 200 ?
				 i * (CHUNK - 8) : 200);
	}
	for (int i = 0; i < 9; i++)
		step(&w);
	assert_int_equal(l->ntoken, 101);
	drop(&w, l);
	drop(&w, k);
	sched_free(w.s);
}

static void beginnings_are_reused(void **state)
{
	struct world w;
	struct sched_seq *a, *b;
	struct sched_counts c;

	(void)state;
	begin(&w, PAGES);
	a = add(&w, 0, 100, 1);
	for (int i = 0; i < 30; i++)
		step(&w);
	/* The next turn: all that was said, and 20 tokens more. */
	b = add(&w, 0, 100, 1);
	memcpy(b->token, a->token, (size_t)a->ntoken * sizeof *a->token);
	b->ntoken = a->ntoken + 20;
	for (int i = a->ntoken; i < b->ntoken; i++)
		b->token[i] = 5000 + i;
	drop(&w, a);
	w.rows = 0;
	step(&w);
	assert_int_equal(b->shared, 128 / GPU_PAGE * GPU_PAGE);
	assert_int_equal(w.rows, b->ntoken - 1 - b->shared);
	sched_count(w.s, &c);
	assert_int_equal(c.shared, b->shared);
	drop(&w, b);
	sched_free(w.s);
}

/* Many samples of one prompt that come at once compute it once. */
static void siblings_wait_for_the_first(void **state)
{
	struct world w;
	struct sched_seq *q[SLOTS];

	(void)state;
	begin(&w, 96);
	for (int i = 0; i < SLOTS; i++)
		q[i] = add(&w, 0, 200, (uint64_t)i);
	for (int i = 0; i < 30; i++)
		step(&w);
	for (int i = 0; i < SLOTS; i++)
		assert_true(q[i]->ntoken > 200);
	assert_in_range(w.rows, 200, 200 + SLOTS * 96);
	for (int i = 0; i < SLOTS; i++)
		drop(&w, q[i]);
	sched_free(w.s);
}

static void parties_take_turns(void **state)
{
	struct world w;
	struct sched_seq *many[30], *one;
	int others = 0;

	(void)state;
	begin(&w, 96);
	for (int i = 0; i < 30; i++)
		many[i] = add(&w, 1000 * i, 40, 1);
	for (int i = 0; i < 5; i++)
		step(&w);
	one = add(&w, 99000, 40, 2);
	/* It gets the next place that becomes free. */
	drop(&w, many[0]);
	step(&w);
	assert_true(one->running);
	for (int i = 1; i < 30; i++)
		others += many[i]->running;
	assert_int_equal(others, SLOTS - 1);
	for (int i = 1; i < 30; i++)
		drop(&w, many[i]);
	drop(&w, one);
	sched_free(w.s);
}

/* With too few pages the youngest are put off, lose nothing, and all end. */
static void all_end_when_pages_are_short(void **state)
{
	struct world w;
	struct sched_seq *q[SLOTS];
	int left = SLOTS, steps = 0, oldest;
	struct sched_counts c;

	(void)state;
	begin(&w, CTX / GPU_PAGE + 2);
	for (int i = 0; i < SLOTS; i++)
		q[i] = add(&w, 10000 * (i + 1), 30, (uint64_t)i);
	while (left) {
		assert_true(steps++ < 5000);
		step(&w);
		for (oldest = 0; !q[oldest]; oldest++)
			;
		assert_true(in_step(&w, q[oldest]));
		for (int i = 0; i < SLOTS; i++) {
			if (!q[i] || q[i]->ntoken < 200)
				continue;
			for (int k = 30; k < 200; k++)
				assert_int_equal(q[i]->token[k],
						 -(i + 1) * 1000 - k);
			drop(&w, q[i]);
			q[i] = NULL;
			left--;
		}
	}
	sched_count(w.s, &c);
	assert_true(c.put_off > 0);
	assert_int_equal(c.free_pages, CTX / GPU_PAGE + 2);
	sched_free(w.s);
}

static void forgetting_computes_anew(void **state)
{
	struct world w;
	struct sched_seq *q;

	(void)state;
	begin(&w, PAGES);
	q = add(&w, 0, 50, 1);
	for (int i = 0; i < 5; i++)
		step(&w);
	sched_forget(w.s);
	memset(w.at, 0xff, sizeof w.at);
	assert_false(q->running);
	w.rows = 0;
	step(&w);
	assert_int_equal(w.rows, 55);
	assert_int_equal(q->ntoken, 56);
	assert_int_equal(q->shared, 0);
	drop(&w, q);
	sched_free(w.s);
}

/* Anything in any order, with beginnings in common and pages short. */
static void torture(void **state)
{
	enum { MOST = 40 };
	struct world w;
	struct sched_seq *q[MOST] = { NULL };
	struct sched_counts c;

	(void)state;
	begin(&w, PAGES);
	srand(11);
	for (int i = 0; i < 20000; i++) {
		int k = rand() % MOST;

		if (rand() % 500 == 0) {
			sched_forget(w.s);
		} else if (rand() % 3) {
			step(&w);
		} else if (q[k] && (rand() % 4 == 0 || q[k]->ntoken == CTX)) {
			drop(&w, q[k]);
			q[k] = NULL;
		} else if (!q[k]) {
			q[k] = add(&w, rand() % 3 * 7, 1 + rand() % 200,
				   (uint64_t)(rand() % 4));
			q[k]->whole = rand() % 8 == 0;
			q[k]->most = rand() % 8 ? 0 : 5;
		}
	}
	for (int k = 0; k < MOST; k++)
		if (q[k])
			drop(&w, q[k]);
	sched_count(w.s, &c);
	assert_int_equal(c.free_pages, PAGES);
	assert_int_equal(c.running + c.waiting, 0);
	sched_free(w.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_grows),
		cmocka_unit_test(prompts_do_not_stop_growing),
		cmocka_unit_test(short_prompts_pass),
		cmocka_unit_test(rows_can_be_limited),
		cmocka_unit_test(beginnings_are_reused),
		cmocka_unit_test(siblings_wait_for_the_first),
		cmocka_unit_test(parties_take_turns),
		cmocka_unit_test(all_end_when_pages_are_short),
		cmocka_unit_test(forgetting_computes_anew),
		cmocka_unit_test(torture),
	};

	return RUN_TESTS(tests);
}
