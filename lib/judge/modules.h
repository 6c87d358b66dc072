/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process has mapped to execute, and whose code each mapping is.
 */
#ifndef CA_JUDGE_MODULES_H
#define CA_JUDGE_MODULES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Whose code an instruction is. */
enum place {
	PLACE_OWN,	/* the candidate's object */
	PLACE_BLAS,	/* a BLAS that an object may be linked with */
	PLACE_TORCH,	/* torch's libraries: ATen */
	PLACE_PYTHON,	/* the interpreter, torch's bindings, our shim */
	PLACE_OTHER,	/* any other file: NumPy and its BLAS, copies */
	PLACE_ANON,	/* memory without a file: generated code */
	PLACE_NOWHERE,	/* mapped no more when the call had ended */
	PLACE_RUNTIME,	/* libc, libm, OpenMP, called by nobody we know */
	PLACE_KERNEL,
	PLACES
};

/* As the record calls it. */
const char *place_name(enum place p);

struct module {
	uint64_t start, end;
	uint64_t dev, ino;	/* of the file */
	enum place place;
	int written;		/* somebody may write to it, or to its file
				 * through another mapping */
	int waits;		/* an OpenMP run-time: its own code waits for
				 * work and computes nothing */
	int clean;		/* of modules_clean */
	char name[64];		/* last part of the path; "" without */
};

struct modules {
	struct module *m;	/* executable mappings, by address */
	size_t n, alloc;
	int asked;		/* `clean` is known */
};

/*
 * Whose a file is, by its path as /proc/PID/maps has it.  Names count only
 * where confined code cannot write, so not below /tmp and /dev, nor for files
 * without a name.  PLACE_OWN is a claim, to be checked by the file's number.
 */
enum place place_of(const char *path);

/* Reads /proc/PID/maps into ms (zeroed before its first use), replacing what
 * it held.  The process must stand still.  modules_free frees. */
int modules_read(struct modules *ms, pid_t pid, struct err *e);
void modules_free(struct modules *ms);

/*
 * Whether m, one of ms, is of a file and none of its pages is a copy that
 * somebody has written to, by /proc/PID/smaps (slow; asked once for each
 * modules_read).  The process must still stand.
 */
int modules_clean(struct modules *ms, const struct module *m, pid_t pid);

/* The mapping that holds an address, or NULL. */
const struct module *modules_find(const struct modules *ms, uint64_t ip);

#endif
