/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers: the extern "C" functions of a candidate that model_new.py may
 * call, with the types of their parameters.
 */
#ifndef CA_BUILD_LAUNCH_H
#define CA_BUILD_LAUNCH_H

#include "build/decl.h"

#define LAUNCH_MAX 256		/* launchers of one candidate */
#define LAUNCH_ARGS 64		/* parameters of one launcher */

struct launch_arg {
	const char *name;	/* as in the source, else "argN" */
	const char *type;	/* ptr bool i8 u8 i16 u16 i32 u32 i64 u64 f32
				 * f64 stream */
	const char *dtype;	/* of a ptr: torch's name; NULL for void * */
	int is_const;		/* the pointee of a ptr */
};

struct launcher {
	const char *name;
	const char *ret;	/* "void", "ptr" never, else as `type` */
	const char *file;
	unsigned line;
	int global;		/* a __global__ function */
	struct launch_arg *arg;
	size_t narg;
};

struct launch_set {
	struct launcher *v;	/* in the order of files and lines */
	size_t n;
	int kernels;		/* how many are __global__ */
	/* the first that cannot be expressed; "" when all can */
	const char *error, *error_file;
	unsigned error_line;
	/* what kept the first function of a .c file from being a launcher;
	 * NULL: nothing */
	const char *passed, *passed_file;
	unsigned passed_line;
};

/*
 * What `decls` offers.  A function counts when it has C linkage (its own or
 * of an earlier declaration anywhere in the tree), a body, and is neither
 * static, a template nor __device__.  One whose parameters or result cannot
 * be passed sets `error`, except in .c files, where every function has C
 * linkage and such a one is a helper that is left out, unless `caller`
 * (model_new.py's text; may be NULL) calls it.  -1: no memory.
 */
int launch_find(const struct decls *d, const char *caller, struct arena *a,
		struct launch_set *out, struct err *e);

/* Keeps those for which the object defines a function (names sorted as
 * strcmp does). */
void launch_keep(struct launch_set *s, const char *const *names, size_t n);

/* [{"name":…,"ret":…,"args":[{"name":…,"type":…,"dtype":…,"const":…}]}] */
void launch_json(const struct launch_set *s, struct jw *w);

#endif
