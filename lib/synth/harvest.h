/* SPDX-License-Identifier: Apache-2.0
 *
 * What one source of ca-crawl yields, and what it does not.  Not for other
 * modules.
 */
#ifndef CA_SYNTH_HARVEST_H
#define CA_SYNTH_HARVEST_H

#include "base/io.h"
#include "judge/session.h"
#include "rec/rec.h"
#include "synth/crawl.h"
#include "synth/seen.h"

#define REASONS 64

/* Where the time of a crawl goes; all but the first are of one process. */
enum crawl_time {
	TIME_PREPARE,		/* on the CPU, of all threads together */
	TIME_ALONE, TIME_SHARED,	/* on the device, by lease */
	TIME_WAIT,		/* for it */
	TIME_IDLE,		/* for something that is prepared */
	CRAWL_TIMES
};

struct harvest {
	struct crawl_opts *o;
	const char *source;
	struct output *out;
	uint64_t made, skipped;
	struct {
		char why[96];
		uint64_t n;
	} reason[REASONS];
	size_t nreason;
	double seconds[CRAWL_TIMES];
	int timed;		/* there are such times */
	struct seen codes;	/* repeats inside a source are left out */
};

/* The last line of what a process said; cuts the text. */
const char *harvest_short(char *text);

/* Something that became no task. */
void harvest_skip(struct harvest *h, const char *name, const char *why);

/* Says `head` and the reasons on stderr, and adds a line with the same to the
 * file that the options name.  CA_CANTCREAT. */
int harvest_tell(const struct harvest *h, const char *head, struct err *e);

/* Whether that file can be written: asked before anything is made.
 * CA_CANTCREAT. */
int harvest_can_tell(const struct harvest *h, struct err *e);

/* Whether -n has been reached. */
int harvest_full(const struct harvest *h);

struct harvest_item {
	const char *code;
	size_t len;
	const char *name, *ref, *version, *model;	/* source; the last
							 * two may be NULL */
	const char *parts;	/* the text of an array; NULL: none */
	const struct json *piece, *ops;		/* NULL: none */
};

/* One task.  Repeats are skipped.  -1 when writing fails. */
int harvest_task(struct harvest *h, const struct harvest_item *t,
		 struct err *e);

/* Starts a process of this role; where the host is lost, with a new one.
 * CA_UNAVAILABLE. */
int harvest_process(struct judge *j, struct oracle *o, const char *role,
		    struct err *e);

/* Of a path: a file, or a folder with all below. */
int crawl_path(struct harvest *h, const char *path, struct err *e);
/* Of a role of lib/torch that lists and makes: "crawl" (torch), "hf"
 * (transformers). */
int crawl_torch(struct harvest *h, const char *role, struct err *e);

#endif
