/* SPDX-License-Identifier: Apache-2.0
 *
 * One task under examination.  Shared by filter.c, which drives, and
 * checks.c; not for other modules.
 */
#ifndef CA_SYNTH_EXAMINE_H
#define CA_SYNTH_EXAMINE_H

#include "synth/clocks.h"
#include "synth/filter.h"
#include "synth/room.h"
#include "synth/shot.h"
#include "synth/task.h"

/* What a task waits for. */
enum filter_wait { WAIT_SHARED, WAIT_ALONE, WAIT_ROOM, FILTER_WAITS };

struct examine {
	struct admission *rooms;
	struct clocks *clocks;
	const struct filter_opts *o;
	unsigned wanted;	/* checks, as bits */
	struct judge *j;
	struct task t;
	struct oracle oracle;
	struct str checks;	/* members of `checks` so far */
	struct jw w;
	struct shot want[2];	/* native results for inputs 0 and 1 */
	struct shot got;	/* what is compared with them, one at a time */
	struct json *graph, *eager, *timed;	/* what was told; NULL */
	const char *reason;	/* the first check that failed */
	char text[CA_TEXT + 256];	/* how */
	struct fail fail;
	int broken;		/* `fail` is a fault */
	int oom;		/* something found no memory left */
	double spent[FILTER_CHECKS];	/* seconds, by the check that begins
					 * what is done together */
	double waited[FILTER_WAITS];	/* of them */
	int attempts;
	double asked;		/* of them: for its process to answer */
	double admitted;	/* bytes of the GPU's memory */
	enum device_hold held;
	int64_t since;		/* when that lease was taken */
	int leads;		/* clocks_enter's, while held is HOLD_ALONE */
};

enum { PASS, REJECT, BROKEN };

/* Each makes one or more checks, writes what it found, and says REJECT or
 * PASS; BROKEN when the process is gone, hangs or nothing can be trusted:
 * then nothing more can be asked. */
int check_contract(struct examine *x);
int check_trace(struct examine *x);
int check_eager(struct examine *x);	/* and time, memory, mutation */
int check_run(struct examine *x);	/* gets memory; finite, random */
int check_compile(struct examine *x);
int check_ties(struct examine *x);
int check_trivial(struct examine *x);
int check_guard(struct examine *x);

const char *check_name(enum filter_check c);
int check_wanted(const struct examine *x, enum filter_check c);

/* device_hold; a failure is x->fail. */
int examine_hold(struct examine *x, enum device_hold how);
/* Adds the seconds since `began`. */
void examine_count(double *to, int64_t began);

#endif
