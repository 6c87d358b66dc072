/* SPDX-License-Identifier: Apache-2.0
 *
 * Torch's own headers, precompiled: half of the time of what is built against
 * them.  A header is compiled once for each torch, compiler and set of flags,
 * apart from any candidate's files, and kept in the object cache.
 */
#ifndef CA_BUILD_PCH_H
#define CA_BUILD_PCH_H

#include "build/compile.h"

#define PCH_KINDS 2

struct pch {
	/* The cached file of each kind, which a jail has to see; "": none. */
	char file[PCH_KINDS][CA_PATH_MAX];
};

/*
 * Finds the headers that units of p can begin with, makes those that nobody
 * has made (one maker at a time; others wait for it), and lays them out in
 * `dir`.  What prevents that is mentioned: units are built without, then.
 */
void pch_lay_out(const struct plan *p, const struct compile_opts *o,
		 const char *dir, struct pch *have);

/*
 * The name in that directory of the header that this unit's command should
 * include first, or NULL.  The compiler passes over one that does not fit and
 * reads the headers themselves.
 */
const char *pch_of(const struct plan *p, const struct plan_unit *u,
		   const struct pch *have);

#endif
