/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of the cache of keys and values: which are free, which sequence holds
 * which, and which whole pages two sequences can share because all tokens up
 * to their end are the same.
 */
#ifndef CA_NN_PAGES_H
#define CA_NN_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"

struct pages;

struct pages *pages_new(int n);		/* NULL: no memory */
void pages_free(struct pages *p);

/* Pages that nobody holds. */
int pages_avail(const struct pages *p);

/*
 * Takes pages for `tokens` tokens (table gets their numbers), of which the
 * first are those of `prompt`.  Leading whole pages of the prompt that are in
 * the cache are shared; at least the prompt's last token is left to compute.
 * Returns how many tokens are there already, or -1 when too few pages are
 * free.  *at is for pages_publish: what is shared has been.
 */
struct pages_at {
	int n;				/* pages */
	uint64_t chain;			/* of hashes of their tokens */
	uint64_t born;			/* which the last of them is */
};
#define PAGES_AT_INIT { 0, 0, 0 }
int pages_take(struct pages *p, const int32_t *prompt, int nprompt,
	       int tokens, int32_t *table, struct pages_at *at);

/* Adds n pages to what a sequence has; table gets their numbers.  -1 when too
 * few are free. */
int pages_more(struct pages *p, int n, int32_t *table);

/*
 * States that the keys and values of the first `done` of the sequence's
 * tokens have been computed, so that others may share whole pages.  *at is
 * how far that has been said before, and as good as forgotten after
 * pages_forget.
 */
void pages_publish(struct pages *p, const int32_t *token, int done,
		   const int32_t *table, struct pages_at *at);

/* Gives them back.  What was published stays until the page is needed. */
void pages_drop(struct pages *p, const int32_t *table, int tokens);

/* Forgets what was published (the weights have changed). */
void pages_forget(struct pages *p);

static inline int pages_for(int tokens)
{
	return (tokens + GPU_PAGE - 1) / GPU_PAGE;
}

#endif
