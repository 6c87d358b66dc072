/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of a task's process, kept in private memory and compared with each
 * other by the judge's comparator.
 */
#ifndef CA_SYNTH_SHOT_H
#define CA_SYNTH_SHOT_H

#include "judge/compare.h"
#include "judge/session.h"

struct shot {
	struct ca_msg m;
	struct mem mem;
};

#define SHOT_INIT { { 0 }, MEM_NONE }

/* What the oracle answers for its inputs in this precision (task.py).  0; 1
 * when there is no such answer (m.text says why); -1 with `f`. */
int shot_take(struct judge *j, struct oracle *o, uint64_t seed,
	      const char *precision, struct shot *s, struct fail *f);
void shot_release(struct judge *j, struct shot *s);

/* How two answers compare, over all their leaves. */
struct shot_cmp {
	int accepted;		/* `got` passes for `want` at 1e-2 */
	int same;		/* and is the same but for rounding */
	int finite;		/* `want` has elements, and a finite one in
				 * each tensor */
	double worst;		/* largest error norm over norm */
	char text[256];		/* where it is not accepted */
};

/* fp64 may be NULL.  -1 with `f` when the comparator itself fails. */
int shot_compare(struct judge *j, const struct shot *got,
		 const struct shot *want, const struct shot *fp64,
		 struct shot_cmp *c, struct fail *f);

#endif
