/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a filter: one record in, one record out, in input order,
 * whatever happens to it.  Bad lines are answered by error records.
 */
#ifndef CA_REC_STAGE_H
#define CA_REC_STAGE_H

#include "base/opt.h"
#include "rec/rec.h"

struct stage;

struct stage_ops {
	const char *name;	/* program, for messages */
	/*
	 * Handles one record: sets members.  -1 with `e` when the tool itself
	 * failed on it (the record is passed on unchanged, the message goes to
	 * stderr and the exit code becomes e->code); a bad candidate is data,
	 * not failure.  With jobs > 1 it runs in several threads at once.
	 */
	int (*record)(void *ctx, struct rec *r, struct err *e);
	/* Makes a record out of an operand that is a directory; NULL:
	 * directories are refused. */
	int (*directory)(void *ctx, const char *path, struct rec *r,
			 struct err *e);
	/* Opens an operand for reading lines; NULL: what it names is read as
	 * it is. */
	int (*open)(void *ctx, const char *path, struct err *e);
	/* Makes a record of a line that is none (0), or -1: then e, if set,
	 * says what is wrong with it.  NULL: such lines are bad. */
	int (*adopt)(void *ctx, const char *line, size_t len, struct rec *r,
		     struct err *e);
	/* Whether this kind is for us; others pass through and are counted
	 * under -v.  NULL: all kinds. */
	int (*wants)(void *ctx, enum rec_kind k);
	/* Whether to write the record (predicate modes, --drop).  NULL: yes. */
	int (*keep)(void *ctx, const struct rec *r);
	/* Called in order after each written record, for counts and tables;
	 * may be NULL.  When `silent` is set nothing is written (--table). */
	void (*done)(void *ctx, const struct rec *r);
	int silent;
	/* After each record, when it has been written, or before if writing
	 * or done() may have to wait for a reader: a place for what nobody
	 * needs to wait for, which may be called more than once for a record,
	 * and is not where idle is.  Not with jobs > 1; may be NULL. */
	void (*rest)(void *ctx);
	/* Before it is waited for a line of fd: a place to prepare for it.
	 * Not with jobs > 1; may be NULL. */
	void (*idle)(void *ctx, int fd);
	/* A word for the progress line's and -v's counts by status; may be
	 * NULL. */
	const char *(*status)(void *ctx, const struct rec *r);
	void *ctx;
};

/*
 * Runs over operands argv[first..argc): files of records, "-", directories;
 * none: stdin (a terminal there is a usage error).  Returns the exit code:
 * 128 + n after signal n; 74 when reading or writing failed; 65 if a line was
 * bad or truncated; 66 if an operand cannot be opened (the others are worked
 * on); 75 if an infra_error remains in the output; else the first failure of
 * a record; else 0.  A reader that left (EPIPE) ends the loop silently with
 * 141, so that the tool still cleans up; SIGPIPE is ignored from here on.
 *
 * Progress appears on a terminal's stderr after 2 s; -v ends with one line
 * of totals.  After a signal (sig.h) nothing new is begun,
 * `stage_interrupted` is true and sig_fd() readable, so that a record can cut
 * itself short.  Records finished by then are written; those in hand are not,
 * since their results may owe something to the interruption.
 */
int stage_run(const struct stage_ops *ops, const struct common *c, int argc,
	      char **argv, int first);

/* Non-zero once a signal came (sig.h): its number. */
int stage_interrupted(void);

#endif
