/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler flags that a candidate may set: what changes optimisation,
 * arithmetic, macros or the language.  Flags for architectures, warnings and
 * position independence are replaced by ours and left out; any other (include
 * paths and files, plugins, response files, …) is refused.
 */
#ifndef CA_BUILD_FLAGS_H
#define CA_BUILD_FLAGS_H

#include <stddef.h>

#include "base/arena.h"

enum flag_tool { FLAG_CXX, FLAG_NVCC, FLAG_LINK };

struct flags {
	const char **v;		/* NULL-terminated */
	size_t n;
	int std;		/* highest C++ asked for, as 17; 0: none */
};

#define FLAGS_MAX 64
#define FLAG_LEN 256

/*
 * Takes n flags for one tool, in order.  0; 1 when one is refused, *bad then
 * names it; -1 when memory is short.  Libraries of FLAG_LINK come without
 * their "-l".
 */
int flags_take(enum flag_tool tool, const char *const *in, size_t n,
	       struct arena *a, struct flags *out, const char **bad);

#endif
