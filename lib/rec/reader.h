/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of a descriptor, of limited length, in waits that a signal ends.
 */
#ifndef CA_REC_READER_H
#define CA_REC_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct reader {
	int fd;
	int stop_fd;		/* readable: no more is wanted; -1: none */
	char *buf;
	size_t alloc, start, end, seen;
	int eof;
	int skipping;		/* a line that is too long */
	uint64_t lineno;	/* of the line last returned */
	uint64_t bytes;		/* consumed so far */
};

enum line {
	LINE_END,		/* nothing more */
	LINE_OK,
	LINE_TRUNCATED,		/* the last one, without LF */
	LINE_LONG,		/* more than JSON_MAX_LINE bytes, dropped */
	LINE_STOPPED,		/* by a signal or stop_fd */
	LINE_ERROR
};

void reader_init(struct reader *r, int fd, int stop_fd);
void reader_release(struct reader *r);	/* fd stays open */

/* Whether the next line has yet to be read, all of it. */
int reader_empty(const struct reader *r);
/* Reads what is there; whether reader_next would not have to wait. */
int reader_ready(struct reader *r);

/* The next line without its LF, valid until the next call. */
enum line reader_next(struct reader *r, char **line, size_t *len,
		      struct err *e);

/*
 * Reads all records of a file, each given to fn, whose -1 ends it.  0 or -1;
 * the message names file and line.  CA_NOINPUT, or CA_DATAERR for a line that
 * is no record, is too long or is cut short.
 */
struct rec;
int reader_records(const char *path,
		   int (*fn)(void *ctx, struct rec *r, struct err *e),
		   void *ctx, struct err *e);

#endif
