/* SPDX-License-Identifier: Apache-2.0
 *
 * Several GPUs of one machine: which of them to judge on, and by how many
 * processes.
 */
#ifndef CA_JUDGE_SPREAD_H
#define CA_JUDGE_SPREAD_H

#include <stddef.h>

#include "base/err.h"

#define SPREAD_MOST 64		/* GPUs */

struct spread {
	int gpu[SPREAD_MOST];	/* ordinals */
	size_t n;		/* fewer than two: nothing to spread over */
};

/*
 * The GPUs whose lease is free now.  Where it is not known which there are,
 * a process of its own looks, since one that has opened the driver cannot fork
 * others that use it; not where there are no two GPUs' device nodes.
 */
void spread_find(struct spread *s);

/* Of n names of leases, the numbers of those that are free now: how many. */
size_t spread_free(const char *const *lease, size_t n, int *out);

/* How many judges there are to be: `jobs` if that is not 0, else one for each
 * GPU, and one without any. */
size_t spread_judges(const struct spread *s, size_t jobs);

/* The device of judge number i, each GPU's in turn; `asked` where there is
 * nothing to spread over. */
const char *spread_device(const struct spread *s, size_t i, const char *asked,
			  char name[16]);

/* How many of these judges the fullest GPU has. */
size_t spread_share(const struct spread *s, size_t judges);

#endif
