/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time goes, for records and for people.  Evidence beside the
 * clock.
 */
#ifndef CA_JUDGE_KERNELS_H
#define CA_JUDGE_KERNELS_H

#include "cu/trace.h"
#include "rec/json.h"

/*
 * What CUPTI saw: one array of {name, op, calls, us, share, bytes, grid,
 * block, code} with the numbers of one call of forward; at most 32, the
 * longest.  Null when nothing was traced.
 */
void kernels_write(const struct trace_table *t, struct jw *w);

/*
 * The same of what a baseline told (runner_table), every member checked: op
 * is the operation of torch that a kernel worked for, bytes what that took in
 * and gave out.
 */
void kernels_told(const struct json *told, struct jw *w);

/*
 * A name that people can read: at::native::foo of "_ZN2at6native3fooI…E…" and
 * of "void at::native::foo<…>(…)".  Others are taken as they are.  Cut to
 * outlen.
 */
void kernels_name(const char *name, char *out, size_t outlen);

/*
 * The table of a `profile` or `reference` field: for each competitor its
 * kernels, their sum, and its time.  copy: bytes that a copy reads and writes
 * in a second, 0 when not known.
 */
void kernels_table(const struct json *profile, const char *title, double copy,
		   struct str *out);

#endif
