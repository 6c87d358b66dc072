/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of compare.c: a run of elements that fits a cache.
 */
#ifndef CA_JUDGE_COMPARE_BLOCK_H
#define CA_JUDGE_COMPARE_BLOCK_H

#include "judge/compare.h"
#include "judge/compare_elem.h"

/*
 * Compares elements at..at+n of the views and adds them to *a.  The views fit
 * each other (same type and count, fp64 of the right type or NULL).
 */
void compare_run(const struct view *got, const struct view *ref,
		 const struct view *fp64, uint64_t at, uint64_t n,
		 const struct cmp_elem_rule *rule, struct cmp_acc *a);

/* Elements at..at+n of a real tensor as doubles (integers beyond 2^53 are
 * rounded, bools 0 or 1). */
void view_doubles(const struct view *v, uint64_t at, uint64_t n, double *out);

#endif
