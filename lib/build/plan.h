/* SPDX-License-Identifier: Apache-2.0
 *
 * What building one candidate takes: its sources, form, launchers, the
 * compilers' command lines, and the key under which the object is cached.
 */
#ifndef CA_BUILD_PLAN_H
#define CA_BUILD_PLAN_H

#include "build/cache.h"
#include "build/form.h"
#include "build/toolchain.h"
#include "rec/status.h"

#define PLAN_ARGS 192

struct plan_unit {
	const char *source;		/* path in the tree */
	const char *argv[PLAN_ARGS];	/* writes ../out/N/object.o */
	int64_t memory;			/* bytes it may need */
};

struct plan {
	struct source_tree tree;
	struct decls decls;
	struct launch_set launchers;
	enum build_form form;
	int cuda;
	const char *arch;		/* "sm_90a"; "native" on the CPU */
	struct toolchain tc;
	struct plan_unit *unit;
	size_t nunit;
	const char *link[PLAN_ARGS];	/* writes ../out/link/object.so; empty
					 * when one unit is the object */
	const char *ro[8];		/* toolkits outside /usr; NULL-ended */
	const char *extra;		/* text of all.cu; kernel form only */
	char key[CACHE_KEY];
	/* why nothing can be built: ST_OK when it can */
	enum status status;
	struct { const char *file; long line; const char *message; } error;
};

/*
 * Plans the build of a candidate record for "cpu" or "cuda" and an
 * architecture (NULL: sm_90a).  What the candidate lacks is told by
 * p->status and p->error (no_source, compile_error, bad_record); -1 with `e`
 * is for what the machine lacks (CA_UNAVAILABLE: compiler, headers).
 * Everything lives in the arena and the record.
 */
int plan_make(const struct rec *r, int cuda, const char *arch,
	      struct arena *a, struct plan *p, struct err *e);

#endif
