/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of a source on their way to the device: threads have confined
 * processes on the CPU prepare drafts of them, side by side and ahead of what
 * grows one after the other.  For crawl_torch.c.
 */
#ifndef CA_SYNTH_READY_H
#define CA_SYNTH_READY_H

#include "synth/harvest.h"

struct ready;

/* Seconds for a request that works on the CPU. */
double ready_timeout(const struct harvest *h);
/* Starts n threads, each with a process of this role.  While they get ready,
 * one of them lists the source; the others may fail to begin.  Inputs and
 * results take so many bytes at most; on_cpu: the CPU is what things are made
 * for, so its lease is held. */
struct ready *ready_open(struct harvest *h, const char *role, size_t n,
			 int64_t bytes, int on_cpu, struct err *e);
/* Waits for the list: {"names", "skipped", ...}, which stays ours. */
const struct json *ready_list(struct ready *r, struct err *e);
/* Gives them names to prepare, in this order; the strings must last. */
int ready_names(struct ready *r, const char *const *name, size_t n,
		struct err *e);
/*
 * The first name that is prepared and was not given out yet: 1, its number,
 * and *drafts {"drafts", "why"} (the caller frees; NULL: there is no answer,
 * and `why` says why not).  0 when none is: with `wait` after the last one,
 * else not yet.  -1: nothing can be prepared here, or a signal came.
 */
int ready_next(struct ready *r, int wait, size_t *i, struct json **drafts,
	       const char **why, struct err *e);
/* The version of torch; NULL before the list. */
const char *ready_version(const struct ready *r);
/* Seconds that preparing took, of all threads. */
double ready_seconds(struct ready *r);
/* Ends the threads: the names are not needed any more. */
void ready_stop(struct ready *r);
void ready_close(struct ready *r);

#endif
