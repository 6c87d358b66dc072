/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of a run, the line that a terminal shows meanwhile, and the totals
 * of -v.
 */
#ifndef CA_REC_PROGRESS_H
#define CA_REC_PROGRESS_H

#include <stdint.h>

#define PROGRESS_WORDS 32

struct progress {
	const char *name;	/* of the program */
	int shown;		/* stderr is a terminal and not -q */
	int64_t start, drawn;	/* now_ns */
	uint64_t in, out, bad, foreign;
	double share;		/* of the work that is done; < 0: unknown */
	int running;		/* at work now; 0: not told */
	struct {
		char word[32];
		uint64_t n;
	} count[PROGRESS_WORDS];
};

void progress_init(struct progress *p, const char *name, int quiet);
void progress_count(struct progress *p, const char *word);	/* NULL: no */
/* Draws the line if it is time; wipe removes it. */
void progress_draw(struct progress *p);
void progress_wipe(struct progress *p);
/* The line of totals. */
void progress_totals(const struct progress *p);

#endif
