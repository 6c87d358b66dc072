/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard: how far the published tolerance must shrink until answers that
 * need no work are told from right ones, and whether that is possible.
 *
 * Trivial answers are: zeros; the mean of the whole output and the means
 * along each of its axes (integers: the first element); a copy of an input
 * (any real type, same number of elements); another input's output; the
 * output for half of the input, which stands for the other half too; another
 * model's weights' output.
 *
 * All differences are measured in units of the published tolerance,
 * u = |answer - want| / (atol + rtol*|want|), so that one factor s shrinks
 * both terms and an element misses when u > s.  Per output leaf:
 *
 *   noise m  the largest u of the loosest allowed math, and not below half a
 *            unit in the last place of the leaf's type (float32, float64 and
 *            complex: 2^-13, so that 4m is 2^-11, the error of the
 *            hardware's own tanh); at most 1, since s never exceeds 1.
 *   D        the elements, over all cases, in which an answer differs by
 *            what can be asked at all: u > 4m.
 *   s        as large as possible with at least half of each answer's D
 *            missing (the median of u over D), hence 4m at least; at most 1.
 *
 * (Were D to hold whatever differs by more than m, a softmax of randn would
 * count as unverifiable: its largest elements set m, and its median is only a
 * few times the loosest math's error in those.)
 *
 * An answer that differs by more than the loosest math somewhere (u > m), but
 * hardly ever by what can be asked, passes although it is wrong: the leaf
 * cannot be verified, the task is an invalid reference.  Hardly ever: fewer
 * than one in 64 of the elements with u > m are in D, and some case has fewer
 * than 16 there, so that a round might have none.  An answer that nowhere has
 * u > m is right as far as anybody can tell, and then it depends:
 *   - zeros, copies and another input's output: the leaf is trivial.  One
 *     such leaf (a constant mask beside a real result) is harmless, a task
 *     whose leaves are all trivial is not: it is invalid.
 *   - half of the input: nothing, for an input may be dead.
 *   - means and other weights: when equal but for rounding (16 units in the
 *     last place), legitimate: an output that is constant along an axis
 *     (expanded statistics, a scalar) is its own mean, and weights may be
 *     dead.  Otherwise what they contribute drowns in noise, and whoever
 *     leaves it out is not caught: the leaf is trivial.
 * Half of the input never makes a leaf trivial or the task invalid: where its
 * output hardly differs by what can be asked, as little is allowed as can be,
 * and the rounds in which every part of the input counts (FAMILY_BLOCKS) tell
 * the rest.
 * Elements that are not finite in either are compared by class and kept out
 * of D; a difference of class is always seen, so such an answer does not
 * pass.  Bools and integers are exact: m = 0, s = 1, D is all that differs.
 * Small discrete results agree by chance, hence several cases, pooled.
 *
 * What follows: relu and clamp on inputs that reach both sides are fine, for
 * a copy of the input misses every element in which it differs; relu of
 * torch.rand, dropout in eval and flatten are copies, hence trivial.
 * Layernorm of randn over long rows is near its input, so s shrinks.  Sorted
 * randn is near another input's output, so s shrinks.  The mean loss of a
 * million elements differs between inputs by less than any allowed math can
 * show, so it is invalid.
 */
#ifndef CA_JUDGE_GUARD_H
#define CA_JUDGE_GUARD_H

#include "judge/compare.h"

#define GUARD_CASES 4		/* fixed seeds; 8 when an output is tiny */
#define GUARD_CASES_MAX 16
#define GUARD_LOOSE 4
/* Elements of a leaf that are looked at: the leading part of larger ones, cut
 * between indices of the outermost axes. */
#define GUARD_ELEMENTS ((uint64_t)1 << 24)

enum guard_answer {
	GUARD_NONE = -1,
	GUARD_ZEROS, GUARD_MEAN, GUARD_SLICE_MEAN, GUARD_INPUT_COPY,
	GUARD_OTHER_INPUT, GUARD_PART, GUARD_OTHER_WEIGHTS, GUARD_ANSWERS
};
const char *guard_answer_name(enum guard_answer a);	/* "zeros", … */

/* One fixed seed.  Arrays of nleaf views each; leaves without a value (None,
 * strings) are left out by the caller in all of them alike. */
struct guard_case {
	const struct view *want;		/* inputs i, weights W */
	const struct view *other_input;		/* inputs i', weights W */
	const struct view *part;		/* half of i, W; NULL: none */
	const struct view *other_weights;	/* i, W'; NULL: no weights */
	const struct view *loose[GUARD_LOOSE];	/* i, W, loosest math */
	size_t nloose;
	const struct view *inputs;		/* i: tensors */
	size_t ninputs;
};

struct guard_leaf {
	double factor;		/* s: atol and rtol are multiplied by it */
	double noise;		/* m */
	double limit;		/* median of u of the nearest answer; 1 or more
				 * when the tolerance need not shrink */
	enum guard_answer nearest;	/* whose limit that is; GUARD_NONE */
	enum guard_answer trivial;	/* right as far as can be told */
	enum guard_answer passes;	/* wrong, and passes: cannot verify */
	uint64_t finite;	/* comparable elements, all cases */
};

struct guard_result {
	size_t nleaf;
	struct guard_leaf leaf[CA_LEAVES];
	int invalid;		/* the task cannot be verified */
	enum guard_answer answer;	/* which answer still passes */
	uint32_t bad_leaf;	/* of that answer */
	uint32_t refused;	/* bit f: the reference raises on inputs of
				 * enum family f; not of guard_run's making */
	int no_finite;		/* a leaf without one finite element */
	char text[256];		/* why, for people */
};

/* How much of a dense tensor's start is looked at. */
size_t guard_bytes(const struct view *v);

/*
 * -1 only for arguments that do not fit (CA_SOFTWARE) or lack of memory.
 * Deterministic.  An invalid task still has factors, for --allow-trivial.
 */
int guard_run(const struct guard_case *cases, size_t ncase, size_t nleaf,
	      double atol, double rtol, struct guard_result *g,
	      struct err *e);

/* How many fixed seeds an output with so few elements in all wants. */
size_t guard_cases(uint64_t elements);

/* For the cache of guard results.  guard_read: 0, or -1 when `j` is not what
 * guard_write wrote. */
void guard_write(struct jw *w, const struct guard_result *g);
int guard_read(const struct json *j, struct guard_result *g);

#endif
