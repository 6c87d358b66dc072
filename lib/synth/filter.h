/* SPDX-License-Identifier: Apache-2.0
 *
 * Is a task fit for training?  One confined process per task runs model.py;
 * the comparisons are the judge's.  Field `filter`; ca-record(5).
 */
#ifndef CA_SYNTH_FILTER_H
#define CA_SYNTH_FILTER_H

#include "judge/judge.h"
#include "rec/rec.h"

/* In the order in which they are made, the cheapest first. */
enum filter_check {
	CHECK_CONTRACT,		/* loads, constructs, makes inputs */
	CHECK_TRACE,		/* runs on fake tensors; rejects nothing */
	CHECK_EAGER,		/* runs */
	CHECK_TIME,		/* for as long as it should */
	CHECK_MEMORY,		/* within the limit */
	CHECK_MUTATION,		/* leaves its inputs alone */
	CHECK_FINITE,		/* results hold something to compare */
	CHECK_RANDOM,		/* the same again */
	CHECK_COMPILE,		/* torch.compile takes it, and agrees */
	CHECK_TIES,		/* indices do not hang on equal values */
	CHECK_TRIVIAL,		/* no trivial answer passes at 1e-2 */
	CHECK_GUARD,		/* and the judge's guard can be satisfied */
	FILTER_CHECKS
};

struct filter_opts {
	const char *device;
	double min_ms, max_ms;
	int64_t max_mem;	/* bytes */
	const char *checks;	/* names with commas; NULL: all */
	int exhaustive;		/* go on after the first that fails */
	double task_s, compile_s, lease_s;
	int no_jail, no_prov;
	int seeded;
	uint64_t seed;
};

struct filter;

/* Defaults; what is not named in filter.c is zero. */
void filter_defaults(struct filter_opts *o);

/* Fails on unknown checks (CA_USAGE); processes are started when needed. */
struct filter *filter_open(const struct filter_opts *o, struct err *e);
void filter_close(struct filter *f);

/* Sets `filter`, `ops` and `keep`.  May run in several threads at once, each
 * of which gets a host of its own.  -1 when nothing can work here. */
int filter_record(struct filter *f, struct rec *r, struct err *e);

/* Says on stderr what the tasks so far spent their time on. */
void filter_tell(const struct filter *f);

/* The word for what became of the last record: "kept", or the reason. */
const char *filter_word(const struct rec *r);

#endif
