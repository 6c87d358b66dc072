/* SPDX-License-Identifier: Apache-2.0
 *
 * System call filters.  They start from "allowed" and refuse what reaches
 * past the jail; system calls newer than this table do not exist inside.
 */
#ifndef CA_JAIL_FILTER_H
#define CA_JAIL_FILTER_H

#include <linux/filter.h>

#include "base/err.h"

enum filter_kind {
	FILTER_COMMAND,		/* starts processes; unix sockets only */
	FILTER_COMMAND_BARE,	/* as that without namespaces: no socket */
	FILTER_HELPER,		/* forked: may fork and exec; no socket */
	FILTER_WORKER,		/* forked: threads only, signals to itself */
	FILTER_KINDS
};

/*
 * Makes a program with malloc (free prog->filter).  FILTER_WORKER is made
 * for the process that calls, whose pid is in it.  With `cuda` a forked
 * process may make unix sockets of type SOCK_SEQPACKET, which nobody answers.
 */
int filter_make(enum filter_kind k, int cuda, struct sock_fprog *prog,
		struct err *e);

/* Installs it in the calling thread, no_new_privs first.  0 or -1 with
 * errno.  Async-signal-safe. */
int filter_enter(const struct sock_fprog *prog);

#endif
