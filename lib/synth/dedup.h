/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks that repeat each other or a reference set: exact repeats inside the
 * set by source and by graph, near copies of references by their syntax
 * trees.  Field `dedup`; ca-record(5).
 */
#ifndef CA_SYNTH_DEDUP_H
#define CA_SYNTH_DEDUP_H

#include "base/str.h"
#include "rec/rec.h"

struct dedup_opts {
	const char *const *against;	/* files of task records */
	size_t nagainst;
	int normal;		/* reject by sim_norm */
	double limit;		/* more than this is rejected */
	int verdict_only;	/* whether it is exceeded, not by how much */
	int no_prov;
};

struct dedup;

/* Reads the references.  The opts' strings must outlive it. */
struct dedup *dedup_open(const struct dedup_opts *o, struct err *e);
void dedup_close(struct dedup *d);

/* Sets `dedup` and `keep`.  -1 only when no Python works here. */
int dedup_record(struct dedup *d, struct rec *r, struct err *e);

/* The word for what became of the last record: "kept", "source", … */
const char *dedup_word(const struct rec *r);

/*
 * How the largest similarities to the references are distributed, as text:
 * a line for each twentieth of sim_paper and of sim_norm.
 */
void dedup_histogram(const struct dedup *d, struct str *out);

#endif
