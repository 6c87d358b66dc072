/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory of all rollouts: DIR/<id>/ with log, work directory and
 * record, DIR/.bin/ with the commands that jails offer, DIR/.fixed-<digest>/
 * with what work directories share.
 */
#ifndef CA_AGENT_HOME_H
#define CA_AGENT_HOME_H

#include "agent/agent.h"

struct home {
	char dir[4096], cwd[4096];
};

/* One rollout as the input asks for it. */
struct job {
	char id[REC_ID_LEN];
	char *task, *code;
	uint64_t seed;
	int resume;
	int refused;		/* its directory is there: not to be made */
};
void job_release(struct job *j);

/* Makes or takes DIR (NULL: a fresh one in the cache) and sets a->dir,
 * a->skill (where it is NULL), a->fixed and a->python.  As root every
 * directory above has to let others pass: CA_CONFIG names the one that does
 * not. */
int home_open(struct home *h, const char *dir, struct agent_opts *a,
	      struct err *e);
/* Removes it unless it is kept. */
void home_close(struct home *h, int keep);

/* The record that a finished rollout left, with its LF. */
int home_record(const struct home *h, const char *id, struct str *line,
		struct err *e);
/* A finished rollout's work directory is not needed any more. */
void home_clean(const struct home *h, const char *id, int keep);

#endif
