/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT, SIGTERM and SIGHUP as a flag and a descriptor, so that every wait can
 * end early and nothing is left behind.
 */
#ifndef CA_BASE_SIG_H
#define CA_BASE_SIG_H

#include <pthread.h>
#include <sys/types.h>

#include "base/err.h"

/* Catches them from now on (an ignored one stays ignored).  A second signal
 * that comes more than a second after the first ends the process at once. */
int sig_catch(struct err *e);

/*
 * fork(2).  In the child these signals wait until sig_forked, or until its
 * mask is set otherwise: the flag and the descriptor are still the parent's,
 * and what came would be lost to the one and wake the other for ever.
 */
pid_t sig_fork(void);

/* In a process that was forked from one that called sig_catch: a flag and a
 * descriptor of its own.  What has waited since sig_fork comes now. */
int sig_forked(struct err *e);

/* The number of the signal that came first; 0: none. */
int sig_caught(void);

/* Readable (and stays so) once one came; -1 before sig_catch.  For poll. */
int sig_fd(void);

/* pthread_cond_wait, for a tenth of a second at most: no signal wakes it, so
 * that whoever waits looks at sig_caught each time. */
void sig_wait(pthread_cond_t *changed, pthread_mutex_t *lock);

#endif
