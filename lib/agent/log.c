/* SPDX-License-Identifier: Apache-2.0
 *
 * An append-only log.
 */
#define _GNU_SOURCE
#include "agent/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"

#define LOCK_SECONDS 3
#define EVENT_MAX ((size_t)64 << 20)

/* Waits for the rest of a process that was killed. */
static int lock(int fd)
{
	const struct timespec nap = { 0, 20000000 };
	int64_t end = deadline_in(LOCK_SECONDS);

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK || now_ns() > end)
			return -1;
		nanosleep(&nap, NULL);
	}
	return 0;
}

int log_open(struct log *l, const char *path, struct err *e)
{
	memset(l, 0, sizeof(*l));
	l->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC |
		     O_NOFOLLOW, 0644);
	if (l->fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot open '%s'", path);
	if (!lock(l->fd))
		return 0;
	if (errno == EWOULDBLOCK)
		err_set(e, CA_UNAVAILABLE, "another process works on '%s'",
			path);
	else
		err_sys(e, CA_IOERR, "cannot lock '%s'", path);
	close(l->fd);
	l->fd = -1;
	return -1;
}

void log_close(struct log *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	str_release(&l->line);
}

/* All of the file; whole lines only remain in it. */
static int load(struct log *l, struct str *all, struct err *e)
{
	char buf[65536];
	ssize_t n;
	off_t at = 0;

	all->cap = (size_t)1 << 30;
	while ((n = pread(l->fd, buf, sizeof(buf), at)) > 0) {
		if (str_add(all, buf, (size_t)n))
			return err_set(e, CA_DATAERR, "the log is too long");
		at += n;
	}
	if (n < 0)
		return err_sys(e, CA_IOERR, "cannot read the log");
	while (all->len && all->buf[all->len - 1] != '\n')
		all->len--;
	if ((off_t)all->len < at && ftruncate(l->fd, (off_t)all->len))
		return err_sys(e, CA_IOERR, "cannot cut the log");
	return 0;
}

int log_replay(struct log *l, int (*each)(void *ctx, const struct json *ev,
					  struct err *e),
	       void *ctx, struct err *e)
{
	struct str all = STR_INIT;
	const char *p, *nl;
	int count = 0, rc = load(l, &all, e);

	for (p = all.buf; !rc && p < all.buf + all.len; p = nl + 1) {
		struct json *ev;

		nl = memchr(p, '\n', (size_t)(all.buf + all.len - p));
		ev = json_parse(p, (size_t)(nl - p), EVENT_MAX, NULL, e);
		rc = ev ? each(ctx, ev, e) : -1;
		json_free(ev);
		count++;
	}
	str_release(&all);
	return rc ? err_wrap(e, "event %d of the log", count) : count;
}

struct jw *log_event(struct log *l, const char *name)
{
	str_reset(&l->line);
	l->line.failed = 0;
	jw_init(&l->w, &l->line);
	jw_obj(&l->w);
	jw_kstr(&l->w, "e", name);
	return &l->w;
}

int log_commit(struct log *l, int (*each)(void *ctx, const struct json *ev,
					  struct err *e),
	       void *ctx, struct err *e)
{
	struct json *ev;
	int rc;

	jw_end_obj(&l->w);
	str_addc(&l->line, '\n');
	if (l->line.failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	ev = json_parse(l->line.buf, l->line.len - 1, EVENT_MAX, NULL, e);
	if (!ev)
		return err_wrap(e, "own event");
	rc = write_full(l->fd, l->line.buf, l->line.len, e);
	l->dirty = 1;
	if (!rc)
		rc = each(ctx, ev, e);
	json_free(ev);
	/* A long one is not kept between events. */
	if (l->line.alloc > 65536)
		str_release(&l->line);
	return rc;
}

int log_sync(struct log *l, struct err *e)
{
	if (l->dirty && fdatasync(l->fd))
		return err_sys(e, CA_IOERR, "cannot write the log");
	l->dirty = 0;
	return 0;
}
