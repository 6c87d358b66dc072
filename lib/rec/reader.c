/* SPDX-License-Identifier: Apache-2.0
 *
 * A line reader over read(2).  stdio is not used since it cannot say that a
 * line is too long without holding all of it, and its reads restart.
 */
#include "rec/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sig.h"
#include "rec/json.h"
#include "rec/rec.h"

#define CHUNK ((size_t)64 << 10)

void reader_init(struct reader *r, int fd, int stop_fd)
{
	memset(r, 0, sizeof *r);
	r->fd = fd;
	r->stop_fd = stop_fd;
}

void reader_release(struct reader *r)
{
	free(r->buf);
	r->buf = NULL;
}

int reader_empty(const struct reader *r)
{
	return r->start == r->end && !r->eof;
}

/* Room for a chunk behind end. */
static int make_room(struct reader *r, struct err *e)
{
	size_t want = r->alloc ? r->alloc : 2 * CHUNK;
	char *p;

	if (r->start && (r->start == r->end || r->alloc - r->end < CHUNK)) {
		memmove(r->buf, r->buf + r->start, r->end - r->start);
		r->end -= r->start;
		r->seen -= r->start;
		r->start = 0;
	}
	if (r->alloc - r->end >= CHUNK)
		return 0;
	while (want - r->end < CHUNK)
		want *= 2;
	p = realloc(r->buf, want);
	if (!p)
		return err_set(e, CA_SOFTWARE, "no memory for a line");
	r->buf = p;
	r->alloc = want;
	return 0;
}

/* Waits for input; LINE_OK when there is some (or an end or an error). */
static enum line await(const struct reader *r, struct err *e)
{
	struct pollfd p[3] = {
		{ r->fd, POLLIN, 0 }, { sig_fd(), POLLIN, 0 },
		{ r->stop_fd, POLLIN, 0 },
	};

	for (;;) {
		if (sig_caught())
			return LINE_STOPPED;
		if (poll(p, 3, -1) < 0) {
			if (errno == EINTR)
				continue;
			err_sys(e, CA_IOERR, "cannot poll");
			return LINE_ERROR;
		}
		if (p[1].revents || p[2].revents)
			return LINE_STOPPED;
		if (p[0].revents)
			return LINE_OK;
	}
}

static enum line fill(struct reader *r, struct err *e)
{
	enum line w = LINE_OK;
	ssize_t n;

	if (make_room(r, e))
		return LINE_ERROR;
	do {
		w = await(r, e);
		if (w != LINE_OK)
			return w;
		n = read(r->fd, r->buf + r->end, r->alloc - r->end);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	if (n < 0) {
		err_sys(e, errno == EISDIR || errno == EBADF ? CA_NOINPUT :
			CA_IOERR, "cannot read");
		return LINE_ERROR;
	}
	r->eof = n == 0;
	r->end += (size_t)n;
	return LINE_OK;
}

/* Whether [start, end) holds an LF; looks at each byte once. */
static char *find_lf(struct reader *r)
{
	char *lf = r->end > r->seen ?
		   memchr(r->buf + r->seen, '\n', r->end - r->seen) : NULL;

	r->seen = lf ? (size_t)(lf - r->buf) : r->end;
	return lf;
}

static void consume(struct reader *r, size_t to)
{
	r->bytes += to - r->start;
	r->start = r->seen = to;
}

/* Drops the rest of a line that is too long. */
static enum line skip_line(struct reader *r, struct err *e)
{
	for (;;) {
		char *lf = find_lf(r);
		enum line w;

		consume(r, lf ? (size_t)(lf - r->buf) + 1 : r->end);
		if (lf || r->eof)
			return LINE_LONG;
		w = fill(r, e);
		if (w != LINE_OK)
			return w;
	}
}

int reader_ready(struct reader *r)
{
	struct pollfd p = { r->fd, POLLIN, 0 };

	while (!find_lf(r) && !r->eof) {
		if (r->end - r->start > JSON_MAX_LINE) {
			consume(r, r->end);
			r->skipping = 1;
		}
		if (sig_caught() || poll(&p, 1, 0) == 0)
			return sig_caught() != 0;
		if (fill(r, NULL) != LINE_OK)
			return 1;
	}
	return 1;
}

enum line reader_next(struct reader *r, char **line, size_t *len,
		      struct err *e)
{
	char *lf;
	enum line w;

	if (sig_caught())
		return LINE_STOPPED;
	while (!(lf = find_lf(r)) && !r->eof) {
		if (r->end - r->start > JSON_MAX_LINE)
			break;
		w = fill(r, e);
		if (w != LINE_OK)
			return w;
	}
	*len = (lf ? (size_t)(lf - r->buf) : r->end) - r->start;
	if (!lf && r->eof && *len == 0 && !r->skipping)
		return LINE_END;
	r->lineno++;
	if (r->skipping || *len > JSON_MAX_LINE) {
		r->skipping = 0;
		return skip_line(r, e);
	}
	*line = r->buf + r->start;
	consume(r, r->start + *len + (lf ? 1 : 0));
	return lf ? LINE_OK : LINE_TRUNCATED;
}

/* What a line is that is none; -1. */
static int no_line(enum line how, struct err *e)
{
	switch (how) {
	case LINE_TRUNCATED:
		return err_set(e, CA_DATAERR, "last line has no line feed");
	case LINE_LONG:
		return err_set(e, CA_DATAERR, "line is too long");
	case LINE_STOPPED:
		return err_set(e, CA_TEMPFAIL, "interrupted");
	default:
		return -1;
	}
}

int reader_records(const char *path,
		   int (*fn)(void *ctx, struct rec *r, struct err *e),
		   void *ctx, struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), rc = 0;
	struct reader in;
	enum line how;
	char *line;
	size_t len, at;
	struct rec r;

	if (fd < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", path);
	reader_init(&in, fd, -1);
	rec_init(&r);
	while (!rc && (how = reader_next(&in, &line, &len, e)) != LINE_END) {
		at = 1;
		if (how != LINE_OK)
			rc = no_line(how, e);
		else if (rec_parse(&r, line, len, &at, e))
			rc = err_wrap(e, "cannot parse record at byte %zu",
				      at);
		else
			rc = fn(ctx, &r, e);
		rec_reset(&r);
	}
	if (rc)
		err_wrap(e, "%s:%llu", path, (unsigned long long)in.lineno);
	rec_release(&r);
	reader_release(&in);
	close(fd);
	return rc;
}
