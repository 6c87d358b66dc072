/* SPDX-License-Identifier: Apache-2.0
 *
 * From a record to what is judged.
 */
#include "judge/chain.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "jail/jail.h"
#include "judge/ahead.h"
#include "judge/rules.h"
#include "rec/stage.h"

/* Faults that end the judging: before any code of the candidate's ran or apart
 * from it, which says nothing of it, and others. */
#define BEFORE_MAX 3
#define DURING_MAX 2

const char *const chain_uses_build[] = { "build", NULL };
const char *const chain_uses_verify[] = { "build", "verify", NULL };

struct json *chain_field(const struct rec *r, const char *name)
{
	size_t len;
	const char *text = rec_text(r, name, &len);

	return text ? json_parse(text, len, JSON_MAX_LINE, NULL, NULL) : NULL;
}

int chain_subject(struct judge *j, const struct rec *r, struct subject *s,
		  struct err *e)
{
	const struct json *task = rec_get(r, "task");
	const struct json *files = rec_get(r, "files");
	const struct json *own = rec_get(r, "rules");
	const struct rules *rules;
	const char *name;

	memset(s, 0, sizeof(*s));
	s->program.role = "worker";
	if (own && json_type(own) != JSON_STRING &&
	    json_type(own) != JSON_NULL)
		return err_set(e, CA_DATAERR, "'rules' is not a string");
	name = j->o.rules ? j->o.rules : json_str(own, rules_paper.name);
	s->task = json_get_str(task, "code", NULL);
	if (!s->task)
		return err_set(e, CA_DATAERR, "the candidate's task has no "
			       "code");
	s->tasklen = strlen(s->task);
	task_id(s->task, s->tasklen, s->task_id);
	if (json_type(files) != JSON_OBJECT)
		return err_set(e, CA_DATAERR, "the candidate has no files");
	rules = rules_find(name);
	if (!rules)
		return err_set(e, CA_DATAERR, "rules '%s' are not known to "
			       "this version (" RULES_NAMES ")", name);
	j->rules = rules;
	s->program.code = json_get_str(files, "model_new.py", "");
	s->program.codelen = strlen(s->program.code);
	return 0;
}

void chain_release(struct subject *s)
{
	str_release(&s->launchers);
	json_free(s->build);
	s->build = NULL;
}

/* Completes the program by what the build says. */
static int complete(const struct rec *r, struct subject *s,
		    const struct build_opts *o, struct err *e)
{
	const struct json *l = json_get(s->build, "launchers");
	struct jw w;

	if (build_object_path(r, o, s->object, e))
		return -1;
	s->program.object = s->object;
	s->program.form = json_get_str(s->build, "form", "light");
	s->program.slim = !strcmp(json_get_str(s->build, "headers", ""),
				  "slim");
	if (json_type(l) != JSON_ARRAY)
		return 0;
	jw_init(&w, &s->launchers);
	jw_node(&w, l);
	if (s->launchers.failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	s->program.launchers = s->launchers.buf;
	return 0;
}

enum status chain_build(struct judge *j, struct rec *r, struct subject *s,
			struct err *e)
{
	struct build_opts o = { .device = j->dev->name,
				.no_jail = j->o.no_jail,
				.no_prov = j->o.no_prov };
	enum status st;

	if (build_candidate(r, &o, &j->key, e))
		return ST_NONE;
	st = build_status(r);
	/* Rules that let PyTorch compute need nothing that was built. */
	if (st == ST_NO_SOURCE && j->rules->torch && s->program.codelen)
		return ST_OK;
	if (st != ST_OK)
		return st;
	chain_release(s);
	s->build = chain_field(r, "build");
	if (!s->build || complete(r, s, &o, e))
		return ST_NONE;
	return ST_OK;
}

void chain_write_common(struct judge *j, const char *version, struct jw *w)
{
	jw_kstr(w, "device", j->dev->name);
	jw_kstr(w, "model", j->dev->model);
	if (j->host && torch_version(j->host))
		jw_kstr(w, "torch", torch_version(j->host));
	jw_kstr(w, "jail", j->jail);
	jw_kstr(w, "version", version);
}

/* Of two GPUs of one model either will do; the first of one process may be
 * the second of the next. */
static int is_kind_of(const char *device, const struct device *d)
{
	size_t n = strcspn(device, ":");

	return n == strcspn(d->name, ":") && !strncmp(device, d->name, n);
}

int chain_same_common(struct judge *j, const char *version,
		      const struct json *field)
{
	int have = jail_level_parse(json_get_str(field, "jail", "none"));
	const char *torch = json_get_str(field, "torch", NULL);
	const char *ours = j->host ? torch_version(j->host) : NULL;

	/* Which torch a host has is known once one has said so; a field without
	 * (a failed build) does not depend on it. */
	if (torch && ours && strcmp(torch, ours))
		return 0;
	return have >= jail_level_parse(j->jail) &&
	       is_kind_of(json_get_str(field, "device", ""), j->dev) &&
	       !strcmp(json_get_str(field, "model", ""), j->dev->model) &&
	       !strcmp(json_get_str(field, "version", ""), version);
}

void chain_write_prov(struct judge *j, int64_t began, struct jw *w)
{
	static const char *const name[SPENT_N] = {
		"lease", "host", "oracle", "start", "candidate", "eager",
		"compile", "calibration",
	};

	if (j->o.no_prov)
		return;
	rec_begin_prov(w, began);
	jw_key(w, "waited");
	jw_obj(w);
	for (int i = 0; i < SPENT_N; i++)
		if (j->spent[i] >= 500000)
			jw_knum(w, name[i],
				(double)((j->spent[i] + 500000) / 1000000) /
				1e3);
	jw_end_obj(w);
	jw_end_obj(w);
}

/* After a fault: gives up a host that died and brings the device back. */
static int recover(struct judge *j, const struct fail *f, struct err *e)
{
	if (j->no_torch || j->unleased)
		return err_set(e, j->no_torch ? j->no_torch : CA_UNAVAILABLE,
			       "%s", f->text);
	if (j->undead || !host_alive(j)) {
		j->undead = 0;
		ahead_leave(j);
	}
	return j->dev->ops->recover(j->dev, e);
}

int chain_twice(struct judge *j, chain_attempt *attempt,
		const struct subject *s, void *result, struct fail *f,
		struct err *e)
{
	int before = 0, during = 0, unparked = 0, still = 0, doubted = 0;

	j->beside = judge_on_cuda(j);
	while (before < BEFORE_MAX && during < DURING_MAX) {
		j->loaded = j->unleased = j->aside = 0;
		attempt(j, s, result);
		ahead_let_go(j);
		if (f->fault || stage_interrupted())
			ahead_settle(j);
		if (stage_interrupted())
			return err_set(e, CA_TEMPFAIL, "interrupted");
		if (j->undead && f->status == ST_OK)
			fail_set(f, ST_INFRA_ERROR, 0, "a process could "
				 "not be ended");
		/* Those who are kept ready are nobody's lack of memory. */
		if ((f->status == ST_OOM || f->oom) && !unparked &&
		    !j->undead && ahead_unpark(j)) {
			ahead_settle(j);
			unparked = 1;
			continue;
		}
		/* Nor is what others are judged in side by side. */
		if ((f->status == ST_OOM || f->oom) && j->beside &&
		    !j->undead) {
			j->beside = 0;
			if (judge_clear(j, f))
				return stage_interrupted() ?
				       err_set(e, CA_TEMPFAIL, "interrupted") :
				       0;
			continue;
		}
		if (f->doubt && !doubted) {
			doubted = 1;
			continue;
		}
		if (!f->fault)
			return j->undead ? recover(j, f, e) : 0;
		still += j->aside && device_cuda_still(j->dev) > 0;
		if (j->loaded && !f->apart)
			during++;
		else
			before++;
		if (recover(j, f, e))
			return -1;
	}
	if (during == DURING_MAX)
		f->status = ST_CRASHED;
	else if (still == BEFORE_MAX)
		fail_set(f, ST_TAMPERED, PHASE_FORWARD, "work went on after "
			 "the candidate said that it was done, each time, and "
			 "never once it was gone");
	return 0;
}
