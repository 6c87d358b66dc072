/* SPDX-License-Identifier: Apache-2.0
 *
 * Error reports of library code.  A function that fails says what went wrong
 * in a struct err of its caller and returns -1 or NULL; callers add context in
 * front.  Nothing in lib/ prints or exits.
 */
#ifndef CA_BASE_ERR_H
#define CA_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

/* Exit codes of the tools, also carried by struct err. */
enum {
	CA_OK = 0,
	CA_FALSE = 1,		/* predicate modes only */
	CA_USAGE = 64,
	CA_DATAERR = 65,	/* bad or truncated input */
	CA_NOINPUT = 66,	/* cannot open */
	CA_UNAVAILABLE = 69,	/* GPU, host, endpoint, compiler missing */
	CA_SOFTWARE = 70,	/* internal */
	CA_CANTCREAT = 73,
	CA_IOERR = 74,
	CA_TEMPFAIL = 75,	/* an infra_error remains in the output */
	CA_CONFIG = 78,
};

struct err {
	int code;		/* one of the above; 0 means no error yet */
	char msg[2048];		/* NUL-terminated, control bytes escaped */
};

#define ERR_INIT { 0, "" }

#if defined(__GNUC__)
#define CA_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define CA_NORETURN __attribute__((noreturn))
#else
#define CA_PRINTF(f, a)
#define CA_NORETURN
#endif

/* Forgets what was reported. */
void err_clear(struct err *e);

/*
 * Reports a failure, replacing what was there.  `e` may be NULL.  Control
 * bytes of the result are escaped as \xNN, overlong text is cut and ends in
 * "...".  Always returns -1, so that callers can `return err_set(...)`.
 */
int err_set(struct err *e, int code, const char *fmt, ...) CA_PRINTF(3, 4);

/* As err_set, with ": " and the text of errno at the end; keeps errno. */
int err_sys(struct err *e, int code, const char *fmt, ...) CA_PRINTF(3, 4);

/* Puts "context: " in front of what was reported.  Returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) CA_PRINTF(2, 3);

/*
 * For tools only (defined in lib/base/die.c): prints "PROG: text" to stderr
 * and exits.  die_err prints what `e` holds and exits with its code (70 if it
 * has none).  warn prints and goes on; silent under -q (set by opt_parse), as
 * complain, for what is wrong and not only worth knowing, is not.  mention is
 * for libraries too: what was found amiss and mended, said under -v only.
 */
void die(int code, const char *fmt, ...) CA_PRINTF(2, 3) CA_NORETURN;
void die_err(const struct err *e) CA_NORETURN;
void complain(const char *fmt, ...) CA_PRINTF(1, 2);
void warn(const char *fmt, ...) CA_PRINTF(1, 2);
void mention(const char *fmt, ...) CA_PRINTF(1, 2);
void warn_quiet(int on);
void mention_wanted(int on);

/*
 * Where what a process has begun may keep it from ending: wherever it is then,
 * it ends in so many seconds as die_err would; and exit() ends it without what
 * libraries have registered for that, which may wait.  Only the first counts.
 */
void die_within(unsigned seconds, const struct err *e);

#endif
