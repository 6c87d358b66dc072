/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of a rollout: Bash, BashOutput, KillBash.  Each command is a
 * jail of its own under a small helper process, and writes to a file, so that
 * neither a pipe that somebody holds open nor endless output can stop us.
 */
#ifndef CA_AGENT_SHELL_H
#define CA_AGENT_SHELL_H

#include "agent/place.h"
#include "jail/command.h"
#include "net/net.h"
#include "rec/json.h"

struct lease;
struct shells;

struct shells_opts {
	const struct place *place;
	const struct jail_at *at;	/* what the jail shows; NULL ends */
	const char *const *ro;		/* the same under their own names */
	const char *path;		/* directories before the usual PATH */
	int64_t disk;			/* bytes that the tree may grow to */
	/* On the CPU (else NULL) commands hold its lease while they run, and
	 * are stopped while none of this rollout's tool calls is at work. */
	const struct lease *cpu;
	const struct net_idle *idle;	/* served while we wait */
	int64_t deadline;		/* of the rollout; 0: none */
};

struct shells *shells_open(const struct shells_opts *o, struct err *e);
/* Kills what runs. */
void shells_close(struct shells *s);

/* Tools: 1, or 0 when the answer in out is an error. */
int shells_bash(struct shells *s, const struct json *args, struct str *out);
int shells_output(struct shells *s, const struct json *args, struct str *out);
int shells_kill(struct shells *s, const struct json *args, struct str *out);

/* A tool call begins and ends: on the CPU background commands go on, and
 * stop.  wake waits for the lease. */
void shells_wake(struct shells *s);
void shells_rest(struct shells *s);

/* To be called now and then while no tool is at work: ends what runs in the
 * background once the tree has grown beyond its limit. */
void shells_watch(struct shells *s);

/* While the judge is at work for this rollout: stops everything and gives the
 * lease back; thaw takes it again.  Time spent so does not count against
 * commands. */
void shells_freeze(struct shells *s);
void shells_thaw(struct shells *s);
/* The same for waits that need no silence: time does not count. */
void shells_excuse(struct shells *s, int64_t ns);

/* Where the next command starts; kept over a restart. */
const char *shells_cwd(const struct shells *s);
void shells_set_cwd(struct shells *s, const char *cwd);
/* How many commands were started, so that ids go on after a restart; those of
 * before are answered as ended. */
int shells_count(const struct shells *s);
void shells_set_count(struct shells *s, int n);

#endif
