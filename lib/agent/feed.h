/* SPDX-License-Identifier: Apache-2.0
 *
 * The tasks of a run, one rollout after the other.
 */
#ifndef CA_AGENT_FEED_H
#define CA_AGENT_FEED_H

#include "agent/home.h"
#include "rec/progress.h"

struct feed;

struct feed_opts {
	const struct agent_opts *agent;
	int64_t k, limit;	/* rollouts a task; tasks, < 0: all */
	int resume;
	struct progress *progress;
	/* A line that is no task, to be passed on (with its LF), or an error
	 * record for one that is none. */
	void (*pass)(void *ctx, const char *line, size_t len);
	void *ctx;
};

/* Operands: files of records, "-", workdirs; none: stdin. */
struct feed *feed_open(const struct feed_opts *o, int argc, char **argv,
		       int first, struct err *e);
void feed_close(struct feed *f);
void feed_close_fd(struct feed *f);	/* in a child */

/* What to wait for; -1: input can be read right now, or has ended. */
int feed_fd(const struct feed *f);
/* The next rollout, 1; 0 when none is there yet, or none will come. */
int feed_next(struct feed *f, struct job *j);
int feed_ended(const struct feed *f);
/* The share of the input that was read; < 0: unknown. */
double feed_share(const struct feed *f);
int feed_code(const struct feed *f);	/* 65, 66, 74 for what was wrong */

#endif
