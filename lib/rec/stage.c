/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop of a filter.  Lines go into the slots of a ring; each slot is
 * prepared (checked), worked on and written, in this order.  With one job all
 * of that happens in the caller's thread, else workers and a writer share
 * the ring.
 */
#define _GNU_SOURCE
#include "rec/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/sig.h"
#include "rec/progress.h"
#include "rec/reader.h"
#include "rec/status.h"

enum slot_state { SLOT_FREE, SLOT_READY, SLOT_BUSY, SLOT_DONE };

enum slot_kind {
	SLOT_WORK,		/* a record for us */
	SLOT_PASS,		/* of another kind */
	SLOT_BAD,		/* no record: `out` holds the answer */
	SLOT_DROP		/* cut short by a signal */
};

struct slot {
	struct rec rec;
	const char *line;	/* as it came, in rec's arena */
	size_t len;
	struct str out;
	enum slot_state state;
	enum slot_kind kind;
	struct err err;		/* of record() */
	int failed;
	double share;		/* of the input, once this was read */
	char where[256];	/* for messages */
};

struct stage {
	const struct stage_ops *ops;
	const struct common *c;
	struct output out;

	/* Of the thread that reads. */
	int data_code, open_code;
	struct err read_err;
	uint64_t left;		/* records that -n still allows */
	uint64_t total, size_done;	/* bytes of regular files */
	double share;

	/* Of the thread that writes. */
	struct progress progress;
	int infra, fail_code;
	struct err write_err;
	int pipe_gone;

	struct slot *ring;
	size_t n;
	size_t head, work, tail;	/* next to fill, take, write */
	int closed;		/* nothing more is filled */
	atomic_int stop;	/* writing failed */
	int stop_fd;
	pthread_mutex_t lock;
	/* For the reader, the workers and the writer to wait for: one that
	 * all share would wake each of them for every record. */
	pthread_cond_t room, ready, done;
};

int stage_interrupted(void)
{
	return sig_caught();
}

/* The answer to a line that is no record. */
static void answer_bad(struct stage *s, struct slot *t, const char *file,
		       uint64_t line, size_t at, const struct err *e)
{
	t->kind = SLOT_BAD;
	s->data_code = CA_DATAERR;
	/* The error record says it too, hence no complaint under -q. */
	warn("%s: cannot parse record at byte %zu: %s", t->where, at, e->msg);
	rec_error(&t->out, file, line, at, e->msg);
}

/* The answer to a directory that makes no record; its error names it. */
static void answer_unread(struct stage *s, struct slot *t, const char *path)
{
	int code = t->err.code ? t->err.code : CA_SOFTWARE;

	t->kind = SLOT_BAD;
	if (code == CA_DATAERR)
		s->data_code = code;
	else if (code == CA_NOINPUT)
		s->open_code = code;
	else if (!s->read_err.code)
		s->read_err = t->err;
	if (code == CA_DATAERR || code == CA_NOINPUT)
		warn("%s", t->err.msg);
	rec_error(&t->out, path, 0, 0, t->err.msg);
}

static void classify(struct stage *s, struct slot *t)
{
	const struct stage_ops *o = s->ops;

	t->line = t->rec.line;
	t->len = t->rec.len;
	t->kind = !o->record || (o->wants && !o->wants(o->ctx, t->rec.kind)) ?
		  SLOT_PASS : SLOT_WORK;
}

static void slot_clear(struct slot *t)
{
	rec_reset(&t->rec);
	str_reset(&t->out);
	if (t->out.alloc > (size_t)1 << 20)
		str_release(&t->out);
	err_clear(&t->err);
	t->failed = 0;
}

static void prepare_line(struct stage *s, struct slot *t, const char *file,
			 uint64_t lineno, const char *line, size_t len)
{
	struct err e = ERR_INIT, own = ERR_INIT;
	size_t at = 1;

	if (rec_open(&t->rec, line, len, &at, &e)) {
		rec_reset(&t->rec);
		if (!s->ops->adopt || s->ops->adopt(s->ops->ctx, line, len,
						    &t->rec, &own)) {
			answer_bad(s, t, file, lineno, at,
				   own.code ? &own : &e);
			return;
		}
	}
	t->rec.lineno = lineno;
	classify(s, t);
}

/* What the tool does with a record; runs in any thread. */
static void work(const struct stage *s, struct slot *t)
{
	const struct stage_ops *o = s->ops;

	if (t->kind != SLOT_WORK)
		return;
	if (sig_caught()) {
		t->kind = SLOT_DROP;
		return;
	}
	t->failed = rec_tree(&t->rec, &t->err) ||
		    o->record(o->ctx, &t->rec, &t->err);
	if (sig_caught())
		t->kind = SLOT_DROP;
}

static int has_infra(const struct rec *r, const char *field)
{
	static const char word[] = "infra_error";
	size_t len = 0;
	const char *text = rec_text(r, field, &len);
	struct json *j;
	int yes;

	if (!text || !memmem(text, len, word, sizeof word - 1))
		return 0;
	j = json_parse(text, len, JSON_MAX_LINE, NULL, NULL);
	yes = status_parse(json_get_str(j, "status", NULL)) == ST_INFRA_ERROR;
	json_free(j);
	return yes;
}

static void report_failed(struct stage *s, struct slot *t)
{
	if (!s->fail_code)
		s->fail_code = t->err.code ? t->err.code : CA_SOFTWARE;
	complain("%s: %s", t->where, t->err.msg);
	s->progress.bad++;
	t->failed = 1;
}

/* Appends what goes out; a record that the tool failed on goes out as it came
 * in. */
static void render(struct stage *s, struct slot *t)
{
	if (!t->failed && rec_write(&t->rec, &t->out) == 0)
		return;
	if (!t->failed)
		err_set(&t->err, CA_DATAERR,
			"record would be longer than %zu bytes",
			JSON_MAX_LINE);
	report_failed(s, t);
	str_reset(&t->out);
	str_add(&t->out, t->line, t->len);
}

/* Whether fd takes n bytes without waiting for a reader. */
static int is_free(int fd, size_t n)
{
	struct stat st;
	int have = 0, room;

	if (fstat(fd, &st))
		return 0;
	if (S_ISREG(st.st_mode))
		return 1;
	room = S_ISFIFO(st.st_mode) ? fcntl(fd, F_GETPIPE_SZ) : 0;
	return room > 0 && n <= (size_t)room && !ioctl(fd, FIONREAD, &have) &&
	       !have;
}

static void let_rest(const struct stage *s)
{
	if (s->n == 1 && s->ops->rest)
		s->ops->rest(s->ops->ctx);
}

static int put_line(struct stage *s, struct slot *t)
{
	if (str_addc(&t->out, '\n'))
		return err_set(&s->write_err, CA_SOFTWARE,
			       "no memory for a line");
	/* Who is to read it may wait for what we hold until we rest. */
	if (!is_free(s->out.fd, t->out.len))
		let_rest(s);
	if (output_write(&s->out, t->out.buf, t->out.len, &s->write_err) ==
	    0) {
		s->progress.out++;
		return 0;
	}
	s->pipe_gone = errno == EPIPE;
	return -1;
}

static void count_written(struct stage *s, struct slot *t)
{
	const struct stage_ops *o = s->ops;
	const struct rec *r = &t->rec;

	s->progress.foreign += t->kind == SLOT_PASS;
	if ((r->kind == REC_CANDIDATE &&
	     (has_infra(r, "build") || has_infra(r, "verify") ||
	      has_infra(r, "profile"))) ||
	    ((r->kind == REC_CANDIDATE || r->kind == REC_TASK) &&
	     has_infra(r, "reference")) ||
	    (r->kind == REC_TASK && has_infra(r, "filter")))
		s->infra = CA_TEMPFAIL;
	if (o->status && t->kind == SLOT_WORK)
		progress_count(&s->progress, o->status(o->ctx, r));
}

/* Writes a finished slot, in order.  -1 when writing failed. */
static int finish(struct stage *s, struct slot *t)
{
	const struct stage_ops *o = s->ops;
	int write = !o->silent;

	s->progress.in++;
	s->progress.share = t->share;
	if (t->kind == SLOT_DROP)
		return 0;
	if (t->kind == SLOT_BAD) {
		s->progress.bad++;
		return write ? put_line(s, t) : 0;
	}
	if (o->keep && t->kind == SLOT_WORK && !t->failed &&
	    !o->keep(o->ctx, &t->rec))
		write = 0;
	render(s, t);
	if (write && put_line(s, t))
		return -1;
	count_written(s, t);
	if (o->done && t->kind == SLOT_WORK) {
		let_rest(s);	/* it may print */
		o->done(o->ctx, &t->rec);
	}
	progress_draw(&s->progress);
	return 0;
}

/* A free slot; NULL when the loop is to end. */
static struct slot *slot_take(struct stage *s)
{
	struct slot *t = &s->ring[s->head % s->n];

	if (s->n > 1) {
		pthread_mutex_lock(&s->lock);
		while (!s->stop && s->head - s->tail == s->n)
			pthread_cond_wait(&s->room, &s->lock);
		pthread_mutex_unlock(&s->lock);
	}
	if (s->stop)
		return NULL;
	slot_clear(t);
	return t;
}

/* Whether the thread that reads may write a slot itself, which takes less than
 * to wake the one that writes: nothing is before it, and nobody waits for a
 * reader of ours meanwhile. */
static int is_next(struct stage *s, const struct slot *t)
{
	struct pollfd p = { .fd = s->out.fd, .events = POLLOUT };
	int idle;

	if (t->kind != SLOT_PASS || t->len + 1 >= PIPE_BUF)
		return 0;
	pthread_mutex_lock(&s->lock);
	idle = s->head == s->tail;
	pthread_mutex_unlock(&s->lock);
	return idle && poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

/* Hands a prepared slot on.  -1 when the loop is to end. */
static int slot_give(struct stage *s, struct slot *t)
{
	t->share = s->share;
	if (s->n > 1 && is_next(s, t)) {
		s->stop = finish(s, t) != 0;
		return s->stop ? -1 : 0;
	}
	if (s->n == 1) {
		work(s, t);
		s->stop = finish(s, t) != 0;
		return s->stop ? -1 : 0;
	}
	pthread_mutex_lock(&s->lock);
	t->state = t->kind == SLOT_WORK ? SLOT_READY : SLOT_DONE;
	s->head++;
	pthread_cond_signal(t->state == SLOT_READY ? &s->ready : &s->done);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* The next slot to work on; NULL at the end.  Called with the lock. */
static struct slot *next_work(struct stage *s)
{
	for (;;) {
		while (s->work < s->head) {
			struct slot *t = &s->ring[s->work++ % s->n];

			if (t->state == SLOT_READY)
				return t;
		}
		if (s->closed || s->stop)
			return NULL;
		pthread_cond_wait(&s->ready, &s->lock);
	}
}

static void *worker(void *arg)
{
	struct stage *s = arg;
	struct slot *t;

	pthread_mutex_lock(&s->lock);
	while ((t = next_work(s))) {
		t->state = SLOT_BUSY;
		pthread_mutex_unlock(&s->lock);
		work(s, t);
		pthread_mutex_lock(&s->lock);
		t->state = SLOT_DONE;
		pthread_cond_signal(&s->done);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* Tells the reader, wherever it waits, that writing failed. */
static void stop_all(struct stage *s)
{
	uint64_t one = 1;

	s->stop = 1;
	if (write(s->stop_fd, &one, sizeof one) < 0)
		complain("cannot wake the reader");
	pthread_cond_signal(&s->room);
	pthread_cond_broadcast(&s->ready);
}

static void *writer(void *arg)
{
	struct stage *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stop && !(s->closed && s->tail == s->head)) {
		struct slot *t = &s->ring[s->tail % s->n];
		int rc;

		if (s->tail == s->head || t->state != SLOT_DONE) {
			pthread_cond_wait(&s->done, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		rc = finish(s, t);
		pthread_mutex_lock(&s->lock);
		t->state = SLOT_FREE;
		s->tail++;
		if (rc)
			stop_all(s);
		pthread_cond_signal(&s->room);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void read_failed(struct stage *s, const char *name, struct err *e)
{
	err_wrap(e, "%s", name);
	if (e->code == CA_NOINPUT) {
		s->open_code = CA_NOINPUT;
		complain("%s", e->msg);
	} else if (!s->read_err.code) {
		s->read_err = *e;
	}
}

/* One line into one slot.  -1 when the loop is to end. */
static int take_line(struct stage *s, const struct reader *r, enum line how,
		     const char *name, const char *line, size_t len)
{
	const char *file = strcmp(name, "stdin") == 0 ? NULL : name;
	struct slot *t = slot_take(s);
	struct err e = ERR_INIT;

	if (!t)
		return -1;
	snprintf(t->where, sizeof t->where, "%s:%llu", name,
		 (unsigned long long)r->lineno);
	if (how == LINE_LONG) {
		err_set(&e, CA_DATAERR, "line longer than %zu bytes",
			JSON_MAX_LINE);
		answer_bad(s, t, file, r->lineno, JSON_MAX_LINE + 1, &e);
	} else {
		prepare_line(s, t, file, r->lineno, line, len);
	}
	if (how == LINE_TRUNCATED) {
		s->data_code = CA_DATAERR;
		complain("%s: last line has no line feed", t->where);
	}
	if (s->total)
		s->share = (double)(s->size_done + r->bytes) /
			   (double)s->total;
	return slot_give(s, t);
}

/* All lines of fd. */
static void read_lines(struct stage *s, int fd, const char *name)
{
	struct err e = ERR_INIT;
	struct reader r;
	char *line = NULL;
	size_t len = 0;

	reader_init(&r, fd, s->n > 1 ? s->stop_fd : -1);
	while (s->left) {
		enum line how;

		if (s->ops->idle && s->n == 1 && reader_empty(&r))
			s->ops->idle(s->ops->ctx, fd);
		else
			let_rest(s);
		how = reader_next(&r, &line, &len, &e);
		if (how == LINE_ERROR)
			read_failed(s, name, &e);
		if (how == LINE_ERROR || how == LINE_END ||
		    how == LINE_STOPPED)
			break;
		s->left--;
		if (take_line(s, &r, how, name, line, len))
			break;
	}
	s->size_done += r.bytes;
	reader_release(&r);
}

static void cannot_open(struct stage *s, const char *path)
{
	struct err e = ERR_INIT;

	s->open_code = CA_NOINPUT;
	err_sys(&e, CA_NOINPUT, "cannot open '%s'", path);
	complain("%s", e.msg);
}

static void read_directory(struct stage *s, const char *path)
{
	const struct stage_ops *o = s->ops;
	struct slot *t;

	if (!o->directory) {
		errno = EISDIR;
		cannot_open(s, path);
		return;
	}
	t = slot_take(s);
	if (!t)
		return;
	snprintf(t->where, sizeof t->where, "%s", path);
	s->left--;
	if (o->directory(o->ctx, path, &t->rec, &t->err) ||
	    rec_refresh(&t->rec, &t->err))
		answer_unread(s, t, path);
	else
		classify(s, t);
	slot_give(s, t);
	let_rest(s);
}

/* An operand that the tool opens itself. */
static void read_opened(struct stage *s, const char *path)
{
	const char *name = strcmp(path, "-") ? path : "stdin";
	struct err e = ERR_INIT;
	int fd = s->ops->open(s->ops->ctx, path, &e);

	if (fd < 0) {
		if (e.code == CA_NOINPUT)
			s->open_code = CA_NOINPUT;
		else if (!s->read_err.code)
			s->read_err = e;
		if (e.code == CA_NOINPUT)
			complain("%s", e.msg);
		return;
	}
	read_lines(s, fd, name);
	close(fd);
}

static void read_operand(struct stage *s, const char *path)
{
	struct stat st;
	int fd;

	if (s->ops->open) {
		read_opened(s, path);
		return;
	}
	if (strcmp(path, "-") == 0) {
		read_lines(s, STDIN_FILENO, "stdin");
		return;
	}
	if (stat(path, &st)) {
		cannot_open(s, path);
		return;
	}
	if (S_ISDIR(st.st_mode)) {
		read_directory(s, path);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		if (errno != EINTR || !sig_caught())
			cannot_open(s, path);
		return;
	}
	read_lines(s, fd, path);
	close(fd);
}

/* Bytes to come, when all operands are regular files. */
static uint64_t total_size(int argc, char **argv, int first)
{
	uint64_t total = 0;
	struct stat st;
	int i;

	if (first == argc && fstat(STDIN_FILENO, &st) == 0 &&
	    S_ISREG(st.st_mode))
		return (uint64_t)st.st_size;
	for (i = first; i < argc; i++) {
		if (stat(argv[i], &st) || !S_ISREG(st.st_mode))
			return 0;
		total += (uint64_t)st.st_size;
	}
	return total;
}

static void read_all(struct stage *s, int argc, char **argv, int first)
{
	int i;

	s->total = s->ops->open ? 0 : total_size(argc, argv, first);
	if (first == argc)
		read_operand(s, "-");
	for (i = first; i < argc && s->left && !s->stop && !sig_caught(); i++) {
		if (!s->total)
			s->share = (double)(i - first + 1) / (argc - first);
		read_operand(s, argv[i]);
	}
}

/* Reads all input while `jobs` workers and a writer run. */
static int run_threads(struct stage *s, size_t jobs, int argc, char **argv,
		       int first)
{
	pthread_t *id = calloc(jobs + 1, sizeof *id);
	size_t n = 0, i;
	int rc = 0;

	if (!id)
		return err_set(&s->read_err, CA_SOFTWARE, "no memory");
	while (rc == 0 && n <= jobs) {
		rc = pthread_create(&id[n], NULL, n ? worker : writer, s);
		n += rc == 0;
	}
	if (rc)
		err_set(&s->read_err, CA_SOFTWARE, "cannot start a thread");
	else
		read_all(s, argc, argv, first);
	pthread_mutex_lock(&s->lock);
	s->closed = 1;
	pthread_cond_broadcast(&s->ready);
	pthread_cond_signal(&s->done);
	pthread_mutex_unlock(&s->lock);
	for (i = 0; i < n; i++)
		pthread_join(id[i], NULL);
	free(id);
	return 0;
}

static int exit_code(const struct stage *s)
{
	if (sig_caught())
		return 128 + sig_caught();
	if (s->pipe_gone)
		return 128 + SIGPIPE;
	if (s->write_err.code)
		return s->write_err.code;
	if (s->read_err.code)
		return s->read_err.code;
	if (s->data_code)
		return s->data_code;
	if (s->open_code)
		return s->open_code;
	return s->infra ? s->infra : s->fail_code;
}

static int stage_open(struct stage *s, size_t jobs, struct err *e)
{
	s->n = jobs > 1 ? 2 * jobs : 1;
	s->ring = calloc(s->n, sizeof *s->ring);
	if (!s->ring)
		return err_set(e, CA_SOFTWARE, "no memory");
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (s->stop_fd < 0)
		return err_sys(e, CA_SOFTWARE, "cannot make an event");
	if (sig_catch(e))
		return -1;
	signal(SIGPIPE, SIG_IGN);
	return output_open(&s->out, s->c->out, e);
}

static void stage_close(struct stage *s)
{
	size_t i;

	/* What was finished is kept even when the rest was not reached. */
	output_close(&s->out, !s->write_err.code, &s->write_err);
	if (s->write_err.code && !s->pipe_gone)
		complain("%s", s->write_err.msg);
	if (s->read_err.code)
		complain("%s", s->read_err.msg);
	for (i = 0; i < s->n && s->ring; i++) {
		rec_release(&s->ring[i].rec);
		str_release(&s->ring[i].out);
	}
	free(s->ring);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	pthread_cond_destroy(&s->room);
	pthread_cond_destroy(&s->ready);
	pthread_cond_destroy(&s->done);
	pthread_mutex_destroy(&s->lock);
}

int stage_run(const struct stage_ops *ops, const struct common *c, int argc,
	      char **argv, int first)
{
	size_t jobs = c->jobs > 1 ? (size_t)c->jobs : 1;
	struct stage s = { .ops = ops, .c = c, .stop_fd = -1, .out.fd = -1,
			   .share = -1 };

	if (first == argc && isatty(STDIN_FILENO)) {
		complain("no operand, and stdin is a terminal; try '%s --help'",
		     ops->name);
		return CA_USAGE;
	}
	pthread_mutex_init(&s.lock, NULL);
	pthread_cond_init(&s.room, NULL);
	pthread_cond_init(&s.ready, NULL);
	pthread_cond_init(&s.done, NULL);
	progress_init(&s.progress, ops->name, c->quiet);
	s.left = c->limit >= 0 ? (uint64_t)c->limit : UINT64_MAX;
	if (stage_open(&s, jobs, &s.write_err) == 0) {
		if (jobs > 1)
			run_threads(&s, jobs, argc, argv, first);
		else
			read_all(&s, argc, argv, first);
	}
	progress_wipe(&s.progress);
	stage_close(&s);
	if (c->verbose)
		progress_totals(&s.progress);
	return exit_code(&s);
}
