/* SPDX-License-Identifier: Apache-2.0
 *
 * What CUPTI saw, for records and for people.  Evidence beside the clock.
 */
#ifndef CA_JUDGE_KERNELS_H
#define CA_JUDGE_KERNELS_H

#include "cu/trace.h"
#include "rec/json.h"

/*
 * One array of {name, calls, us, share, bytes, grid, block, module} with the
 * numbers of one call of forward; at most 32, the longest.  Null when nothing
 * was traced.
 */
void kernels_write(const struct trace_table *t, struct jw *w);

/*
 * A name that people can read: of "_ZN2at6native3fooI…E…" at::native::foo.
 * Others are taken as they are.  Cut to outlen.
 */
void kernels_name(const char *mangled, char *out, size_t outlen);

/*
 * The table of a `profile` field: for each competitor its time, what that is
 * of the memory's bandwidth, and its kernels.
 */
void kernels_table(const struct json *profile, const char *title,
		   struct str *out);

#endif
