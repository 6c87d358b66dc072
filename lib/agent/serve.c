/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's side: a filter of candidate records, whose member `ask` says
 * how far each is to be judged.
 */
#include "agent/judges.h"

#include <string.h>
#include <unistd.h>

#include "agent/verdicts.h"
#include "base/io.h"
#include "base/path.h"
#include "build/build.h"
#include "build/device.h"
#include "cu/cu.h"
#include "judge/options.h"
#include "rec/stage.h"
#include "reward/reward.h"

struct serve {
	struct judge_opts quick_opts, full_opts;
	struct judging quick, full;	/* for tries; for grades */
	struct build_opts build;
	struct mac_key key;
	struct reward_rules rules;
	int no_prov, quick_grade;
	const char *remember;		/* a folder, or NULL */
};

static int grade(void *ctx, struct rec *r, struct err *e)
{
	struct serve *s = ctx;
	struct judge *j = judging_open(s->quick_grade ? &s->quick : &s->full,
				       e);

	return j ? judge_profile(j, r, e) : -1;
}

static int is_grade(enum ask stage)
{
	return stage == ASK_REWARD || stage == ASK_NONE;
}

static int judge_as(struct serve *s, enum ask stage, struct rec *r,
		    struct err *e)
{
	struct judge *j;

	if (stage == ASK_COMPILE)
		return build_candidate(r, &s->build, &s->key, e);
	if (is_grade(stage)) {
		/* What was kept may be another device's, or older rules'. */
		if (s->remember && rec_get(r, "verify") &&
		    (grade(s, r, e) || rec_refresh(r, e)))
			return -1;
		return reward_record(r, &s->rules, &s->key, grade, s,
				     s->no_prov, e);
	}
	j = judging_open(&s->quick, e);
	if (!j)
		return -1;
	return stage == ASK_VERIFY ? judge_verify(j, r, e) :
	       stage == ASK_PROFILE ? judge_profile(j, r, e) :
	       judge_reference(j, r, e);
}

static void written(void *ctx)
{
	struct serve *s = ctx;

	judging_written(&s->quick);
	judging_written(&s->full);
}

/* Whether a field says what may have been the moment's as well as the
 * candidate's. */
static int may_pass(const struct rec *r, const char *field)
{
	static const enum status some[] = {
		ST_TIMEOUT, ST_KILLED, ST_CRASHED, ST_OOM, ST_RULES_FALLBACK,
		ST_TAMPERED, ST_BUILD_TIMEOUT, ST_INVALID_REFERENCE,
	};
	const char *word = json_get_str(rec_get(r, field), "status", "");
	const enum status s = status_parse(word);
	int may = 0;

	for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++)
		may |= s == some[i];
	return may;
}

/* A quick grade that is not known begins with what a try found right or
 * wrong; what it timed is measured anew. */
static int offer_try(const struct serve *s, struct rec *r, struct err *e)
{
	if (!s->remember || !s->quick_grade || rec_get(r, "verify"))
		return 0;
	if (verdicts_offer(s->remember, "try", r, e))
		return -1;
	if (rec_drop(r, "profile") ||
	    (may_pass(r, "verify") && rec_drop(r, "verify")) ||
	    (may_pass(r, "build") && rec_drop(r, "build")))
		return err_set(e, CA_SOFTWARE, "out of memory");
	return rec_refresh(r, e);
}

static int judge(void *ctx, struct rec *r, struct err *e)
{
	const char *word = json_get_str(rec_get(r, "ask"), "stage", NULL);
	enum ask stage = ask_parse(word);
	struct serve *s = ctx;
	/* A grade's times are measured anew, not taken from a model's try. */
	const char *how = !is_grade(stage) ? "try" :
			  s->quick_grade ? "quick" : "full";

	/* What the one of them still holds of the device the other would wait
	 * for. */
	judging_written(is_grade(stage) && !s->quick_grade ? &s->quick :
			&s->full);
	if (stage == ASK_COMPILE || stage == ASK_REFERENCE)
		return judge_as(s, stage, r, e);
	return verdicts_offer(s->remember, how, r, e) ||
	       (is_grade(stage) && offer_try(s, r, e)) ||
	       judge_as(s, stage, r, e) ||
	       verdicts_keep(s->remember, how, r, e) ? -1 : 0;
}

static void idle(void *ctx, int fd)
{
	struct serve *s = ctx;

	judging_written(&s->full);
	judging_rest(&s->quick, fd, 1);
}

static int make_remember(const char *dir, struct err *e)
{
	if (!dir)
		return 0;
	if (mkdir_p(dir, 0755, e))
		return err_wrap(e, "--remember");
	if (access(dir, R_OK | W_OK | X_OK))
		return err_sys(e, CA_CANTCREAT, "cannot keep verdicts in '%s'",
			       dir);
	return 0;
}

int judge_ready(const struct judge_opts *o, const char *remember,
		struct err *e)
{
	char python[CA_PATH_MAX];
	struct mac_key key;

	if (strcmp(o->device, "cpu") && cu_find(o->device, e) < 0)
		return -1;
	return mac_key_load(&key, o->trust_key, e) ||
	       make_remember(remember, e) || path_python(python, e) ? -1 : 0;
}

int judge_serve(struct judge_opts *o, const struct reward_rules *rules,
		const struct common *c, int quick_grade,
		const char *remember, struct err *e)
{
	struct serve s = { .no_prov = c->no_prov, .rules = *rules,
			   .quick_grade = quick_grade,
			   .remember = remember };
	struct stage_ops ops = {
		.name = "ca-agent", .record = judge, .wants = judging_wants,
		.idle = idle, .rest = written, .ctx = &s
	};
	struct common own = *c;
	int rc;

	if (make_remember(remember, e))
		return -1;
	own.seeded = 0;
	s.full_opts = s.quick_opts = *o;
	s.quick_opts.quick = 1;
	s.rules.allow_shared = o->allow_shared;
	s.rules.allow_no_jail = o->no_jail;
	s.build.device = o->device ? o->device : device_default();
	s.build.no_prov = c->no_prov;
	if (mac_key_load(&s.key, o->trust_key, e))
		return -1;
	if (judging_init(&s.quick, &s.quick_opts, &own, e) ||
	    judging_init(&s.full, &s.full_opts, &own, e))
		return -1;
	rc = stage_run(&ops, &own, 0, NULL, 0);
	judging_close(&s.quick);
	judging_close(&s.full);
	return rc;
}
