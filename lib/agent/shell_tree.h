/* SPDX-License-Identifier: Apache-2.0
 *
 * All descendants of a process.
 */
#ifndef CA_AGENT_SHELL_TREE_H
#define CA_AGENT_SHELL_TREE_H

#include <stdint.h>
#include <sys/types.h>

/* Sends a signal to every descendant of pid, not to pid itself.  For SIGSTOP
 * it looks again until all that are there were sent it, since others fork
 * meanwhile.  The number of processes that it reached. */
int tree_signal(pid_t pid, int signo);

/* Bytes of the files without a name that descendants of pid hold open, on
 * the device dev or any that is not memory.  Those that hide their
 * descriptors from us are left out. */
int64_t tree_unlinked(pid_t pid, dev_t dev);

#endif
