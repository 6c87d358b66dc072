/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the reference: inputs, state and expected values for the judge's
 * seeds.  The oracle shares memory with the judge alone.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/sig.h"
#include "base/weaken.h"
#include "judge/ahead.h"
#include "judge/rules.h"
#include "judge/session.h"

#define DESC_BYTES ((size_t)8 << 20)
#define ALIGN(n) (((n) + 63) & ~(size_t)63)
#define ZONED(n) ((n) ? ALIGN((size_t)(n)) + CA_GAP : 0)

/*
 * The reference's process ended; the caller judges once more.  A task that
 * ends its own does so again, and the candidate has no part in it.  One that
 * was killed may have been for memory that the candidate took, as the host may
 * have: that is never a refuge.
 */
static int lost(struct judge *j, struct oracle *o, struct fail *f)
{
	struct err e = ERR_INIT;
	int st;

	if (!host_alive(j))
		fail_set(f, ST_INFRA_ERROR, o->asked, "the torch host ended "
			 "while the reference ran");
	else if (torch_kill(j->host, &o->c, &e))
		fail_set(f, ST_INFRA_ERROR, o->asked, "%s", e.msg);
	else if (st = o->c.status, WIFSIGNALED(st))
		fail_set(f, ST_INVALID_REFERENCE, o->asked, "the reference's "
			 "process ended: signal %d (%s)", WTERMSIG(st),
			 strsignal(WTERMSIG(st)));
	else
		fail_set(f, ST_INVALID_REFERENCE, o->asked, "the reference's "
			 "process ended: status %d", WEXITSTATUS(st));
	f->fault = 1;
	f->killed = o->c.ended && WIFSIGNALED(o->c.status) &&
		    WTERMSIG(o->c.status) == SIGKILL;
	f->apart = !f->killed && host_alive(j);
	return -1;
}

/* Waits for an answer; the judge's own trouble is a fault, the task's is
 * invalid_reference. */
static int hear(struct judge *j, struct oracle *o, struct ca_msg *m,
		struct fail *f)
{
	int64_t began = now_ns();
	enum torch_wait w = torch_recv(&o->c, m, deadline_in(j->o.task_s));

	spent(j, SPENT_ORACLE, began);
	if (w == WAIT_OK)
		return 0;
	if (w == WAIT_TIMEOUT && sig_caught())
		return fail_set(f, ST_INFRA_ERROR, 0, "interrupted");
	if (w == WAIT_TIMEOUT)
		return fail_set(f, ST_INVALID_REFERENCE, o->asked,
				"the reference did not answer within %g s "
				"(--task-timeout)", j->o.task_s);
	return lost(j, o, f);
}

static int ask(struct judge *j, struct oracle *o, struct str *req,
	       const int *fds, size_t nfds, struct ca_msg *m, struct fail *f)
{
	struct err e = ERR_INIT;

	if (req->failed)
		return fail_set(f, ST_INFRA_ERROR, 0, "out of memory");
	if (judge_turn(j, TURN_NEXT, f))
		return -1;
	if (torch_send(&o->c, req->buf, req->len, fds, nfds, &e))
		return lost(j, o, f);
	return hear(j, o, m, f);
}

static int refused(const struct ca_msg *m, struct fail *f)
{
	char text[CA_TEXT];

	if (m->end == END_OK)
		return 0;
	memcpy(text, m->text, sizeof(text));
	text[sizeof(text) - 1] = '\0';
	fail_set(f, m->end == END_JAIL || m->end == END_BAD_REQUEST ?
		 ST_INFRA_ERROR : ST_INVALID_REFERENCE, m->phase, "%s", text);
	f->fault = f->status == ST_INFRA_ERROR;
	f->oom = m->end == END_OOM;
	return -1;
}

static int request(struct judge *j, struct oracle *o, struct str *req,
		   struct ca_msg *m, struct fail *f)
{
	if (ask(j, o, req, NULL, 0, m, f))
		return -1;
	return refused(m, f);
}

/* {"op":"map"} with the given regions. */
static int map(struct judge *j, struct oracle *o, const char *const *names,
	       struct mem *const *mems, size_t n, struct fail *f)
{
	struct str req = STR_INIT;
	struct ca_msg m;
	int fds[8], rc;

	region_request(&req, "map", names, mems, n, fds);
	rc = ask(j, o, &req, fds, n, &m, f) || refused(&m, f) ? -1 : 0;
	str_release(&req);
	return rc;
}

static int shared(struct judge *j, size_t bytes, int host, struct mem *m,
		  struct fail *f)
{
	struct err e = ERR_INIT;
	size_t pages = (size_t)sysconf(_SC_PHYS_PAGES);

	if (!j->dev->ops->shared(j->dev, bytes, host, m, &e))
		return 0;
	if (j->nlater) {
		judge_free_all(j);
		return shared(j, bytes, host, m, f);
	}
	/* What the whole machine cannot hold will not fit later either. */
	if (bytes / (size_t)sysconf(_SC_PAGESIZE) >= pages)
		return fail_set(f, ST_INVALID_REFERENCE, 0, "its inputs, "
				"parameters or results are too large: %s",
				e.msg);
	return fail_device(f, &e);
}

/* Reads the JSON that the oracle wrote to `desc`. */
static struct json *read_desc(struct oracle *o, const struct ca_msg *m,
			      struct fail *f)
{
	struct err e = ERR_INIT;
	struct json *root = NULL;
	struct str copy = STR_INIT;

	/* Of a copy: its writer lives. */
	if (m->desc_len && m->desc_len <= o->desc.bytes &&
	    !str_add(&copy, o->desc.p, m->desc_len))
		root = json_parse(copy.buf, copy.len, DESC_BYTES, NULL, &e);
	str_release(&copy);
	if (!root) {
		fail_set(f, ST_INFRA_ERROR, 0, "the reference's description "
			 "cannot be read: %s", e.msg);
		f->fault = 1;
	}
	return root;
}

/* The end of the furthest of a list of {offset, bytes}; -1 if one is absurd. */
static int64_t span(const struct json *list)
{
	int64_t end = 0;

	for (const struct json *s = json_first(list); s; s = json_next(s)) {
		int64_t off = json_get_int(s, "offset", -1);
		int64_t n = json_get_int(s, "bytes", -1);

		if (off < 0 || n < 0 || off > INT64_MAX / 2 ||
		    n > INT64_MAX / 2)
			return -1;
		if (off + n > end)
			end = off + n;
	}
	return end;
}

int oracle_load(struct judge *j, struct oracle *o, const char *code,
		size_t len, struct fail *f)
{
	struct str req = STR_INIT;
	struct err e = ERR_INIT;
	struct ca_msg m;
	struct jw w;
	int fd = memfd_of(code, len, &e), rc = -1;

	o->code = code;
	o->codelen = len;
	o->seed = rng_u64(&j->rng);
	if (fd < 0)
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	jw_init(&w, &req);
	jw_obj(&w);
	o->asked = PHASE_LOAD;
	jw_kstr(&w, "op", "load");
	jw_kint(&w, "code", 0);
	jw_ku64(&w, "seed", o->seed);
	jw_kbool(&w, "own_state", j->rules->own_state);
	jw_kint(&w, "threads", sysconf(_SC_NPROCESSORS_ONLN));
	jw_end_obj(&w);
	if (!ask(j, o, &req, &fd, 1, &m, f) && !refused(&m, f)) {
		o->spec = read_desc(o, &m, f);
		rc = o->spec ? 0 : -1;
	}
	close(fd);
	str_release(&req);
	return rc;
}

size_t oracle_loaded(const struct oracle *o)
{
	int64_t in = span(json_path(o->spec, "inputs.storages"));
	int64_t st = span(json_get(o->spec, "state"));

	return (size_t)((in > 0 ? in : 0) + (st > 0 ? st : 0));
}

/* What the reference will not write to, inputs and state having been written,
 * are the zones between them. */
static int zones(struct judge *j, struct mem *m, struct fail *f)
{
	struct err e = ERR_INIT;

	if (!j->dev->ops->poison(j->dev, m, 0, m->bytes, rng_u64(&j->rng),
				 &e))
		return 0;
	return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
}

/* Memory for inputs and state, by the sizes that load told. */
static int allocate(struct judge *j, struct oracle *o, struct fail *f)
{
	static const char *const names[] = { "inputs", "slots", "after",
					     "params", "params_after" };
	struct mem *const mems[] = { &o->inputs, &o->slots, &o->after,
				     &o->params, &o->params_after };
	int64_t in = span(json_path(o->spec, "inputs.storages"));
	int64_t st = span(json_get(o->spec, "state"));

	if (in < 0 || st < 0)
		return fail_set(f, ST_INFRA_ERROR, 0, "the reference's "
				"description makes no sense");
	o->input_bytes = ZONED(in);
	o->param_bytes = ZONED(st);
	if (shared(j, o->input_bytes, 0, &o->inputs, f) ||
	    shared(j, CA_SLOTS * sizeof(struct ca_slot), 1, &o->slots, f) ||
	    shared(j, o->input_bytes, 0, &o->after, f) ||
	    shared(j, o->param_bytes, 0, &o->params, f) ||
	    shared(j, o->param_bytes, 0, &o->params_after, f) ||
	    zones(j, &o->inputs, f) || zones(j, &o->params, f))
		return -1;
	return map(j, o, names, mems, 5, f);
}

static int expect_request(struct judge *j, struct oracle *o, uint64_t seed,
			  const char *precision, struct ca_msg *m,
			  struct fail *f)
{
	struct str req = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &req);
	jw_obj(&w);
	o->asked = PHASE_FORWARD;
	jw_kstr(&w, "op", "expect");
	jw_ku64(&w, "forward_seed", seed);
	jw_kstr(&w, "precision", precision);
	jw_end_obj(&w);
	rc = ask(j, o, &req, NULL, 0, m, f);
	str_release(&req);
	return rc;
}

/* What the packed leaves of an answer take; 0 and a failure for nonsense. */
static int leaves_bytes(const struct ca_msg *m, size_t *out)
{
	struct extent ext[CA_LEAVES];
	struct ca_msg copy = *m;
	size_t n = 0;

	if (copy.nleaf > CA_LEAVES)
		return -1;
	for (uint32_t i = 0; i < copy.nleaf; i++)
		copy.leaf[i].offset = 0;
	if (leaves_check(&copy, SIZE_MAX / 4, ext))
		return -1;
	for (uint32_t i = 0; i < copy.nleaf; i++)
		n += ALIGN(ext[i].bytes);
	*out = n;
	return 0;
}

/* Gives the oracle an `expect` region as large as the answer asks for. */
static int grow_expect(struct judge *j, struct oracle *o,
		       const struct ca_msg *m, size_t times, struct fail *f)
{
	static const char *const name[] = { "expect" };
	struct mem *const mem[] = { &o->expect };
	size_t n;

	if (leaves_bytes(m, &n))
		return fail_set(f, ST_INFRA_ERROR, PHASE_RESULT,
				"the reference's results make no sense");
	if (n > SIZE_MAX / 4 / times)
		return fail_set(f, ST_INVALID_REFERENCE, PHASE_RESULT,
				"the reference's results are too large");
	j->dev->ops->release(j->dev, &o->expect);
	if (shared(j, n * times, 0, &o->expect, f))
		return -1;
	return map(j, o, name, mem, 1, f);
}

int oracle_expect(struct judge *j, struct oracle *o, uint64_t seed,
		  const char *precision, struct ca_msg *m, struct fail *f)
{
	int native = !strcmp(precision, "native");
	size_t n;

	if (expect_request(j, o, seed, precision, m, f))
		return -1;
	if (m->end == END_POOL) {
		if (grow_expect(j, o, m, 1, f) ||
		    expect_request(j, o, seed, precision, m, f))
			return -1;
	}
	if (m->end == END_OOM && j->beside) {
		fail_set(f, ST_INFRA_ERROR, PHASE_FORWARD, "no memory for the "
			 "reference beside others");
		f->oom = 1;
		return -1;
	}
	if (!native && m->end != END_OK)
		return 1;
	if (refused(m, f))
		return -1;
	if (native && o->expect_bytes && (leaves_bytes(m, &n) ||
					  n > o->expect_bytes))
		return fail_set(f, ST_INVALID_REFERENCE, PHASE_RESULT,
				"the reference's results grow with its "
				"inputs' values");
	if (leaves_check(m, o->expect.bytes,
			 (struct extent[CA_LEAVES]){ { 0, 0 } }))
		return fail_set(f, ST_INFRA_ERROR, PHASE_RESULT,
				"the reference's results make no sense");
	return 0;
}

int oracle_state(struct judge *j, struct oracle *o, uint64_t seed,
		 int perturb, struct fail *f)
{
	struct str req = STR_INIT;
	struct ca_msg m;
	struct jw w;
	int rc;

	jw_init(&w, &req);
	jw_obj(&w);
	o->asked = PHASE_STATE;
	jw_kstr(&w, "op", "state");
	jw_ku64(&w, "seed", seed);
	jw_kbool(&w, "perturb", perturb && !weakened("weights"));
	jw_end_obj(&w);
	rc = request(j, o, &req, &m, f);
	str_release(&req);
	return rc;
}

int oracle_inputs(struct judge *j, struct oracle *o, uint64_t seed,
		  const char *family, double factor, struct fail *f)
{
	struct str req = STR_INIT;
	struct ca_msg m;
	struct jw w;
	int rc;

	jw_init(&w, &req);
	jw_obj(&w);
	o->asked = PHASE_INPUTS;
	jw_kstr(&w, "op", "inputs");
	jw_ku64(&w, "seed", seed);
	jw_kstr(&w, "family", family);
	jw_knum(&w, "factor", factor);
	jw_kbool(&w, "export", 1);
	jw_end_obj(&w);
	rc = request(j, o, &req, &m, f);
	str_release(&req);
	return rc;
}

void oracle_beside(struct judge *j, struct oracle *o, struct fail *f)
{
	struct fail own = { .status = ST_OK };
	struct ca_msg m;

	if (!f->oom || f->status != ST_INVALID_REFERENCE || !j->loaded)
		return;
	ahead_settle(j);
	if (oracle_inputs(j, o, rng_u64(&j->rng), "plain", 1, &own) ||
	    oracle_expect(j, o, rng_u64(&j->rng), "native", &m, &own) ||
	    (j->rules->own > 0 &&
	     oracle_expect(j, o, rng_u64(&j->rng), "fp64", &m, &own)))
		return;
	fail_set(f, ST_OOM, PHASE_FORWARD, "the reference has the memory that "
		 "it needs only without the candidate");
}

int oracle_open(struct judge *j, struct oracle *o, const char *role,
		int compiles, struct fail *f)
{
	static const char *const name[] = { "desc" };
	struct mem *const mem[] = { &o->desc };
	const struct purpose u = { role, compiles, NULL };
	struct mem seen;
	struct err e = ERR_INIT;
	struct ca_msg m;

	memset(o, 0, sizeof(*o));
	o->c.fd = -1;
	o->desc = o->slots = o->inputs = o->after = (struct mem)MEM_NONE;
	o->params = o->params_after = o->expect = (struct mem)MEM_NONE;
	if (host_ready(j, f))
		return -1;
	if (ahead_take(j, &u, &o->c, &seen, &e))
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	if (hear(j, o, &m, f) || refused(&m, f)) {
		/* The task's code has not run in it. */
		f->status = ST_INFRA_ERROR;
		f->fault = 1;
		return -1;
	}
	if (shared(j, DESC_BYTES, 1, &o->desc, f))
		return -1;
	return map(j, o, name, mem, 1, f);
}

static int learn(struct oracle *o, const struct ca_msg *first, struct fail *f)
{
	o->first = *first;
	if (leaves_bytes(first, &o->expect_bytes))
		return fail_set(f, ST_INFRA_ERROR, PHASE_RESULT,
				"the reference's results make no sense");
	return 0;
}

int oracle_run(struct judge *j, struct oracle *o, struct fail *f)
{
	struct ca_msg m;

	if (allocate(j, o, f) ||
	    oracle_inputs(j, o, rng_u64(&j->rng), "plain", 1, f) ||
	    oracle_expect(j, o, rng_u64(&j->rng), "native", &m, f))
		return -1;
	return learn(o, &m, f);
}

int oracle_expects(struct judge *j, struct oracle *o,
		   const struct ca_msg *first, struct fail *f)
{
	if (allocate(j, o, f) || learn(o, first, f))
		return -1;
	/* As a run would, so that replays go on alike. */
	for (int i = 0; i < 2; i++)
		rng_u64(&j->rng);
	return o->expect_bytes ? grow_expect(j, o, first, 1, f) : 0;
}

int oracle_start(struct judge *j, struct oracle *o, const char *code,
		 size_t len, struct fail *f)
{
	return oracle_open(j, o, "oracle", 0, f) ||
		oracle_load(j, o, code, len, f) || oracle_run(j, o, f) ?
		-1 : 0;
}

int oracle_ask(struct judge *j, struct oracle *o, struct str *req,
	       struct json **told, struct fail *f)
{
	struct ca_msg m;

	*told = NULL;
	if (request(j, o, req, &m, f))
		return -1;
	*told = read_desc(o, &m, f);
	return *told ? 0 : -1;
}

int oracle_tell(struct judge *j, struct oracle *o, struct str *req,
		const char *p, size_t len, struct json **told, struct fail *f)
{
	struct err e = ERR_INIT;
	struct ca_msg m;
	int fd = memfd_of(p, len, &e), rc;

	*told = NULL;
	if (fd < 0)
		return fail_set(f, ST_INFRA_ERROR, 0, "%s", e.msg);
	rc = ask(j, o, req, &fd, 1, &m, f) || refused(&m, f) ? -1 : 0;
	close(fd);
	if (!rc)
		*told = read_desc(o, &m, f);
	return *told ? 0 : -1;
}

void oracle_stop(struct judge *j, struct oracle *o)
{
	struct mem *const all[] = { &o->desc, &o->slots, &o->inputs,
				    &o->after, &o->params, &o->params_after,
				    &o->expect };

	if (o->c.fd >= 0)
		ahead_end(j, &o->c);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		judge_free(j, all[i]);
	runner_forget(j);
	json_free(o->spec);
	o->spec = NULL;
}

int oracle_again(struct judge *j, struct oracle *o, struct fail *f)
{
	const char *code = o->code;
	size_t len = o->codelen;

	oracle_stop(j, o);
	if (!host_alive(j))
		ahead_leave(j);
	return oracle_start(j, o, code, len, f);
}
