/* SPDX-License-Identifier: Apache-2.0
 *
 * What building one candidate takes: its sources, form, launchers, the
 * compilers' command lines, and the key under which the object is cached.
 */
#ifndef CA_BUILD_PLAN_H
#define CA_BUILD_PLAN_H

#include "build/cache.h"
#include "build/form.h"
#include "build/inline.h"
#include "build/toolchain.h"
#include "rec/status.h"

#define PLAN_ARGS 256

/* Which headers stand for torch's: none are read in light and kernel form. */
enum plan_headers { HEADERS_NONE, HEADERS_SLIM, HEADERS_REAL };

const char *plan_headers_name(enum plan_headers h);	/* "slim"; NULL: none */

struct plan_unit {
	const char *source;		/* path in the tree */
	const struct ext *ext;		/* inline form: of which extension */
	const char *argv[PLAN_ARGS];	/* writes ../out/N/object.o */
	int64_t memory;			/* bytes it may need */
};

struct plan {
	struct source_tree tree;
	struct decls decls;
	struct launch_set launchers;
	enum build_form form;
	enum plan_headers headers;
	struct exts exts;		/* inline form only */
	struct source_tree made;	/* files written beside the tree */
	struct source_tree stubs;	/* in the place of torch's libraries */
	int empty;			/* the record holds no file at all */
	int cuda;
	const char *arch;		/* "sm_90a"; "native" on the CPU */
	struct toolchain tc;
	struct plan_unit *unit;
	size_t nunit;
	const char *link[PLAN_ARGS];	/* writes ../out/link/object.so; empty
					 * when one unit is the object */
	const char *ro[8];		/* toolkits outside /usr; NULL-ended */
	char key[CACHE_KEY];
	/* why nothing can be built: ST_OK when it can */
	enum status status;
	struct { const char *file; long line; const char *message; } error;
};

struct plan_opts {
	int cuda;
	const char *arch;	/* NULL: sm_90a */
	int no_jail;		/* of the dry run of an inline candidate */
	double seconds;		/* limit of that; 0: its own */
};

/*
 * Plans the build of a candidate record, with slim headers where torch's are
 * wanted.  What the candidate lacks is told by p->status and p->error
 * (no_source, compile_error, build_timeout, bad_record); -1 with `e` is for
 * what the machine lacks (CA_UNAVAILABLE: compiler, headers, torch, jail) and
 * for an interrupt (CA_TEMPFAIL).  Everything lives in the arena and the
 * record.
 */
int plan_make(const struct rec *r, const struct plan_opts *o,
	      struct arena *a, struct plan *p, struct err *e);

/* Plans the same again with torch's own headers. */
int plan_real(struct plan *p, struct arena *a, struct err *e);

#endif
