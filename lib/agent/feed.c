/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading tasks as they are needed.
 */
#define _GNU_SOURCE
#include "agent/feed.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/sig.h"
#include "build/source.h"
#include "build/workdir.h"
#include "rec/reader.h"

struct feed {
	struct feed_opts o;
	char **name;		/* operands that are left; NULL: stdin */
	int left, from_stdin;
	struct reader r;
	int open;		/* r is */
	const char *where;	/* its operand */
	char *task, *code;	/* of which rollouts are being made */
	int64_t made;		/* of them so far */
	int64_t tasks;
	uint64_t size, before;	/* of all operands; of those behind */
	int ended, code_bad, code_open;
	void *seen;		/* tree of the tasks' ids, with counts */
};

struct seen {
	char id[REC_ID_LEN];
	int64_t n;		/* rollouts made of it */
};

static int seen_order(const void *a, const void *b)
{
	return strcmp(((const struct seen *)a)->id,
		      ((const struct seen *)b)->id);
}

/* Bytes of all operands; 0: not all are files. */
static uint64_t total_size(const struct feed *f)
{
	struct stat st;
	uint64_t sum = 0;
	int i;

	for (i = 0; i < f->left; i++) {
		if (stat(f->name[i], &st) || !S_ISREG(st.st_mode))
			return 0;
		sum += (uint64_t)st.st_size;
	}
	return sum;
}

struct feed *feed_open(const struct feed_opts *o, int argc, char **argv,
		       int first, struct err *e)
{
	struct feed *f = calloc(1, sizeof(*f));

	if (!f) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	f->o = *o;
	f->name = argv + first;
	f->left = argc - first;
	f->from_stdin = !f->left;
	f->size = total_size(f);
	if (!f->from_stdin || !isatty(STDIN_FILENO))
		return f;
	free(f);
	err_set(e, CA_USAGE, "no input: standard input is a terminal");
	return NULL;
}

static void close_reader(struct feed *f)
{
	if (f->open && f->r.fd > 2)
		close(f->r.fd);
	if (f->open) {
		f->before += f->r.bytes;
		reader_release(&f->r);
	}
	f->open = 0;
}

static void drop_task(struct feed *f)
{
	free(f->task);
	free(f->code);
	f->task = f->code = NULL;
}

void feed_close(struct feed *f)
{
	if (!f)
		return;
	close_reader(f);
	drop_task(f);
	tdestroy(f->seen, free);
	free(f);
}

void feed_close_fd(struct feed *f)
{
	if (f->open && f->r.fd > 2)
		close(f->r.fd);
}

double feed_share(const struct feed *f)
{
	uint64_t at = f->before + (f->open ? f->r.bytes : 0);

	return f->size ? (double)at / (double)f->size : -1;
}

int feed_ended(const struct feed *f)
{
	return f->ended && !f->task;
}

int feed_code(const struct feed *f)
{
	return f->code_bad ? f->code_bad : f->code_open;
}

static int take_task(struct feed *f, const char *code)
{
	char id[REC_ID_LEN];

	task_id(code, strlen(code), id);
	f->task = strdup(id);
	f->code = strdup(code);
	f->made = 0;
	f->tasks++;
	f->o.progress->in++;
	if (f->task && f->code)
		return 0;
	drop_task(f);
	return -1;
}

/* Hands a line on, or nothing when there was no memory for it, and frees it. */
static void pass_line(struct feed *f, struct str *line)
{
	str_addc(line, '\n');
	if (!line->failed)
		f->o.pass(f->o.ctx, line->buf, line->len);
	str_release(line);
}

static void bad_line(struct feed *f, size_t at, const char *why)
{
	struct str out = STR_INIT;

	f->code_bad = CA_DATAERR;
	f->o.progress->bad++;
	warn("%s:%llu: cannot parse record at byte %zu: %s", f->where,
	     (unsigned long long)f->r.lineno, at, why);
	rec_error(&out, strcmp(f->where, "stdin") ? f->where : NULL,
		  f->r.lineno, at, why);
	pass_line(f, &out);
}

static void pass_on(struct feed *f, const char *line, size_t len)
{
	struct str out = STR_INIT;

	f->o.progress->foreign++;
	str_add(&out, line, len);
	pass_line(f, &out);
}

static void take_line(struct feed *f, const char *line, size_t len)
{
	struct err e = ERR_INIT;
	const char *code;
	struct rec r;
	size_t at = 1;

	rec_init(&r);
	if (rec_parse(&r, line, len, &at, &e)) {
		bad_line(f, at, e.msg);
	} else if (r.kind != REC_TASK) {
		pass_on(f, line, len);
	} else if (json_bool(rec_get(&r, "keep"), 1)) {
		code = workdir_code(&r);
		if (!code || !*code)
			bad_line(f, 1, "the task has no code");
		else if (strlen(code) > SOURCE_MAX_FILE)
			bad_line(f, 1, "the task's code is too long for a "
				 "file of a candidate");
		else
			take_task(f, code);
	}
	rec_release(&r);
}

static void read_line(struct feed *f)
{
	struct err e = ERR_INIT;
	size_t len;
	char *line;

	switch (reader_next(&f->r, &line, &len, &e)) {
	case LINE_OK:
		take_line(f, line, len);
		return;
	case LINE_LONG:
		bad_line(f, JSON_MAX_LINE, "line is too long");
		return;
	case LINE_TRUNCATED:
		bad_line(f, len + 1, "no line feed at the end");
		break;
	case LINE_ERROR:
		complain("%s: %s", f->where, e.msg);
		f->code_bad = CA_IOERR;
		break;
	default:
		break;
	}
	close_reader(f);
}

static void take_workdir(struct feed *f, const char *path)
{
	struct err e = ERR_INIT;
	const char *code;
	struct rec r;

	rec_init(&r);
	if (workdir_read(path, &r, &e)) {
		complain("%s", e.msg);
		f->code_open = e.code;
	} else if (!(code = workdir_code(&r)) || !*code) {
		complain("'%s/model.py' is empty", path);
		f->code_bad = CA_DATAERR;
	} else {
		take_task(f, code);
	}
	rec_release(&r);
}

/* The next operand. */
static void open_next(struct feed *f)
{
	const char *name = f->from_stdin ? "-" : *f->name;
	struct stat st;
	int fd = STDIN_FILENO;

	if (!f->from_stdin && !f->left) {
		f->ended = 1;
		return;
	}
	if (f->from_stdin && f->where) {
		f->ended = 1;
		return;
	}
	f->name += !f->from_stdin;
	f->left -= !f->from_stdin;
	f->where = strcmp(name, "-") ? name : "stdin";
	if (strcmp(name, "-")) {
		if (!stat(name, &st) && S_ISDIR(st.st_mode)) {
			take_workdir(f, name);
			return;
		}
		fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	}
	if (fd < 0) {
		complain("cannot open '%s': %s", name, strerror(errno));
		f->code_open = CA_NOINPUT;
		return;
	}
	reader_init(&f->r, fd, -1);
	f->open = 1;
}

int feed_fd(const struct feed *f)
{
	return f->open && !f->ended ? f->r.fd : -1;
}

/* Same task, model and seed in one run: the next number. */
static int64_t number(struct feed *f)
{
	struct seen *s = calloc(1, sizeof(*s));
	void *found;

	if (!s)
		return f->made;
	strcpy(s->id, f->task);
	found = tsearch(s, &f->seen, seen_order);
	if (found && *(struct seen **)found != s) {
		free(s);
		s = *(struct seen **)found;
	}
	return s->n++;
}

static void make_job(struct feed *f, struct job *j)
{
	int64_t k = number(f);
	char path[4300];
	uint64_t seed[2] = { f->o.agent->seed, (uint64_t)k };
	uint8_t sum[HASH_LEN];

	memset(j, 0, sizeof(*j));
	j->task = strdup(f->task);
	j->code = strdup(f->code);
	agent_id(f->o.agent, f->task, k, j->id);
	sha256(seed, sizeof(seed), sum);
	memcpy(&j->seed, sum, sizeof(j->seed));
	snprintf(path, sizeof(path), "%s/%s", f->o.agent->dir, j->id);
	j->resume = !access(path, F_OK);
	if (j->resume && !f->o.resume) {
		complain("'%s' is there already; --resume goes on with it",
			 path);
		f->code_open = CA_CANTCREAT;
		j->refused = 1;
	}
	if (++f->made == f->o.k)
		drop_task(f);
}

int feed_next(struct feed *f, struct job *j)
{
	while (!f->task && !f->ended) {
		/* Who writes slowly must not keep the judges waiting. */
		if (sig_caught() || (f->open && !reader_ready(&f->r)))
			return 0;
		if (f->o.limit >= 0 && f->tasks >= f->o.limit)
			f->ended = 1;
		else if (f->open)
			read_line(f);
		else
			open_next(f);
	}
	if (!f->task)
		return 0;
	make_job(f, j);
	return 1;
}
