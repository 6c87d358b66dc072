/* SPDX-License-Identifier: Apache-2.0
 *
 * The judges of a run: coprocesses that read candidate records and write them
 * back judged, one at a time each, and the queue in front of them.
 */
#ifndef CA_AGENT_JUDGES_H
#define CA_AGENT_JUDGES_H

#include <poll.h>

#include "agent/wire.h"
#include "base/err.h"
#include "base/opt.h"

struct judges;

struct judges_opts {
	const struct opt_list *commands;	/* empty: our own program */
	const char *const *own;		/* its argv for that, but the device */
	const struct opt_list *devices;	/* that these share out; one at least */
	size_t judges, builders;	/* of our own: at most so many, >= 1 */
	double seconds;			/* that a verdict may take */
	/* The answer to question n of `who`: a record's line without LF, or
	 * an error record. */
	void (*answer)(void *ctx, int who, uint32_t n, const char *line,
		       size_t len);
	void *ctx;
};

struct judges *judges_open(const struct judges_opts *o, struct err *e);
void judges_close(struct judges *j);

/* Queues a request (a record's line without LF, copied).  Who asks again waits
 * no more for what was asked before.  -1 without memory. */
int judges_ask(struct judges *j, int who, const struct wire_msg *m);
/* Nobody waits for the answer any more. */
void judges_forget(struct judges *j, int who);

/* For the caller's poll: fills p, and afterwards looks at what came. */
size_t judges_fds(const struct judges *j, struct pollfd *p, size_t max);
void judges_run(struct judges *j);

/* Closes all descriptors, in a child that was forked. */
void judges_close_fds(struct judges *j);

struct judge_opts;
struct reward_rules;

/* Looks, before anything is asked of a model, whether our own judge can work
 * here: its device, its Python, the key, `remember`.  -1 with `e`. */
int judge_ready(const struct judge_opts *o, const char *remember,
		struct err *e);

/* A judge's own side, over stdin and stdout: ca-agent --serve-judge.  Tries
 * are quick, grades are not, unless quick_grade; rewards go by `rules`.
 * `remember`: the folder of agent/verdicts.h, or NULL.  The exit code; -1 with
 * `e` when it could not begin. */
int judge_serve(struct judge_opts *o, const struct reward_rules *rules,
		const struct common *c, int quick_grade,
		const char *remember, struct err *e);

#endif
