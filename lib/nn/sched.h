/* SPDX-License-Identifier: Apache-2.0
 *
 * Who computes what next: sequences wait, run, are put off when pages of the
 * cache run short (their tokens are kept and computed again later), and end.
 * Nothing here computes or waits, so it can be tried without a model.  One
 * thread at a time.
 *
 * Every step takes all growing sequences by a token, and divides what room is
 * left among prompts, the shortest first served.  Sequences are for parties
 * (a rollout, a user): of those that wait the next is of the party with the
 * fewest that run, then of the one that has got the least, then the oldest.
 */
#ifndef CA_NN_SCHED_H
#define CA_NN_SCHED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "nn/pages.h"

struct sched_opts {
	int slots;			/* run at once */
	int ctx;			/* longest sequence */
	int pages;			/* at least those of ctx */
	int chunk;			/* tokens of prompts in a step */
};

struct sched;

/* A sequence.  Its memory is the caller's from sched_add to sched_remove. */
struct sched_seq {
	/* Set by the caller.  `token` has room for all that will ever be. */
	int32_t *token;
	int ntoken;			/* the prompt's; then all known ones */
	uint64_t party;
	int whole;			/* its prompt is computed, not shared */
	int most;			/* rows of it in one step; 0: any */
	/* The scheduler's. */
	int running;
	int computed;			/* tokens whose keys are there */
	int shared;			/* of them, not computed by itself */
	int put_off;			/* how often */
	int32_t *pages;			/* their numbers; NULL: not running */
	int npages;
	struct pages_at at;
	uint64_t order;			/* of arrival */
	uint64_t twin;			/* order of one that begins alike, */
	int same;			/* by so many tokens at least */
	struct party *of;
	struct sched_seq *before, *after;
};

/* rows tokens of seq from its `from` on are to be computed; with `draws` they
 * are its last ones. */
struct sched_part {
	struct sched_seq *seq;
	int from, rows, draws;
};

struct sched *sched_new(const struct sched_opts *o, struct err *e);
void sched_free(struct sched *s);	/* of no sequences; NULL is fine */

/* Adds a sequence to those that wait.  -1: no memory. */
int sched_add(struct sched *s, struct sched_seq *q);

/* Takes it out, whatever it is doing; what was computed can be shared until
 * its pages are needed. */
void sched_remove(struct sched *s, struct sched_seq *q);

/* Lays out the next step, at most `slots` parts; 0: there is nothing to do.
 * sched_done says that it has been computed. */
int sched_step(struct sched *s, struct sched_part *part);
void sched_done(struct sched *s, const struct sched_part *part, int n);

/* All that was computed is worth nothing any more (other weights, memory
 * given back): everything that runs is put off. */
void sched_forget(struct sched *s);

struct sched_counts {
	int running, waiting;
	int free_pages;
	uint64_t put_off;		/* so far */
	uint64_t prompt, shared;	/* tokens of those begun, and of them
					 * found in the cache */
};
void sched_count(const struct sched *s, struct sched_counts *c);

#endif
