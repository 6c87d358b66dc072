/* SPDX-License-Identifier: Apache-2.0
 *
 * What both halves of the jail share: levels, what this machine offers, and
 * the uids that confined processes run as when we are root.
 */
#ifndef CA_JAIL_JAIL_H
#define CA_JAIL_JAIL_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* In rising order of strength. */
enum jail_level {
	JAIL_NONE,	/* limits only; what --no-jail asks for */
	JAIL_WEAK,	/* landlock and seccomp under our own uid */
	JAIL_UID,	/* the same under a uid of the job's own; needs root */
	JAIL_FULL	/* user, pid, net, ipc, uts, mount namespaces as well */
};

const char *jail_level_name(enum jail_level l);	/* "full", … */
int jail_level_parse(const char *name);		/* enum jail_level, or -1 */

struct jail_caps {
	enum jail_level command;	/* best level for commands */
	enum jail_level self;		/* best level for forked processes */
	int bwrap;			/* 1: bubblewrap runs here */
	int userns;			/* 1: namespaces and a fresh /proc */
	int landlock;			/* ABI; 0: none */
	int seccomp;			/* 1: filters can be loaded */
	char why[704];			/* what keeps it below full; or "" */
};

/*
 * Finds out by trying (in children), once per process; later calls return
 * the same answer.  Thread safe.  -1 only when no child can be made.
 */
int jail_probe(struct jail_caps *c, struct err *e);

/*
 * A uid that no other job uses at this time, unless a process makes more
 * than 64 at once; the gid is the same number.  For an ordinary user their
 * own uid.  Thread safe.
 */
uid_t jail_new_uid(void);

/* As root gives a directory (not what is in it) to a jail's uid, so that the
 * jail can write there; otherwise nothing. */
int jail_give(const char *dir, uid_t uid, struct err *e);

/* As root kills every process of that uid and waits until none is left (at
 * most a few seconds); otherwise, and for uid 0, nothing. */
int jail_kill_uid(uid_t uid, struct err *e);

#endif
