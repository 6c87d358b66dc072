/* SPDX-License-Identifier: Apache-2.0
 *
 * What every jail may see of the machine.
 */
#ifndef CA_JAIL_VIEW_H
#define CA_JAIL_VIEW_H

#include <stddef.h>

#include "jail/landlock.h"

extern const char *const view_roots[];	/* /usr and its aliases */
/* Files of /etc, which may be missing: what programs need to start, and what
 * tells about users and sites (not for compilers, which could include it). */
extern const char *const view_etc[];
extern const char *const view_etc_user[];
extern const char *const view_cpus[];	/* topology; may be missing */
extern const char *const view_nvidia[];	/* device nodes; may be missing */

/* The same as landlock rules: roots, etc and cpus readable, /proc, the
 * plain devices; with gpu also what CUDA needs, with user view_etc_user.
 * Writes at most max rules, returns how many. */
size_t view_rules(struct landlock_rule *r, size_t max, int gpu, int user);

#endif
