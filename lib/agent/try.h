/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries: what the commands ca-compile, ca-verify and ca-profile inside the
 * jail ask of the judge outside.  The client there says only what it wants;
 * task, rules and options are fixed here, and what is judged is a snapshot of
 * the work directory's allowed files.
 */
#ifndef CA_AGENT_TRY_H
#define CA_AGENT_TRY_H

#include "agent/place.h"
#include "agent/shell.h"
#include "agent/wire.h"
#include "net/net.h"
#include "rec/rec.h"

struct tries;

struct tries_opts {
	const char *socket;	/* path of the Unix socket to listen at */
	int judge;		/* socket to the parent, which has the judges */
	const struct place *place;
	const char *code;	/* the task's model.py */
	const char *rules;	/* as the judge knows them */
	double judge_s;		/* how long a verdict may take */
	int64_t budget;		/* tries that use the device; < 0: any */
	/* Called with each verdict; r has its fields (no tree is kept). */
	void (*verdict)(void *ctx, enum ask s, struct rec *r,
			int64_t wall_ns);
	/* Called before a request goes out; may be NULL. */
	void (*asked)(void *ctx, enum ask s);
	void *ctx;
};

struct tries *tries_open(const struct tries_opts *o, struct err *e);
void tries_close(struct tries *t);
/* Whom to stop while a clock runs. */
void tries_shells(struct tries *t, struct shells *s);

/* To be served while the rollout waits for anything. */
const struct net_idle *tries_idle(struct tries *t);

/*
 * Asks for a verdict on this candidate record and waits: 0, r then holds the
 * answer; -1 when no judge could give one.
 */
int tries_judge(struct tries *t, enum ask s, struct rec *r, struct err *e);

/* The candidate that lies in the work directory now.  -1 with `e`. */
int tries_snapshot(struct tries *t, struct rec *r, struct err *e);

/* Tries that used the device so far, and whether one was refused for the
 * budget. */
int64_t tries_used(const struct tries *t);
void tries_set_used(struct tries *t, int64_t n);
int tries_exhausted(const struct tries *t);

/* What the one who tried reads; the exit code of the command. */
int try_text(enum ask s, const struct rec *r, struct str *out);
/* Seconds that the stages say they took. */
double try_seconds(const struct rec *r);

#endif
