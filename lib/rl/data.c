/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"

#define SAID 3			/* drops of a kind that are told of */

void data_clear(struct data *d)
{
	for (size_t i = 0; i < d->n; i++)
		traj_release(&d->t[i]);
	d->n = 0;
}

void data_release(struct data *d)
{
	data_clear(d);
	free(d->t);
	d->t = NULL;
	d->alloc = 0;
}

static void digest(struct data *d, const struct rec *r)
{
	struct hash *h = hash_new();

	if (!h)
		return;
	hash_add(h, d->digest, sizeof d->digest);
	hash_part(h, r->line, r->len);
	hash_end(h, d->digest);
}

static int keep(struct data *d, const struct traj *t, struct err *e)
{
	if (d->n == d->alloc) {
		size_t n = d->alloc ? 2 * d->alloc : 64;
		struct traj *p = realloc(d->t, n * sizeof *p);

		if (!p)
			return err_set(e, CA_SOFTWARE, "no memory");
		d->t = p;
		d->alloc = n;
	}
	d->t[d->n++] = *t;
	return 0;
}

static int examine(struct data *d, const struct rec *r, struct traj *t,
		   struct err *e)
{
	int drop = traj_read(t, r->root, d->logprobs, e);
	size_t n;

	if (d->kept && drop != TRAJ_NO_REWARD && drop != TRAJ_OMITTED &&
	    traj_kept(t)) {
		err_set(e, CA_DATAERR, "reward %g, %lld calls against their "
			"schemas%s", t->reward, (long long)t->violations,
			t->redundant ? ", a redundant loop" : "");
		return (int)traj_kept(t);
	}
	if (drop == TRAJ_NO_IDS && d->tokenise && d->text) {
		err_clear(e);
		drop = text_tokenise(d->text, r->root, t, e);
		d->tokenised += drop == TRAJ_OK;
	} else if (!drop && d->text) {
		drop = text_check(d->text, r->root, t, e);
	}
	n = drop ? 0 : traj_longest(t);
	if (!drop && d->longest && n > d->longest) {
		err_set(e, CA_DATAERR, "%zu tokens are more than %zu", n,
			d->longest);
		drop = TRAJ_TOO_LONG;
	}
	return drop;
}

int data_take(struct data *d, const struct rec *r, struct err *e)
{
	struct traj t;
	int drop;

	d->seen++;
	digest(d, r);
	drop = examine(d, r, &t, e);
	if (drop < 0) {
		traj_release(&t);
		return -1;
	}
	d->dropped[drop]++;
	d->bad_logprobs += drop ? 0 : t.bad_logprobs;
	d->turns_missing += drop || t.text ? 0 : (uint64_t)t.missing;
	if (!drop)
		return keep(d, &t, e);
	traj_release(&t);
	if (d->dropped[drop] <= SAID)
		warn("line %llu: dropped (%s): %s%s",
		     (unsigned long long)r->lineno, traj_drop_name(drop),
		     e->msg, d->dropped[drop] == SAID ?
		     "; further ones are only counted" : "");
	err_clear(e);
	return drop;
}

void data_skip(struct data *d, const struct rec *r)
{
	digest(d, r);
}

void data_write(struct jw *w, const struct data *d)
{
	char key[64];

	jw_kint(w, "data/seen", (int64_t)d->seen);
	jw_kint(w, "data/used", (int64_t)d->dropped[TRAJ_OK]);
	for (int i = 1; i < TRAJ_DROPS; i++)
		if (d->dropped[i]) {
			snprintf(key, sizeof key, "data/dropped/%s",
				 traj_drop_name((enum traj_drop)i));
			jw_kint(w, key, (int64_t)d->dropped[i]);
		}
	if (d->bad_logprobs)
		jw_kint(w, "data/masked_tokens", (int64_t)d->bad_logprobs);
	if (d->turns_missing)
		jw_kint(w, "data/turns_without_ids",
			(int64_t)d->turns_missing);
	if (d->tokenised)
		jw_kint(w, "data/tokenised", (int64_t)d->tokenised);
}

void data_shuffle(size_t *order, size_t n, uint64_t seed, uint64_t round)
{
	struct rng r;

	rng_seeded(&r, seed ^ (round + 1) * 0x9e3779b97f4a7c15u);
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t i = n; i > 1; i--) {
		size_t k = (size_t)rng_below(&r, i), was = order[i - 1];

		order[i - 1] = order[k];
		order[k] = was;
	}
}

int data_held_out(const struct traj *t, double share)
{
	uint8_t sum[HASH_LEN];

	sha256(t->task, strlen(t->task), sum);
	return (sum[0] << 8 | sum[1]) < share * 65536;
}
