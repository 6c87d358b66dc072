/* SPDX-License-Identifier: Apache-2.0
 *
 * One option table per tool, over glibc's argp: parsing, --help, shell
 * completion (--completion=bash) and the synopsis check of the manual come
 * from the same rows.
 */
#ifndef CA_BASE_OPT_H
#define CA_BASE_OPT_H

#include <stddef.h>
#include <stdint.h>

enum opt_type {
	OPT_END = 0,
	OPT_FLAG,		/* int *: set to 1 */
	OPT_STR,		/* const char ** */
	OPT_INT,		/* int64_t *; lo <= value <= hi when lo < hi */
	OPT_NUM,		/* double *; likewise */
	OPT_SECONDS,		/* double *: number with s, m or h; > 0 */
	OPT_SIZE,		/* int64_t *: bytes with K, M, G (1024) */
	OPT_CHOICE,		/* const char **; `choices` separated by '|' */
	OPT_LIST,		/* struct opt_list *: may be repeated */
};

struct opt_list {
	const char **item;	/* malloc'd array; opt_release frees */
	size_t n;
};

struct opt {
	enum opt_type type;
	char letter;		/* 0: none */
	const char *name;
	const char *arg;	/* metavariable; for OPT_CHOICE the choices */
	const char *help;
	void *dest;
	double lo, hi;
};

/* The block every tool shares: -h --version -v -q -o -j -n --seed --no-prov.
 * Which of them a tool takes is chosen by `common` below; others are unknown
 * options there, never parsed and ignored. */
enum {
	OPTS_OUT = 1,		/* -o FILE */
	OPTS_JOBS = 2,		/* -j N */
	OPTS_LIMIT = 4,		/* -n N: at most N input records */
	OPTS_SEED = 8,		/* --seed N */
	OPTS_PROV = 16,		/* --no-prov */
	OPTS_COMMAND = 32,	/* operands are a command: the first one ends
				 * the options */
	OPTS_RECORDS = OPTS_OUT | OPTS_LIMIT | OPTS_PROV,
};

struct common {
	int verbose, quiet, no_prov;
	const char *out;	/* "-" unless -o */
	int64_t jobs;		/* 0: the tool chooses */
	int64_t limit;		/* -1: all */
	int seeded;
	uint64_t seed;
};

struct tool {
	const char *name;	/* "ca-verify" */
	const char *operands;	/* "[FILE | DIR ...]" for the usage line */
	const char *purpose;	/* one line */
	const struct opt *opts;	/* ends with OPT_END */
	unsigned common;	/* OPTS_* */
	int min_operands, max_operands;	/* max < 0: any */
};

/*
 * Parses argv; usage errors and --help, --version, --completion exit here
 * (64, 0).  Returns the index of the first operand.  Also resets SIGPIPE to
 * default, closes nothing, and opens /dev/null for a closed stdin, stdout or
 * stderr (a closed stdout is then CA_IOERR at the first write).  Applies -q
 * to warn().
 */
int opt_parse(const struct tool *t, int argc, char **argv, struct common *c);
void opt_release(const struct tool *t);

extern const char ca_version[];	/* contents of VERSION */

#endif
