/* SPDX-License-Identifier: Apache-2.0
 *
 * The jail of a process that was forked, not executed: called from inside
 * (from Python through ctypes: plain C types only), in three steps:
 *
 *	host                     fork
 *	  intermediate process   jail_self_unshare
 *	                         fork (it waits for its child and ends as that
 *	                         did)
 *	    confined process     jail_self_mount, jail_self_close
 *	                         … trusted preparation; the judge may seize it …
 *	                         jail_self_seal
 *	                         foreign code
 *
 * At level full the confined process is pid 1 of its pid namespace: when it
 * ends, or the intermediate process does, all that it started is killed.  A
 * host that is a child subreaper (prctl) can kill the intermediate process
 * and then reap the confined one, which is gone with all its children when
 * waitpid returns it.  At level uid the host ends a job with jail_self_kill.
 *
 * All functions return 0, or minus one of the CA_* codes with a line in msg
 * (cut to msglen): -69 when this machine does not offer it, -78 for a path or
 * an argument, -70 otherwise.  They must be called by the only thread of the
 * process.
 */
#ifndef CA_JAIL_SELF_H
#define CA_JAIL_SELF_H

#include <stddef.h>
#include <stdint.h>

#include "jail/jail.h"

enum jail_profile {
	JAIL_WORKER_CPU,	/* foreign code: threads, no other process */
	JAIL_WORKER_CUDA,	/* the same with what CUDA needs */
	JAIL_BASELINE,		/* may fork and exec compilers */
	JAIL_ORACLE		/* as that; give it no writable cache */
};

/* `flags` of all steps. */
enum {
	JAIL_SELF_CUDA = 1	/* baseline and oracle: with what CUDA needs */
};

/* The best level for forked processes here; why (whylen bytes) says what
 * keeps it below full. */
int jail_self_probe(int *level, char *why, size_t whylen);

/* In the host: a uid for the next job (jail_new_uid). */
unsigned jail_self_uid(void);

/* In the host: ends whatever runs under that uid at level uid. */
int jail_self_kill(unsigned uid, char *msg, size_t msglen);

/*
 * Step 1, in the intermediate process.  As root becomes `uid` (from
 * jail_self_uid) with no other groups; at level full then makes user, pid,
 * net, ipc, uts and mount namespaces, in which its uid is 65534.  It dies
 * with the thread of the host that forked it.
 */
int jail_self_unshare(int level, unsigned uid, char *msg, size_t msglen);

/*
 * Step 2, in the child of step 1's process.  It dies with its parent, is the
 * first that the kernel kills for memory, and can be traced by its own uid.
 * At level full all file systems become read-only, /proc is its own, /tmp and
 * /dev/shm are empty and hold tmp_bytes each; `rw` paths stay writable, and
 * those and `ro` paths stay visible where /tmp would hide them.  It has no
 * capability left.  `ro` and `rw` are NULL-terminated or NULL.
 */
int jail_self_mount(int level, const char *const *ro, const char *const *rw,
		    int64_t tmp_bytes, char *msg, size_t msglen);

/* Closes every descriptor from 3 up but those. */
int jail_self_close(const int *keep, size_t nkeep, char *msg, size_t msglen);

struct jail_seal {
	int level;			/* enum jail_level */
	int profile;			/* enum jail_profile */
	unsigned flags;
	int nofile;			/* descriptors; 0: 1024 */
	/* Absolute paths, NULL-terminated lists or NULL.  Readable besides
	 * these: /usr, /lib* and some files of /etc; writable besides: /tmp
	 * and /dev/shm at level full (below it nothing: name a directory). */
	const char *const *ro;		/* missing ones are skipped */
	const char *const *rw;		/* must exist */
	const char *const *dev;		/* /dev/nvidia0 …; must exist */
	int64_t mem_bytes;		/* address space beyond what is mapped
					 * now; 0: no limit; none with CUDA */
	int64_t file_bytes;		/* of each file; 0: 2 GiB */
	int64_t procs;			/* processes and threads; 0: 512 */
};

/*
 * Step 3, right before foreign code: no new privileges, limits, landlock,
 * and the system call filter.  After it a worker cannot make processes, run
 * programs, open sockets or signal anyone but itself; PTRACE_SEIZE from
 * outside still works.  There is no way back.
 */
int jail_self_seal(const struct jail_seal *s, char *msg, size_t msglen);

#endif
