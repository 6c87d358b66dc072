/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says of processes and of the machine (proc(5)).  Files are
 * named as printf does.
 */
#ifndef CA_BASE_PROC_H
#define CA_BASE_PROC_H

#include <stddef.h>
#include <stdint.h>

/* What stands behind "NAME:" and white space in the first such line of a
 * file like /proc/PID/status or /proc/cpuinfo, cut at n - 1 bytes.  -1 (and
 * "" in out) when there is no such file or line. */
__attribute__((format(printf, 4, 5)))
int proc_line(char *out, size_t n, const char *name, const char *fmt, ...);

/* The same of a line in kB, in bytes; -1. */
__attribute__((format(printf, 2, 3)))
int64_t proc_bytes(const char *name, const char *fmt, ...);

/* The fields of a file like /proc/PID/stat from the state's letter on, which
 * follow a name that may hold anything; they lie in buf.  NULL. */
__attribute__((format(printf, 3, 4)))
const char *proc_stat(char *buf, size_t n, const char *fmt, ...);

#endif
