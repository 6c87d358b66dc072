/* SPDX-License-Identifier: Apache-2.0
 *
 * Candidates and baselines: one confined process each, the same shim, the
 * same memory, the same loop.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "build/audit.h"
#include "judge/ahead.h"
#include "judge/rules.h"
#include "judge/session.h"
#include "judge/witness.h"

#define POOL_FLOOR ((size_t)64 << 20)
#define POOL_ZONES ((size_t)64 << 10)	/* beside its blocks */
#define POOL_COPIES 8	/* CUDA: its share for copies (lib/torch/cuda.py) */
#define HOST_SECONDS 120
#define DESC_BYTES ((size_t)1 << 20)

int fail_set(struct fail *f, enum status s, uint32_t phase, const char *fmt,
	     ...)
{
	va_list ap;

	f->status = s;
	f->phase = phase;
	f->fault = s == ST_INFRA_ERROR;
	f->oom = f->doubt = 0;
	f->apart = f->killed = 0;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	return -1;
}

int fail_device(struct fail *f, const struct err *e)
{
	fail_set(f, ST_INFRA_ERROR, 0, "%s", e->msg);
	f->oom = e->code == CA_UNAVAILABLE;
	return -1;
}

const char *phase_name(uint32_t phase)
{
	static const char *const name[] = {
		NULL, "load", "construct", "state", "inputs", "forward",
		"result",
	};

	return phase < sizeof(name) / sizeof(name[0]) ? name[phase] : NULL;
}

int host_ready(struct judge *j, struct fail *f)
{
	struct err e = ERR_INIT;
	int64_t began = now_ns();
	int rc;

	j->no_torch = 0;
	if (!j->host)
		j->host = torch_start(NULL, strcmp(j->jail, "none"), &e);
	rc = j->host ? torch_ready(j->host, HOST_SECONDS, &e) : -1;
	spent(j, SPENT_HOST, began);
	if (!rc) {
		device_hosted(j->dev, torch_pid(j->host));
		return 0;
	}
	if (e.code == CA_UNAVAILABLE || e.code == CA_CONFIG)
		j->no_torch = e.code;
	ahead_leave(j);
	return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
}

int host_alive(struct judge *j)
{
	return j->host && !torch_pump(j->host, NULL) &&
	       torch_fd(j->host) >= 0;
}

/* A status for the way in which a child says that a request ended. */
static enum status status_of_end(uint32_t end)
{
	switch (end) {
	case END_OK:
		return ST_OK;
	case END_PARAM_MISMATCH:
		return ST_PARAM_MISMATCH;
	case END_OOM:
	case END_POOL:
		return ST_OOM;
	case END_UNSUPPORTED:
		return ST_WRONG_SHAPE;
	case END_SYNTAX:
	case END_NO_CLASS:
	case END_CONSTRUCT:
	case END_RAISED:
		return ST_CRASHED;
	case END_JAIL:
	case END_BAD_REQUEST:
		return ST_INFRA_ERROR;
	default:
		return ST_TAMPERED;
	}
}

/* The runner's process ended by itself: find out how, and whose fault. */
static int ended(struct judge *j, struct runner *r, uint32_t phase,
		 struct fail *f)
{
	struct err e = ERR_INIT;
	int st;

	if (!host_alive(j)) {
		fail_set(f, ST_CRASHED, phase, "the torch host ended while "
			 "the candidate ran");
		f->fault = 1;
		return -1;
	}
	j->dev->ops->detach(j->dev, r);
	if (torch_kill(j->host, &r->child, &e)) {
		fail_set(f, ST_CRASHED, phase, "%s", e.msg);
		f->fault = 1;
		return -1;
	}
	st = r->ended != -1 ? r->ended : r->child.status;
	if (WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL) {
		/* Nobody of ours kills without saying so: the kernel, short of
		 * memory, or a person.  Judged again; a second one counts. */
		fail_set(f, ST_KILLED, phase, "killed (signal 9)");
		f->fault = 1;
		return -1;
	}
	if (WIFSIGNALED(st))
		return fail_set(f, ST_CRASHED, phase, "signal %d (%s)",
				WTERMSIG(st), strsignal(WTERMSIG(st)));
	return fail_set(f, ST_CRASHED, phase, "the process exited with "
			"status %d", WIFEXITED(st) ? WEXITSTATUS(st) : -1);
}

/* What a person can lift. */
static const char *limit_name(const struct judge *j, const struct runner *r,
			      uint32_t phase, double limit)
{
	if (phase != PHASE_FORWARD && limit == j->o.load_s)
		return "--load-timeout";
	return r->brackets > 1 ? "--timeout" : "--first-timeout";
}

/* Turns what the device says of an answer into a failure, if it is one. */
static int settle(struct judge *j, struct runner *r, enum torch_wait w,
		  const struct ca_msg *m, uint32_t phase, double limit,
		  struct fail *f)
{
	char text[CA_TEXT];

	switch (w) {
	case WAIT_TIMEOUT:
		return fail_set(f, ST_TIMEOUT, phase,
				"no answer within %g s (%s)", limit,
				limit_name(j, r, phase, limit));
	case WAIT_GARBAGE:
		return fail_set(f, ST_TAMPERED, phase,
				"the answer is not the shim's");
	case WAIT_GONE:
		return ended(j, r, phase, f);
	case WAIT_OK:
		break;
	}
	if (m->end == END_OK)
		return 0;
	memcpy(text, m->text, sizeof(text));
	text[sizeof(text) - 1] = '\0';
	return fail_set(f, status_of_end(m->end),
			m->phase <= PHASE_RESULT && m->phase ? m->phase :
			phase, "%s", text);
}

/* The answer to a request. */
static int hear(struct judge *j, struct runner *r, uint32_t phase,
		double limit, struct fail *f)
{
	struct ca_msg m;
	enum torch_wait w = j->dev->ops->answer(j->dev, r, &m,
						deadline_in(limit));

	return settle(j, r, w, &m, phase, limit, f);
}

static int ask(struct judge *j, struct runner *r, const struct str *req,
	       const int *fds, size_t nfds, uint32_t phase, double limit,
	       struct ca_msg *m, struct fail *f)
{
	struct err e = ERR_INIT;
	enum torch_wait w = WAIT_GONE;

	if (req->failed)
		return fail_set(f, ST_INFRA_ERROR, phase, "out of memory");
	if (!torch_send(&r->child, req->buf, req->len, fds, nfds, &e))
		w = j->dev->ops->answer(j->dev, r, m, deadline_in(limit));
	return settle(j, r, w, m, phase, limit, f);
}

static int request(struct judge *j, struct runner *r, const struct str *req,
		   const int *fds, size_t nfds, uint32_t phase, double limit,
		   struct fail *f)
{
	struct ca_msg m;

	return ask(j, r, req, fds, nfds, phase, limit, &m, f);
}

static size_t pool_bytes(const struct judge *j, const struct oracle *o)
{
	size_t want = 2 * o->input_bytes + 6 * o->expect_bytes +
		      o->param_bytes + POOL_ZONES;
	size_t copies = judge_on_cuda(j) ?
			POOL_COPIES * (o->expect_bytes + POOL_ZONES) : 0;

	if (want < copies)
		want = copies;
	return want > POOL_FLOOR ? want : POOL_FLOOR;
}

/* What a baseline keeps for the next runner, in the order of judge.spare. */
static void memory_of(struct runner *r, struct mem *m[RUNNER_MEMS])
{
	m[0] = &r->in[0];
	m[1] = &r->in[1];
	m[2] = &r->slots;
	m[3] = &r->params;
	m[4] = &r->pool;
}

static int make_pool(struct judge *j, size_t bytes, uint64_t poison,
		     struct mem *m, struct err *e)
{
	const struct device_ops *d = j->dev->ops;

	return d->shared(j->dev, bytes, 0, m, e) ||
	       d->poison(j->dev, m, 0, m->bytes, poison, e) ? -1 : 0;
}

void runner_ahead(struct judge *j)
{
	struct mem *pool = &j->spare[RUNNER_MEMS - 1];
	struct rng own;		/* a replay draws the same without it */

	if (judge_on_cuda(j) || pool->p)
		return;
	rng_fresh(&own);
	if (make_pool(j, POOL_FLOOR, rng_u64(&own), pool, NULL))
		j->dev->ops->release(j->dev, pool);
}

/* All the memory a runner will need, before it starts. */
static int allocate(struct judge *j, const struct oracle *o,
		    struct runner *r, struct fail *f)
{
	const size_t bytes[RUNNER_MEMS] = {
		o->input_bytes, o->input_bytes,
		2 * CA_SLOTS * sizeof(struct ca_slot), o->param_bytes,
		pool_bytes(j, o),
	};
	const struct device_ops *d = j->dev->ops;
	uint64_t poison = rng_u64(&j->rng);
	struct mem *m[RUNNER_MEMS];
	struct err e = ERR_INIT;

	memory_of(r, m);
	for (size_t i = 0; i < RUNNER_MEMS; i++) {
		int rc;

		if (m[i]->p)		/* from a first try */
			continue;
		if (j->spare[i].p && j->spare[i].bytes >= bytes[i]) {
			*m[i] = j->spare[i];
			j->spare[i] = (struct mem)MEM_NONE;
			continue;
		}
		if (m[i] == &r->pool)
			rc = make_pool(j, bytes[i], poison, m[i], &e);
		else
			rc = d->shared(j->dev, bytes[i], m[i] == &r->slots,
				       m[i], &e);
		if (rc)
			return fail_device(f, &e);
	}
	if (d->copy(j->dev, &r->params, 0, &o->params, 0, o->param_bytes,
		    &e) ||
	    (r->tabled && d->shared(j->dev, DESC_BYTES, 1, &r->desc, &e)))
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	return 0;
}

void region_request(struct str *req, const char *op, const char *const *names,
		    struct mem *const *mems, size_t n, int *fds)
{
	struct jw w;

	jw_init(&w, req);
	jw_obj(&w);
	jw_kstr(&w, "op", op);
	jw_key(&w, "regions");
	jw_arr(&w);
	for (size_t i = 0; i < n; i++) {
		jw_obj(&w);
		jw_kstr(&w, "name", names[i]);
		jw_kint(&w, "bytes", (int64_t)mems[i]->bytes);
		jw_kbool(&w, "host", mems[i]->host);
		jw_end_obj(&w);
		fds[i] = mems[i]->fd;
	}
	jw_end_arr(&w);
	jw_end_obj(&w);
}

static int map(struct judge *j, struct runner *r, struct fail *f)
{
	static const char *const names[] = { "in0", "in1", "slots", "params",
					     "pool", "desc" };
	struct mem *const mems[] = { &r->in[0], &r->in[1], &r->slots,
				     &r->params, &r->pool, &r->desc };
	size_t n = sizeof(mems) / sizeof(mems[0]) - !r->tabled;
	struct str req = STR_INIT;
	int fds[6], rc;

	region_request(&req, "map", names, mems, n, fds);
	rc = request(j, r, &req, fds, n, 0, j->o.load_s, f);
	str_release(&req);
	return rc;
}

/* The JSON that binds a program to memory. */
static int spec_fd(const struct oracle *o, const struct program *p,
		   struct err *e)
{
	static const char *const parts[] = { "init", "state", "inputs" };
	struct str s = STR_INIT;
	struct jw w;
	int fd = -1;

	jw_init(&w, &s);
	jw_obj(&w);
	for (size_t i = 0; i < 3; i++) {
		jw_key(&w, parts[i]);
		jw_node(&w, json_get(o->spec, parts[i]));
	}
	jw_key(&w, "launchers");
	if (p->launchers)
		jw_raw(&w, p->launchers, strlen(p->launchers));
	else
		jw_null(&w);
	jw_end_obj(&w);
	if (s.failed)
		err_set(e, CA_SOFTWARE, "out of memory");
	else
		fd = memfd_of(s.buf, s.len, e);
	str_release(&s);
	return fd;
}

/*
 * The object as a memfd: a sealed child may open nothing below the cache, and
 * what it loads cannot change under it.  By this file the witness knows the
 * candidate's code; a copy stays here for those who look into it.
 */
static int object_fd(struct runner *r, const char *path, struct err *e)
{
	int fd;

	if (read_file(path, BUILD_OBJECT_MAX, &r->image, e))
		return -1;
	fd = memfd_code(r->image.buf, r->image.len, e);
	if (fd >= 0 && r->witness &&
	    witness_own(r->witness, fd,
			audit_wants_blas(r->image.buf, r->image.len), e)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int load(struct judge *j, const struct oracle *o, struct runner *r,
		const struct program *p, struct fail *f)
{
	struct str req = STR_INIT;
	struct err e = ERR_INIT;
	struct jw w;
	int fds[3] = { -1, -1, -1 }, n = 2, rc = -1;

	fds[0] = memfd_of(p->code, p->codelen, &e);
	fds[1] = spec_fd(o, p, &e);
	jw_init(&w, &req);
	jw_obj(&w);
	jw_kstr(&w, "op", "load");
	jw_kint(&w, "code", 0);
	jw_kint(&w, "spec", 1);
	if (p->object) {
		fds[2] = object_fd(r, p->object, &e);
		jw_kint(&w, "object", 2);
		jw_kstr(&w, "form", p->form);
		n = 3;
	}
	if (p->mode)
		jw_kstr(&w, "mode", p->mode);
	if (j->rules->own_state) {
		jw_ku64(&w, "seed", o->seed);
		jw_kbool(&w, "own_state", 1);
	}
	jw_kint(&w, "threads", sysconf(_SC_NPROCESSORS_ONLN));
	jw_end_obj(&w);
	j->loaded |= !strcmp(r->role, "worker");
	if (fds[0] < 0 || fds[1] < 0 || (p->object && fds[2] < 0))
		fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	else
		rc = request(j, r, &req, fds, (size_t)n, PHASE_LOAD,
			     j->o.load_s, f);
	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	str_release(&req);
	return rc;
}

static void runner_clear(struct runner *r, const char *role)
{
	memset(r, 0, sizeof(*r));
	r->child.fd = -1;
	r->role = role;
	r->ended = -1;
	r->in[0] = r->in[1] = r->slots = (struct mem)MEM_NONE;
	r->params = r->pool = r->seen = r->desc = (struct mem)MEM_NONE;
}

/* Once more when those have gone who still hold memory. */
static int allocate_again(struct judge *j, const struct oracle *o,
			  struct runner *r, struct fail *f)
{
	if (!allocate(j, o, r, f))
		return 0;
	if (!j->nending && !j->nkept && !j->nlater)
		return -1;
	ahead_let_go(j);
	ahead_settle(j);
	memset(f, 0, sizeof(*f));
	return allocate(j, o, r, f);
}

static int take(struct judge *j, struct runner *r, const struct purpose *u,
		struct fail *f)
{
	struct err e = ERR_INIT;

	if (ahead_take(j, u, &r->child, &r->seen, &e))
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	return hear(j, r, 0, j->o.load_s, f);
}

/* A process with, on CUDA, a context.  For that a candidate that was still
 * there may have left too little memory: once more when it has gone. */
static int make_process(struct judge *j, struct runner *r,
			const struct purpose *u, struct fail *f)
{
	int rc = take(j, r, u, f);

	if (rc && f->status == ST_OOM) {
		ahead_settle(j);
		j->dev->ops->release(j->dev, &r->seen);
		if (torch_kill(j->host, &r->child, NULL))
			j->undead = 1;
		else
			rc = take(j, r, u, f);
	}
	if (!rc) {
		memset(f, 0, sizeof(*f));
	} else {
		/* Nobody else's code has run in it. */
		f->oom = f->status == ST_OOM;
		f->status = ST_INFRA_ERROR;
		f->fault = 1;
	}
	return rc;
}

/* Up to the point where foreign code would be loaded. */
static int begin(struct judge *j, const struct oracle *o, struct runner *r,
		 const struct program *p, struct fail *f)
{
	const struct purpose u = { r->role, !strcmp(r->role, "compile"), p };
	struct err e = ERR_INIT;

	if (host_ready(j, f) || allocate_again(j, o, r, f))
		return -1;
	if (make_process(j, r, &u, f))
		return -1;
	if (j->dev->ops->attach(j->dev, r, &e))
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	if (map(j, r, f))
		return -1;
	/* What it loads may need the memory that a candidate had. */
	if (j->leaving)
		ahead_settle(j);
	return 0;
}

int runner_start(struct judge *j, const struct oracle *o, struct runner *r,
		 const struct program *p, struct fail *f)
{
	int64_t began = now_ns();
	int rc;

	runner_clear(r, p->role);
	r->fine = p->fine;
	r->tabled = p->table;
	rc = begin(j, o, r, p, f) || load(j, o, r, p, f) ? -1 : 0;
	ahead_settle(j);
	spent(j, SPENT_START, began);
	return rc;
}

int calib_start(struct judge *j, const struct oracle *o, struct runner *r,
		int empty, struct fail *f)
{
	struct extent ext[CA_LEAVES];
	struct str req = STR_INIT;
	int64_t began = now_ns();
	struct jw w;
	int rc;

	runner_clear(r, "calib");
	r->fine = empty;
	if (begin(j, o, r, NULL, f))
		return -1;
	leaves_check(&o->first, o->expect.bytes, ext);
	jw_init(&w, &req);
	jw_obj(&w);
	jw_kstr(&w, "op", "load");
	jw_kint(&w, "input_bytes", empty ? 0 : (int64_t)o->input_bytes);
	jw_key(&w, "result_bytes");
	jw_arr(&w);
	for (uint32_t i = 0; i < o->first.nleaf && !empty; i++)
		if (ext[i].bytes)
			jw_int(&w, (int64_t)ext[i].bytes);
	jw_end_arr(&w);
	jw_end_obj(&w);
	rc = request(j, r, &req, NULL, 0, PHASE_LOAD, j->o.load_s, f);
	ahead_settle(j);
	spent(j, SPENT_START, began);
	str_release(&req);
	return rc;
}

void runner_stop(struct judge *j, struct runner *r)
{
	/* A candidate may have changed how its memory is laid out, which would
	 * slow the next one, and may have left something there for itself. */
	int trusted = strcmp(r->role, "worker") != 0;
	struct mem *m[RUNNER_MEMS];

	j->dev->ops->detach(j->dev, r);
	str_release(&r->image);
	if (r->child.fd >= 0 && trusted) {
		ahead_keep(j, &r->child);
	} else if (r->child.fd >= 0) {
		ahead_end(j, &r->child);
		j->leaving |= judge_on_cuda(j);
	}
	runner_forget(j);
	memory_of(r, m);
	for (size_t i = 0; i < RUNNER_MEMS; i++) {
		if (trusted)
			j->spare[i] = *m[i];
		else
			judge_free(j, m[i]);
		*m[i] = (struct mem)MEM_NONE;
	}
	judge_free(j, &r->seen);
	judge_free(j, &r->desc);
}

void runner_forget(struct judge *j)
{
	for (size_t i = 0; i < RUNNER_MEMS; i++)
		if (j->spare[i].p)
			judge_free(j, &j->spare[i]);
}

int runner_trace(struct judge *j, struct runner *r, uint64_t from,
		 uint64_t to, uint64_t step, struct trace_table *t)
{
	static const char text[] = "{\"op\":\"trace\"}";
	struct str req = STR_INIT;
	struct fail f;
	void *copy;
	size_t n;
	int rc;

	memset(t, 0, sizeof(*t));
	if (!r->seen.p)
		return -1;
	str_adds(&req, text);
	rc = request(j, r, &req, NULL, 0, 0, j->o.call_s, &f);
	str_release(&req);
	if (rc)
		return -1;
	/* Read from a copy: the runner lives and may write meanwhile. */
	n = trace_used(r->seen.p, r->seen.bytes);
	copy = malloc(n);
	if (!copy)
		return -1;
	memcpy(copy, r->seen.p, n);
	rc = trace_read(copy, n, from, to, step, t, NULL);
	free(copy);
	return rc;
}

int runner_table(struct judge *j, struct runner *r, int iterations,
		 struct json **told, struct fail *f)
{
	/* Some calls more than it takes for the first time. */
	double limit = j->o.first_s + 6 * j->o.call_s;
	struct str req = STR_INIT;
	struct err e = ERR_INIT;
	struct ca_msg m;
	int rc;

	*told = NULL;
	str_addf(&req, "{\"op\":\"table\",\"set\":0,\"iterations\":%d}",
		 iterations);
	rc = ask(j, r, &req, NULL, 0, PHASE_FORWARD, limit, &m, f);
	str_release(&req);
	if (rc)
		return -1;
	if (m.desc_len && m.desc_len <= r->desc.bytes)
		*told = json_parse(r->desc.p, m.desc_len, DESC_BYTES, NULL,
				   &e);
	if (*told)
		return 0;
	return fail_set(f, ST_CRASHED, PHASE_FORWARD, "the table of '%s' "
			"cannot be read: %s", r->role, e.msg);
}

static enum spent spent_on(const struct runner *r)
{
	return !strcmp(r->role, "worker") ? SPENT_CANDIDATE :
	       !strcmp(r->role, "eager") ? SPENT_EAGER :
	       !strcmp(r->role, "compile") ? SPENT_COMPILE : SPENT_CALIB;
}

int runner_go(struct judge *j, struct runner *r, const struct bracket *b,
	      struct bracket_result *res, struct fail *f)
{
	int64_t began = now_ns();
	double limit = b->go.flags & GO_FIRST ? j->o.first_s : j->o.call_s;
	struct bracket with = *b;
	struct err e = ERR_INIT;
	int rc;

	with.deadline = deadline_in(limit);
	rc = j->dev->ops->bracket(j->dev, r, &with, res, &e);
	spent(j, spent_on(r), began);
	r->brackets++;
	if (rc)
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	if (settle(j, r, res->wait, &res->msg, PHASE_FORWARD, limit, f))
		return -1;
	if (res->bad_leaf)
		return fail_set(f, ST_TAMPERED, PHASE_RESULT,
				"a result lies outside the judge's pool");
	/* Whose work that was, nobody can say before the candidate is gone; it
	 * cannot have called a stranger. */
	if (res->late && j->dev->ops->foreign(j->dev, NULL) > 0) {
		j->aside = !strcmp(r->role, "worker");
		fail_set(f, ST_INFRA_ERROR, PHASE_FORWARD, "another program, "
			 "which keeps to no lease, works on the device");
		f->apart = 1;
		return -1;
	}
	if (res->late)
		return fail_set(f, ST_TAMPERED, PHASE_FORWARD, "work went on "
				"after the candidate said that it was done");
	return 0;
}
