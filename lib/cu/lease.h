/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease of a device: a lock on a file per device (flock), so that it ends
 * with its holder however that dies.  Whatever launches GPU work holds it:
 * exclusively while a clock runs, shared otherwise.
 */
#ifndef CA_CU_LEASE_H
#define CA_CU_LEASE_H

#include <sys/types.h>

#include "base/err.h"

/*
 * Locks <cache>/lease/NAME, waiting at most `seconds` (0: does not wait).
 * The descriptor to close in order to give it back; -1 with CA_UNAVAILABLE
 * when it was not free in time, CA_TEMPFAIL when a signal ended the wait.
 * Close-on-exec.  While somebody waits for an exclusive lease no new shared
 * ones are given.
 */
int lease_take(const char *name, int exclusive, double seconds,
	       struct err *e);

/* Makes the lease behind a descriptor of lease_take's a shared one; -1 when
 * somebody else was quicker, and it is lost. */
int lease_share(int fd);

/*
 * Says of a process, the caller or a host that forks for it, that it keeps to
 * the lease for as long as the caller lives: what it and its children have on
 * the device while nobody of them holds it does no work.  A locked file
 * <cache>/lease/NAME.users/PID; any number of processes may say it of one.  A
 * descriptor for lease_unregister, close-on-exec, or -1.
 */
int lease_register(const char *name, pid_t pid, struct err *e);
void lease_unregister(const char *name, pid_t pid, int fd);
/* Whether somebody alive says it of pid. */
int lease_registered(const char *name, pid_t pid);

/*
 * The same in steps, for a process that will give up the right to open the
 * files: the two descriptors of a lease, taken and given back any number of
 * times.  Both are close-on-exec; forked children share the lock.
 */
struct lease {
	int gate, lock;
};
int lease_open(struct lease *l, const char *name, struct err *e);
int lease_lock(const struct lease *l, const char *name, int exclusive,
	       double seconds, struct err *e);
void lease_unlock(const struct lease *l);
void lease_close(struct lease *l);

#endif
