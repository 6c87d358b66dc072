/* SPDX-License-Identifier: Apache-2.0
 *
 * What a finished rollout is worth: the final snapshot, judged in full once
 * everything of the rollout has ended; under --eval also the best candidate
 * of all that were verified.
 */
#include "agent/rollout.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/answer.h"
#include "base/io.h"
#include "base/sig.h"

/* So often what was not judged in peace is judged again. */
#define AGAIN 2

/* All that is kept of one that there is no room for. */
static void shorten(const struct rec *c, struct str *line)
{
	const char *status = json_str(json_path(c->root, "verify.status"),
				      NULL);
	struct jw w;

	str_reset(line);
	jw_init(&w, line);
	jw_obj(&w);
	jw_kstr(&w, "id", json_get_str(c->root, "id", ""));
	jw_key(&w, "verify");
	jw_obj(&w);
	jw_kstr(&w, "status", status);
	jw_end_obj(&w);
	jw_end_obj(&w);
}

int log_verdict(struct rollout *r, enum ask stage, const char *graded,
		const struct rec *c, int64_t wall_ns, struct err *e)
{
	struct str line = STR_INIT;
	struct jw *w;
	int rc, bare;

	if (rec_write(c, &line)) {
		str_release(&line);
		return err_set(e, CA_DATAERR, "the candidate is too large");
	}
	bare = !*graded && r->s.tried + line.len > TRIED_MAX;
	if (bare)
		shorten(c, &line);
	w = event_begin(r, "eval");
	jw_kint(w, "turn", r->s.turn);
	jw_kstr(w, "stage", ask_name(stage));
	jw_kstr(w, "graded", graded);
	jw_knum(w, "wall_s", spent_s(r));
	jw_knum(w, "waited_s", (double)wall_ns / 1e9);
	jw_knum(w, "judge_s", try_seconds(c));
	if (bare)
		jw_kbool(w, "omitted", 1);
	jw_key(w, "candidate");
	jw_raw(w, line.buf, line.len);
	rc = event_end(r, e);
	str_release(&line);
	return rc;
}

/* The right candidate with the largest speedup; the later of two equal. */
static const struct evaluation *fastest(const struct state *s)
{
	const struct evaluation *best = NULL;
	size_t i;

	for (i = 0; i < s->neval; i++) {
		const struct evaluation *v = &s->eval[i];

		if (v->verified && !v->bare &&
		    (!best || v->speedup >= best->speedup))
			best = v;
	}
	return best;
}

/* From nothing: of what was found before nothing is kept. */
static int forget(struct rec *c, struct err *e)
{
	if (rec_drop(c, "verify") || rec_drop(c, "profile") ||
	    rec_drop(c, "reward"))
		return err_set(e, CA_SOFTWARE, "out of memory");
	return rec_refresh(c, e);
}

static int judge_as(struct rollout *r, const char *which, struct rec *c,
		    struct err *e)
{
	int64_t began = now_ns();
	int i;

	for (i = 0; i <= AGAIN; i++) {
		if (i && forget(c, e))
			return -1;
		if (tries_judge(r->tries, ASK_REWARD, c, e))
			return -1;
		if (!answer_contended(c))
			break;
	}
	if (answer_infra(c))
		return err_set(e, CA_UNAVAILABLE, "the judge failed: %s",
			       json_str(json_path(c->root, "reward.reason"),
					"infra_error"));
	return log_verdict(r, ASK_REWARD, which, c, now_ns() - began, e);
}

/* Whether there is anything to judge. */
static int has_candidate(const struct rollout *r)
{
	return !faccessat(r->place.fd, "model_new.py", F_OK,
			  AT_SYMLINK_NOFOLLOW);
}

/* What cannot be taken as a candidate is none: `none` says why. */
static int grade_final(struct rollout *r, struct err *none, struct err *e)
{
	struct rec c;
	int rc = 0;

	if (!has_candidate(r)) {
		/* What ended it early says enough. */
		if (!*r->s.why)
			err_set(none, CA_DATAERR, "there is no model_new.py");
		return 0;
	}
	rec_init(&c);
	if (!tries_snapshot(r->tries, &c, none))
		rc = judge_as(r, "final", &c, e);
	rec_release(&c);
	return rc;
}

static int grade_best(struct rollout *r, struct err *e)
{
	const struct evaluation *best = fastest(&r->s);
	const struct evaluation *final = state_graded(&r->s, "final");
	struct rec c;
	size_t at;
	int rc = -1;

	if (!best || (final && !strcmp(best->id, final->id)))
		return 0;
	rec_init(&c);
	/* Anew, on fresh seeds. */
	if (!rec_parse(&c, best->line, strlen(best->line), &at, e) &&
	    !forget(&c, e))
		rc = judge_as(r, "best", &c, e);
	rec_release(&c);
	return rc;
}

int grade(struct rollout *r, struct err *e)
{
	int counts = !stop_is_fault(r->s.stop);
	struct err why = ERR_INIT, none = ERR_INIT;
	struct jw *w;
	int rc = 0;

	if (counts && !state_graded(&r->s, "final"))
		rc = grade_final(r, &none, &why);
	if (!rc && counts && r->o->eval && !state_graded(&r->s, "best"))
		rc = grade_best(r, &why);
	if (rc && sig_caught())
		return err_set(e, CA_TEMPFAIL, "interrupted");
	if (rc) {
		w = event_begin(r, "end");
		jw_kstr(w, "reason", stop_name(STOP_INFRA_ERROR));
		jw_kstr(w, "why", why.msg);
		if (event_end(r, e))
			return -1;
	}
	w = event_begin(r, "finish");
	if (none.code)
		jw_kstr(w, "none", none.msg);
	return event_end(r, e);
}
