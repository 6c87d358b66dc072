/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands in the jail: compilers, an agent's shell.
 *
 * At level full the command sees /usr, /bin, /lib*, a few files of /etc, its
 * own /proc, /dev with null, zero, full, random, urandom, a private /tmp and
 * /dev/shm, and the paths that are named here under their own names; no
 * network, no process but its own, no capability, nobody's uid (65534 as it
 * sees it).  When its first process ends, all others are killed.
 */
#ifndef CA_JAIL_COMMAND_H
#define CA_JAIL_COMMAND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/child.h"
#include "base/err.h"
#include "jail/jail.h"

/* A path that the command sees under another name (level full only). */
struct jail_at {
	const char *from, *to;	/* absolute */
	int rw;
};

struct jail_cmd {
	enum jail_level level;
	uid_t uid;		/* as root: jail_new_uid(), for one command at
				 * a time; 0: a fresh one */
	/* Absolute paths, NULL-terminated lists or NULL.  They must exist, and
	 * as root the jail's uid must be able to reach them (no 0700 above). */
	const char *const *ro;	/* readable, with all that is below */
	const char *const *rw;	/* writable too; see jail_give */
	const struct jail_at *at;	/* ends with a NULL from; or NULL */
	const char *const *dev;	/* device nodes, as /dev/nvidia0 */
	int no_user_files;	/* 1: of /etc only what programs need to start:
				 * no passwd, group, certificates */
	int gpu;		/* 1: the nodes that all NVIDIA cards share,
				 * and /sys; `dev` names the cards */
	const char *dir;	/* working directory; NULL: /tmp */
	/* "NAME=value"; added to PATH, HOME, TMPDIR, USER, LOGNAME, LANG,
	 * SHELL, which are fixed and come first.  The caller's environment
	 * never reaches the command. */
	const char *const *env;
	int64_t tmp_bytes;	/* of /tmp and of /dev/shm; 0: 1 GiB */
	int64_t mem_bytes;	/* address space of each process; 0: no limit */
	int64_t file_bytes;	/* of each file; 0: 2 GiB */
	int64_t cpu_seconds;	/* of each process; 0: no limit */
	int64_t procs;		/* processes and threads; 0: 256 */
};

/*
 * Runs o->argv as child_run does (o->env and o->dir must be NULL; they are
 * here), confined; with o->pass on the caller's own stdin, stdout and stderr.
 * What r says is about the command; at level full one that was killed by
 * signal n counts as exited with 128 + n, and maxrss_kib is bubblewrap's.
 * All it started is gone when this returns.  Files that it left in `rw` are
 * not to be trusted: open them with O_NOFOLLOW and only if they are regular.
 *
 * -1 when the jail could not be made, never for what the command did:
 * CA_UNAVAILABLE when this machine does not offer the level (the message says
 * why), CA_CONFIG for a path that cannot be had.  No lower level is ever
 * taken silently.  Thread safe.
 */
int jail_run(const struct jail_cmd *c, const struct child_opts *o,
	     struct child_result *r, struct err *e);

#endif
