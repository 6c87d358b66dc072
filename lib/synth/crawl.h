/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks out of sources: torch's own operators, modules of transformers, files
 * and folders of model.py, rows of published data.  Nothing is left out in
 * silence.
 */
#ifndef CA_SYNTH_CRAWL_H
#define CA_SYNTH_CRAWL_H

#include "base/io.h"
#include "base/opt.h"
#include "judge/judge.h"

struct crawl_opts {
	const char *device;
	double ms;		/* time that a call is grown to */
	int64_t max_bytes;	/* of its inputs; 0: room_bytes() */
	struct opt_list only;	/* names that hold one of these; none: all */
	int64_t limit;		/* tasks at most; -1: all */
	int64_t part, parts;	/* the part'th of so many; 0: all */
	const char *summary;	/* a file for numbers and reasons; NULL: none */
	int64_t min_yield;	/* of a source; fewer is an error */
	double task_s;		/* 0: as long as the device allows */
	double lease_s;
	int64_t jobs;		/* processes that prepare; 0: by the device */
	int seeded;		/* in an order drawn from `seed` */
	uint64_t seed;
	int verbose;		/* name what is skipped */
};

void crawl_defaults(struct crawl_opts *o);
/* "K/N": the Kth of N parts. */
int crawl_part(struct crawl_opts *o, const char *text, struct err *e);

/*
 * Writes the tasks of one source ("torch", "transformers", or a path) to out
 * and takes them off o->limit.  -1 when the source cannot be read, yields too
 * little (CA_DATAERR), or writing fails (CA_IOERR).  A summary goes to stderr.
 */
int crawl_source(struct crawl_opts *o, const char *source,
		 struct output *out, struct err *e);

#endif
