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

#include "base/io.h"
#include "base/sig.h"

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

static int judge_as(struct rollout *r, const char *which, struct rec *c,
		    struct err *e)
{
	int64_t began = now_ns();

	if (tries_judge(r->tries, ASK_REWARD, c, e))
		return -1;
	return log_verdict(r, ASK_REWARD, which, c, now_ns() - began, e);
}

/* Whether there is anything to judge. */
static int has_candidate(const struct rollout *r)
{
	return !faccessat(r->place.fd, "model_new.py", F_OK,
			  AT_SYMLINK_NOFOLLOW);
}

static int grade_final(struct rollout *r, struct err *e)
{
	struct err why = ERR_INIT;
	struct rec c;
	int rc = 0;

	rec_init(&c);
	/* What cannot be taken as a candidate is none. */
	if (!tries_snapshot(r->tries, &c, &why))
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
	/* Anew, on fresh seeds: nothing that was found before is kept. */
	if (!rec_parse(&c, best->line, strlen(best->line), &at, e) &&
	    !rec_drop(&c, "verify") && !rec_drop(&c, "profile") &&
	    !rec_drop(&c, "reward") && !rec_refresh(&c, e))
		rc = judge_as(r, "best", &c, e);
	rec_release(&c);
	return rc;
}

int grade(struct rollout *r, struct err *e)
{
	int counts = !stop_is_fault(r->s.stop);
	struct err why = ERR_INIT;
	int rc = 0;

	if (counts && has_candidate(r) && !state_graded(&r->s, "final"))
		rc = grade_final(r, &why);
	if (!rc && counts && r->o->eval && !state_graded(&r->s, "best"))
		rc = grade_best(r, &why);
	if (rc && sig_caught())
		return err_set(e, CA_TEMPFAIL, "interrupted");
	if (rc) {
		struct jw *w = event_begin(r, "end");

		jw_kstr(w, "reason", stop_name(STOP_INFRA_ERROR));
		jw_kstr(w, "why", why.msg);
		if (event_end(r, e))
			return -1;
	}
	event_begin(r, "finish");
	return event_end(r, e);
}
