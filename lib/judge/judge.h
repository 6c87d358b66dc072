/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge: owns seeds, inputs, parameters, expected values, the clock and
 * the verdict, and never loads candidate code (DESIGN 6).
 */
#ifndef CA_JUDGE_JUDGE_H
#define CA_JUDGE_JUDGE_H

#include <stdint.h>

#include "build/build.h"
#include "rec/mac.h"
#include "rec/rec.h"
#include "rec/status.h"

struct judge;

struct judge_opts {
	const char *device;	/* as device_open takes it; NULL: the default */
	const char *rules;	/* overrides the record's; NULL: does not */
	const char *tasks;	/* a file, or NULL */
	const char *trust_key;	/* NULL: the user's own */
	int no_jail;		/* explicit and noisy */
	int seeded;		/* replay: marked, never paid */
	uint64_t seed;
	int no_prov;
	double load_s, first_s, call_s;	/* deadlines of a worker, seconds */
	double task_s;		/* deadline of each request to the oracle */
	double lease_s;		/* how long to wait for the device */
	int shares;		/* it with judges of the same program */

	/* verification */
	int64_t inputs;		/* fresh plain inputs, >= 5 */
	int literal;		/* leave the other distributions out */
	int allow_trivial;

	/* profiling */
	int quick;		/* cached baselines, provisional */
	int eager_only;		/* --baseline eager */
	const char *mode;	/* torch.compile: "default", "max-autotune" */
	int64_t max_rounds;	/* 6, 12 or 24 */
	int allow_shared;	/* a foreign user of the device is no matter */
};

/* Defaults for everything that is not named here is zero. */
void judge_defaults(struct judge_opts *o);

/*
 * Opens the device, the key and, at the first record that needs it, a torch
 * host.  The opts are copied; their strings must outlive the judge.
 */
struct judge *judge_open(const struct judge_opts *o, struct err *e);
void judge_close(struct judge *j);
/* The same where this process is about to end: what takes its time on a GPU is
 * left to that, and to the host that tools share. */
void judge_end(struct judge *j);

/* Gives the judge a host that was started before (torch_start); it is the
 * judge's from now on. */
struct torch_host;
void judge_adopt(struct judge *j, struct torch_host *h);

/*
 * While the first record, which fd will bring, is on its way: waits for the
 * host, and if that is there before the record, has it fork the processes that
 * any candidate needs, to be timed if it `times`.
 */
void judge_begin(struct judge *j, int fd, int times);

/*
 * Sets `verify` (and `build` before it, when it is missing or not to be
 * believed); leaves a `verify` alone that this user's key signed under the
 * same options.  Whatever the candidate does becomes a status; -1 only when
 * the tool itself cannot work (no Python, no memory, interrupted).
 */
int judge_verify(struct judge *j, struct rec *r, struct err *e);

/* Sets `profile`, after `verify` as above. */
int judge_profile(struct judge *j, struct rec *r, struct err *e);

/*
 * After one of these, once its record is written: waits for the end of what
 * has been ended for it, and gives the device back.  What asks the same judge
 * for more does that too; who does not must call it, since others wait.
 */
void judge_rest(struct judge *j);

/*
 * Times a reference alone: eager and torch.compile of a task's or candidate's
 * model.py, and asks both where their time goes.  Sets `reference`, which has
 * the members of `profile` but those of a candidate, and is for people: it is
 * not signed.
 */
int judge_reference(struct judge *j, struct rec *r, struct err *e);

/*
 * Bytes read plus bytes written in a second by the device's own copy of a
 * large piece of private memory, measured once; 0 when it cannot be.
 */
double judge_copy_rate(struct judge *j);

/* The status in a field of r as it stands, ST_NONE without one. */
enum status judge_status(const struct rec *r, const char *field);

#endif
