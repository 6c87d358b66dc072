/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/order.h"

#include <stdlib.h>
#include <string.h>

static int is_asleep(struct gen *g)
{
	struct gen_stats s;

	gen_get_stats(g, &s);
	return s.asleep;
}

/* One order at a time, for all of them. */
static void begin_orders(struct gen *const *g, int n)
{
	for (int i = 0; i < n; i++)
		pthread_mutex_lock(&gen_folder(g[i])->ordering);
}

static void end_orders(struct gen *const *g, int n)
{
	while (n > 0)
		pthread_mutex_unlock(&gen_folder(g[--n])->ordering);
}

/* What a folder holds, which all of them have to be able to take; NULL with
 * `e`. */
static struct st *read_weights(struct gen *const *g, int n, const char *dir,
			       struct err *e)
{
	struct st *st;

	if (strlen(dir) >= sizeof gen_folder(g[0])->dir) {
		err_set(e, CA_DATAERR, "'%s' is too long", dir);
		return NULL;
	}
	st = st_read(dir, e);
	for (int i = 0; st && i < n; i++)
		if (engine_fits(gen_engine(g[i]), dir, st, e)) {
			st_close(st);
			st = NULL;
		}
	return st;
}

/* The number that these weights get from all of them: a new one, unless
 * `same` and they are what all have. */
static struct gen_weights number(struct gen *const *g, int n,
				 const struct st *st, int same)
{
	struct gen_weights w = { 0, st_sum(st) };
	int all = same;

	for (int i = 0; i < n; i++) {
		struct gen_stats s;

		gen_get_stats(g[i], &s);
		all &= s.weights.sum == w.sum;
		if (s.weights.version > w.version)
			w.version = s.weights.version;
	}
	w.version += !all;
	return w;
}

static int has(struct gen *g, struct gen_weights w)
{
	struct gen_stats s;

	gen_get_stats(g, &s);
	return s.weights.sum == w.sum && s.weights.version == w.version;
}

/* Has each replica obey its own order, all at once, so that a device which one
 * waits for holds up no other.  The error is the first one's. */
static int obey_all(struct gen *const *g, struct order *o, int n,
		    struct err *e)
{
	int rc = 0;

	for (int i = 0; i < n; i++)
		if (!o[i].done)
			gen_give(g[i], &o[i]);
	for (int i = 0; i < n; i++) {
		if (!gen_await(g[i], &o[i], rc ? NULL : e))
			continue;
		if (!rc && n > 1)
			err_wrap(e, "replica %d", i);
		rc = -1;
	}
	return rc;
}

static struct order *orders(int n, const struct st *st, struct gen_weights w,
			    struct err *e)
{
	struct order *o = calloc((size_t)n, sizeof *o);

	if (!o)
		err_set(e, CA_SOFTWARE, "no memory");
	for (int i = 0; o && i < n; i++)
		o[i] = (struct order){ .kind = ORDER_LOAD, .st = st,
				       .weights = w };
	return o;
}

int gen_reload(struct gen *const *g, int n, const char *dir, struct err *e)
{
	struct order *o = NULL;
	struct st *st;
	int rc = -1, any = 0;

	begin_orders(g, n);
	if (!dir)
		dir = gen_folder(g[0])->dir;
	st = read_weights(g, n, dir, e);
	if (st)
		o = orders(n, st, number(g, n, st, 0), e);
	for (int i = 0; o && i < n; i++)
		if (is_asleep(g[i]))
			gen_note(g[i], &o[i]);
	if (o)
		rc = obey_all(g, o, n, e);
	/* From where one of them has its weights all get theirs next. */
	for (int i = 0; o && i < n; i++)
		any |= !o[i].rc;
	for (int i = 0; any && i < n; i++)
		if (dir != gen_folder(g[i])->dir)
			strcpy(gen_folder(g[i])->dir, dir);
	end_orders(g, n);
	free(o);
	st_close(st);
	return rc;
}

int gen_sleep(struct gen *g, struct err *e)
{
	struct order o = { .kind = ORDER_SLEEP };
	int rc = 0;

	begin_orders(&g, 1);
	if (!is_asleep(g)) {
		gen_give(g, &o);
		rc = gen_await(g, &o, e);
	}
	end_orders(&g, 1);
	return rc;
}

static int some_sleep(struct gen *const *g, int n)
{
	while (n > 0 && !is_asleep(g[n - 1]))
		n--;
	return n;
}

int gen_wake(struct gen *const *g, int n, struct err *e)
{
	struct order *o = NULL;
	struct gen_weights w;
	struct st *st = NULL;
	int rc = 0;

	begin_orders(g, n);
	if (some_sleep(g, n)) {
		st = read_weights(g, n, gen_folder(g[0])->dir, e);
		rc = -1;
	}
	if (st) {
		w = number(g, n, st, 1);
		o = orders(n, st, w, e);
	}
	/* One that is awake may have others than are there now. */
	for (int i = 0; o && i < n; i++) {
		if (is_asleep(g[i]))
			o[i].kind = ORDER_WAKE;
		else
			o[i].done = has(g[i], w);
	}
	if (o)
		rc = obey_all(g, o, n, e);
	end_orders(g, n);
	free(o);
	st_close(st);
	return rc;
}
