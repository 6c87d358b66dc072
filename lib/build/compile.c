/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a plan's compilers.  Below a temporary directory: src/ (the tree,
 * read only for the jail), out/N/ (what unit N's compiler may write, given
 * to that job's uid), obj/ (objects taken over by us, read by the link).
 */
#define _GNU_SOURCE
#include "build/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/io.h"
#include "build/limits.h"
#include "build/nvcc.h"
#include "build/part.h"
#include "build/pch.h"
#include "build/run.h"
#include "build/scratch.h"
#include "cu/lease.h"

#define OBJECT_MAX ((size_t)1 << 30)	/* a precompiled header has half */
#define COMPILER_MEMORY ((int64_t)8 << 30)	/* address space */
#define QUEUE_SECONDS 3600.0	/* waiting for other compilers to end */
#define ALL_TIMEOUTS 4		/* timeouts that one candidate may use up */

struct work {
	const struct plan *p;
	const struct compile_opts *o;
	struct scratch top;
	char src[CA_PATH_MAX], obj[CA_PATH_MAX], link[CA_PATH_MAX];
	struct pch pch;			/* laid out in obj */
	_Atomic size_t next;
	_Atomic int stop;		/* a unit failed: start no more */
	_Atomic long long spent_ms;
	struct result *result;
};

struct result {
	enum status status;
	int failed;			/* the machine's failure, in err */
	int started;
	struct str log;
	struct err err;
};

static int path_of(char out[CA_PATH_MAX], const char *dir, const char *name,
		   struct err *e)
{
	int n = snprintf(out, CA_PATH_MAX, "%s/%s", dir, name);

	if (n < 0 || n >= CA_PATH_MAX)
		return err_set(e, CA_SOFTWARE, "path is too long");
	return 0;
}

/* The directory that unit i's compiler writes. */
static int out_of(char out[CA_PATH_MAX], const struct work *w, size_t i,
		  struct err *e)
{
	char name[32];

	snprintf(name, sizeof(name), "out/%zu", i);
	return path_of(out, w->top.dir, name, e);
}

static int write_text(const char *dir, const char *name, const char *text,
		      size_t len, struct err *e)
{
	char path[CA_PATH_MAX], *slash;
	int fd, rc;

	if (path_of(path, dir, name, e) < 0)
		return -1;
	slash = strrchr(path, '/');
	*slash = '\0';
	if (mkdir_p(path, 0755, e) < 0)
		return -1;
	*slash = '/';
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", path);
	rc = write_full(fd, text, len, e);
	if (rc < 0)
		err_wrap(e, "'%s'", path);
	if (close(fd) < 0 && rc == 0)
		rc = err_sys(e, CA_IOERR, "cannot write '%s'", path);
	return rc;
}

static int write_tree(struct work *w, const struct source_tree *t,
		      struct err *e)
{
	size_t i;

	for (i = 0; i < t->n; i++)
		if (strcmp(t->file[i].path, "model_new.py") != 0 &&
		    write_text(w->src, t->file[i].path, t->file[i].text,
			       t->file[i].len, e) < 0)
			return -1;
	return 0;
}

static int lay_out(struct work *w, struct err *e)
{
	char path[CA_PATH_MAX];
	size_t i;

	if (scratch_make(&w->top, e) < 0 ||
	    path_of(w->src, w->top.dir, "src", e) < 0 ||
	    path_of(w->obj, w->top.dir, "obj", e) < 0 ||
	    path_of(w->link, w->top.dir, "out/link", e) < 0 ||
	    mkdir_p(w->src, 0755, e) < 0 || mkdir_p(w->obj, 0755, e) < 0 ||
	    mkdir_p(w->link, 0711, e) < 0)
		return -1;
	for (i = 0; i < w->p->nunit; i++)
		if (out_of(path, w, i, e) < 0 || mkdir_p(path, 0711, e) < 0)
			return -1;
	return write_tree(w, &w->p->tree, e) < 0 ||
	       write_tree(w, &w->p->made, e) < 0 ? -1 :
	       write_tree(w, &w->p->stubs, e);
}

/* Whether the disk that we build on is full: then it is not the candidate's
 * fault. */
static int disk_full(const char *dir)
{
	struct statvfs v;

	return statvfs(dir, &v) == 0 &&
	       v.f_bavail * v.f_frsize < (fsblkcnt_t)256 << 10;
}

/* A compiler's memory: what the machine has, less a quarter, at most 8 GiB. */
static int64_t memory_limit(void)
{
	struct limits l;
	int64_t m = COMPILER_MEMORY;

	limits_read(&l);
	if (l.memory < INT64_MAX && l.memory / 4 * 3 < m)
		m = l.memory / 4 * 3;
	return m < (int64_t)1 << 30 ? (int64_t)1 << 30 : m;
}

static enum status judge_run(const struct child_result *r,
			     const struct str *log)
{
	const char *text = log->buf ? log->buf : "";

	if (r->how == CHILD_TIMEOUT)
		return ST_BUILD_TIMEOUT;
	if (r->how == CHILD_EXITED && r->code == 0)
		return ST_OK;
	if (r->how == CHILD_OUTPUT)
		return ST_COMPILE_ERROR;
	if ((r->how == CHILD_SIGNALED && r->code == SIGKILL) ||
	    (r->how == CHILD_EXITED && r->code == 128 + SIGKILL) ||
	    log_says_oom(text, log->len))
		return ST_OOM;
	return ST_COMPILE_ERROR;
}

/* A compiler's run, while no clock of the toolkit's runs on the CPU. */
static int run_quiet(const struct compiler_run *c, double timeout,
		     struct result *res, struct child_result *r)
{
	struct compiler_run run = *c;
	int lease, rc;

	lease = lease_take("cpu", 0, QUEUE_SECONDS, &res->err);
	if (lease < 0)
		return -1;
	run.deadline = deadline_in(timeout);
	str_reset(&res->log);
	rc = compiler_run(&run, &res->log, r, &res->err);
	close(lease);
	return rc;
}

/* One attempt, with a place among the running compilers. */
static int attempt(struct work *w, const char *const *argv, const char *out,
		   int64_t memory, struct result *res)
{
	struct compiler_run c = { 0 };
	struct child_result r;
	const char *ro[12] = { w->obj };
	size_t i, n = 1;
	int rc;

	for (i = 0; i < PCH_KINDS; i++)
		if (w->pch.file[i][0])
			ro[n++] = w->pch.file[i];
	for (i = 0; w->p->ro[i] && n + 1 < sizeof(ro) / sizeof(*ro); i++)
		ro[n++] = w->p->ro[i];
	if (limits_enter(memory, w->o->jobs, deadline_in(QUEUE_SECONDS)) < 0)
		return err_set(&res->err, CA_TEMPFAIL,
			       "no compiler could start for an hour");
	c.level = w->o->level;
	c.argv = argv;
	c.dir = w->src;
	c.ro = ro;
	c.out = out;
	c.mem_bytes = memory_limit();
	rc = run_quiet(&c, w->o->timeout, res, &r);
	limits_leave(memory);
	if (rc < 0)
		return -1;
	w->spent_ms += (long long)(r.wall_ns / 1000000);
	if (r.how == CHILD_INTERRUPTED)
		return err_set(&res->err, CA_TEMPFAIL, "interrupted");
	res->status = judge_run(&r, &res->log);
	if (r.how == CHILD_OUTPUT)
		str_adds(&res->log, "\nerror: the compiler wrote too much\n");
	if (res->status != ST_OK && disk_full(w->top.dir))
		return err_set(&res->err, CA_IOERR, "no space left for "
			       "building in '%s'", w->top.dir);
	return 0;
}

/* Twice where memory ran out, the second time alone. */
static int run_tool(struct work *w, const char *const *argv, const char *out,
		    int64_t memory, struct result *res)
{
	double budget = w->o->timeout * ALL_TIMEOUTS * 1000;

	if ((double)w->spent_ms > budget) {
		res->status = ST_BUILD_TIMEOUT;
		return 0;
	}
	if (attempt(w, argv, out, memory, res) < 0)
		return -1;
	if (res->status == ST_OOM)
		return attempt(w, argv, out, LIMITS_ALONE, res);
	return 0;
}

/* Takes over what a jail has written: only a regular file, its bytes. */
static int take(const char *dir, const char *name, struct str *out,
		struct err *e)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc;

	if (fd < 0)
		return err_sys(e, CA_IOERR, "cannot open '%s'", dir);
	out->cap = OBJECT_MAX;
	rc = read_file_at(fd, name, OBJECT_MAX, 0, out, e);
	close(fd);
	return rc;
}

/* nvcc's command, with its steps where they can be told. */
static int run_nvcc(struct work *w, const struct plan_unit *u, size_t at,
		    const char *out, struct result *res)
{
	const char *argv[PLAN_ARGS];
	struct str steps = STR_INIT;
	int rc;

	memcpy(argv, u->argv, sizeof(argv));
	if (!nvcc_steps(w->p, u, w->o, &steps))
		argv[at] = steps.buf;
	rc = run_tool(w, argv, out, u->memory, res);
	str_release(&steps);
	return rc;
}

/* A unit's command, with the precompiled header that it begins with. */
static int run_unit(struct work *w, const struct plan_unit *u,
		    const char *out, struct result *res)
{
	const char *header = pch_of(w->p, u, &w->pch);
	const char *argv[PLAN_ARGS + 2] = { u->argv[0], "-include" };
	size_t at = nvcc_steps_at(u);
	char path[64];

	if (at)
		return run_nvcc(w, u, at, out, res);
	if (!header)
		return run_tool(w, u->argv, out, u->memory, res);
	snprintf(path, sizeof(path), "../obj/%s", header);
	argv[2] = path;
	for (size_t i = 1; u->argv[i]; i++)
		argv[i + 2] = u->argv[i];
	return run_tool(w, argv, out, u->memory, res);
}

/* Compiles a unit.  `key`: under which it is kept, or NULL. */
static int new_object(struct work *w, size_t i, const char *key,
		      struct str *obj, struct result *res)
{
	char out[CA_PATH_MAX];

	if (out_of(out, w, i, &res->err) < 0 ||
	    run_unit(w, &w->p->unit[i], out, res) < 0)
		return -1;
	if (res->status != ST_OK)
		return 0;
	if (take(out, "object.o", obj, &res->err) < 0) {
		err_clear(&res->err);
		res->status = ST_COMPILE_ERROR;
		str_adds(&res->log, "error: the compiler left no object\n");
	} else if (key && !res->log.len) {	/* warnings come each time */
		part_put(key, obj);
	}
	return 0;
}

static int build_unit(struct work *w, size_t i, struct result *res)
{
	char name[32], key[CACHE_KEY];
	int keyed = part_key(w->p, &w->p->unit[i], w->o->level, key);
	struct str obj = STR_INIT;
	int rc = -1;

	if (keyed && part_get(key, &obj))
		res->status = ST_OK;
	else if (new_object(w, i, keyed ? key : NULL, &obj, res) < 0)
		goto out;
	rc = 0;
	if (res->status != ST_OK)
		goto out;
	snprintf(name, sizeof(name), "%zu.o", i);
	rc = write_text(w->obj, name, obj.buf ? obj.buf : "", obj.len,
			&res->err);
out:
	str_release(&obj);
	return rc;
}

static void *worker(void *arg)
{
	struct work *w = arg;
	size_t i;

	while (!w->stop && (i = w->next++) < w->p->nunit) {
		struct result *res = &w->result[i];

		res->started = 1;
		res->failed = build_unit(w, i, res) < 0;
		if (res->failed || res->status != ST_OK)
			w->stop = 1;
	}
	return NULL;
}

/* As many threads as compilers may run; one is ours. */
static void build_units(struct work *w)
{
	pthread_t thread[64];
	struct limits l;
	size_t want, n = 0;

	limits_read(&l);
	want = w->o->jobs > 0 ? (size_t)w->o->jobs : (size_t)l.cores;
	want = want < w->p->nunit ? want : w->p->nunit;
	want = want < 64 ? want : 64;
	while (n + 1 < want && pthread_create(&thread[n], NULL, worker, w) == 0)
		n++;
	worker(w);
	while (n > 0)
		pthread_join(thread[--n], NULL);
}

/* Collects the units' logs; the first failure in unit order decides. */
static int gather(struct work *w, struct compiled *out, struct err *e)
{
	size_t i;

	out->status = ST_OK;
	for (i = 0; i < w->p->nunit; i++) {
		struct result *res = &w->result[i];

		if (res->failed)
			return err_set(e, res->err.code, "%s", res->err.msg);
		if (res->log.len)
			str_add(&out->log, res->log.buf, res->log.len);
		if (res->started && res->status != ST_OK &&
		    out->status == ST_OK) {
			out->status = res->status;
			out->unit = i;
		}
	}
	return 0;
}

static int link_object(struct work *w, struct compiled *out, struct err *e)
{
	struct result res = { 0 };
	int rc = -1;

	res.log.cap = 2 * COMPILER_LOG;
	out->unit = w->p->nunit;
	if (run_tool(w, w->p->link, w->link, (int64_t)1 << 29, &res) < 0) {
		err_set(e, res.err.code, "%s", res.err.msg);
		goto out;
	}
	rc = 0;
	out->status = res.status;
	if (res.log.len)
		str_add(&out->log, res.log.buf, res.log.len);
	if (res.status == ST_OK)
		rc = take(w->link, "object.so", &out->object, e);
out:
	str_release(&res.log);
	return rc;
}

/* The kernel form has one unit, and that is the object. */
static int take_unit(struct work *w, struct compiled *out, struct err *e)
{
	return take(w->obj, "0.o", &out->object, e);
}

int compile_plan(const struct plan *p, const struct compile_opts *o,
		 struct compiled *out, struct err *e)
{
	struct work w = { .p = p, .o = o, .top = SCRATCH_INIT };
	size_t i;
	int rc = -1;

	memset(out, 0, sizeof(*out));
	w.result = calloc(p->nunit, sizeof(*w.result));
	if (!w.result)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (i = 0; i < p->nunit; i++)
		w.result[i].log.cap = 2 * COMPILER_LOG;
	if (lay_out(&w, e) < 0)
		goto out;
	pch_lay_out(p, o, w.obj, &w.pch);
	build_units(&w);
	if (gather(&w, out, e) < 0)
		goto out;
	rc = 0;
	if (out->status == ST_OK)
		rc = p->link[0] ? link_object(&w, out, e) :
		     take_unit(&w, out, e);
out:
	scratch_drop(&w.top);
	for (i = 0; i < p->nunit; i++)
		str_release(&w.result[i].log);
	free(w.result);
	return rc;
}
