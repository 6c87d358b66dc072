/* SPDX-License-Identifier: Apache-2.0
 *
 * What compilers say, made fit for a record.
 */
#ifndef CA_BUILD_LOG_H
#define CA_BUILD_LOG_H

#include "base/arena.h"
#include "base/str.h"

#define LOG_MAX 16384		/* bytes of `build.log` */

struct first_error {
	const char *file;	/* as the compiler names it; NULL: none */
	long line;		/* 0: none */
	const char *message;	/* never NULL */
};

/*
 * Finds the first error in the text of gcc, nvcc, ptxas, as or ld: one with a
 * place before one without, a linker's complaint about a symbol before its
 * summary; else the first line.  Strings in the arena, safe to print.
 */
void log_first_error(const char *text, size_t len, struct arena *a,
		     struct first_error *out);

/* Appends at most LOG_MAX safe bytes of text, cut at a line where it is too
 * long (and says so). */
void log_add(struct str *out, const char *text, size_t len);

/*
 * Replaces in place the names that compilers make up for temporary files
 * (/tmp/ccAbCdEf.o, /tmp/tmpxft_…_name.ptx), so that the same failure reads
 * the same each time.
 */
void log_settle(struct str *s);

/* Whether some error speaks of torch, pybind11 or the standard library, so that
 * it may come from headers that lack what torch's own have. */
int log_blames_torch(const char *text, size_t len);

/* Whether the compiler says that it ran out of memory or was killed. */
int log_says_oom(const char *text, size_t len);

#endif
