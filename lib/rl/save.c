/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "nn/ckpt.h"

#define STATE_MAX ((size_t)1 << 20)

int save_put(struct learner *l, const char *dir, const char *from,
	     const struct save_state *s, struct err *e)
{
	struct str text = STR_INIT;
	char digest[HASH_HEX];
	struct jw w;
	int rc;

	if (comm_mine(l->comm))
		return ckpt_share(l->t, e);
	comm_does(l->comm, COMM_SAVES);
	hex(s->digest, HASH_LEN, digest);
	jw_init(&w, &text);
	jw_obj(&w);
	jw_kstr(&w, "tool", s->tool);
	jw_kint(&w, "step", s->step);
	jw_ku64(&w, "lines", s->lines);
	jw_kstr(&w, "digest", digest);
	jw_kstr(&w, "gae", s->gae);
	jw_ku64(&w, "seed", s->seed);
	jw_key(&w, "settings");
	opts_write(&w, s->opts, s->which);
	jw_end_obj(&w);
	rc = text.failed ? err_set(e, CA_SOFTWARE, "no memory") :
	     ckpt_save(l->t, dir, from, text.buf, e);
	str_release(&text);
	comm_does(l->comm, COMM_COMPUTES);
	return rc ? err_wrap(e, "checkpoint '%s'", dir) : 0;
}

int save_publish(struct learner *l, const char *dir, const char *from,
		 struct err *e)
{
	int rc;

	if (comm_mine(l->comm))
		return ckpt_share_weights(l->t, e);
	comm_does(l->comm, COMM_SAVES);
	rc = ckpt_publish(l->t, dir, from, e);
	comm_does(l->comm, COMM_COMPUTES);
	return rc ? err_wrap(e, "weights for '%s'", dir) : 0;
}

/* The tree of a folder's train.json; NULL when there is none. */
static struct json *read_state(const char *dir, struct err *e)
{
	char path[CA_PATH_MAX + 16];
	struct str s = STR_INIT;
	struct json *j = NULL;

	snprintf(path, sizeof path, "%s/train.json", dir);
	if (!read_file(path, STATE_MAX, &s, e))
		j = json_parse(s.buf ? s.buf : "", s.len, STATE_MAX, NULL, e);
	str_release(&s);
	return j;
}

/* The step of a whole checkpoint; -1 with `e` when it is damaged, -2 when
 * there is none. */
static int64_t step_of(const char *dir, struct err *e)
{
	struct json *j;
	int64_t step;

	if (access(dir, F_OK))
		return -2;
	if (ckpt_verify(dir, e))
		return -1;
	j = read_state(dir, e);
	step = json_int(json_path(j, "state.step"), -1);
	if (j && step < 0)
		err_set(e, CA_DATAERR, "'%s' is no trainer's checkpoint", dir);
	json_free(j);
	return step;
}

struct place {
	const char *dir;
	char prev[CA_PATH_MAX + 8];
	int64_t step[2];		/* of dir and prev */
	struct err err;			/* why one of them cannot be used */
};

static void look(struct place *p, const char *dir)
{
	p->dir = dir;
	snprintf(p->prev, sizeof p->prev, "%s.prev", dir);
	p->err = (struct err)ERR_INIT;
	p->step[0] = step_of(p->dir, &p->err);
	if (p->step[0] == -1)
		warn("%s", p->err.msg);
}

/* The one before is read, whole, only when it may be needed. */
static void look_behind(struct place *p)
{
	struct err e = ERR_INIT;

	p->step[1] = step_of(p->prev, &e);
	if (!p->err.code)
		p->err = e;
}

static int has(const struct place *p, int64_t step)
{
	return p->step[0] == step || p->step[1] == step;
}

/* The older one becomes DIR; every state in between can be gone on from. */
static int take(const struct place *p, int64_t step, struct err *e)
{
	char away[CA_PATH_MAX + 8];

	if (p->step[0] == step)
		return 0;
	/* What a killed save leaves has this name too, and is in nobody's
	 * way. */
	snprintf(away, sizeof away, "%s.new", p->dir);
	if (!access(away, F_OK) && remove_tree(away, e))
		return -1;
	if (!access(p->dir, F_OK) && rename(p->dir, away))
		return err_sys(e, CA_CANTCREAT, "cannot rename '%s'", p->dir);
	if (rename(p->prev, p->dir))
		return err_sys(e, CA_CANTCREAT, "cannot rename '%s'",
			       p->prev);
	return 0;
}

int save_find(const char *dir, const char *other, struct err *e)
{
	struct place a, b;
	int64_t best = -1;

	look(&a, dir);
	if (other)
		look(&b, other);
	else
		b = a;
	if (a.step[0] >= 0 && a.step[0] == b.step[0])
		return 1;
	look_behind(&a);
	if (other)
		look_behind(&b);
	else
		b = a;
	for (int i = 0; i < 2; i++)
		if (a.step[i] > best && has(&b, a.step[i]))
			best = a.step[i];
	if (best >= 0)
		return take(&a, best, e) || (other && take(&b, best, e)) ?
		       -1 : 1;
	/* Killed in the middle of the very first save of a pair: nothing has
	 * come of it yet. */
	if (a.step[1] == -2 && b.step[1] == -2 &&
	    (a.step[0] == -2 || b.step[0] == -2) && !a.err.code &&
	    !b.err.code)
		return 0;
	*e = a.err.code ? a.err : b.err;
	if (!e->code)
		err_set(e, CA_DATAERR, "'%s' and '%s' are not of the same "
			"step", dir, other ? other : dir);
	return -1;
}

static int parse(const struct json *j, struct save_state *s)
{
	const char *sum = json_get_str(j, "digest", "");
	unsigned byte;

	s->step = json_get_int(j, "step", -1);
	if (s->step < 0 || json_u64(json_get(j, "lines"), &s->lines) ||
	    json_u64(json_get(j, "seed"), &s->seed) ||
	    strlen(sum) != HASH_HEX - 1)
		return -1;
	for (int i = 0; i < HASH_LEN; i++) {
		if (sscanf(sum + 2 * i, "%2x", &byte) != 1)
			return -1;
		s->digest[i] = (uint8_t)byte;
	}
	return 0;
}

int save_load(struct learner *l, const char *dir, struct save_state *s,
	      struct str *changed, struct err *e)
{
	struct str text = STR_INIT, ignored = STR_INIT;
	struct json *j = NULL;
	int rc = -1;

	if (!ckpt_load(l->t, dir, &text, e))
		j = json_parse(text.buf ? text.buf : "", text.len, STATE_MAX,
			       NULL, e);
	if (j)
		rc = parse(j, s) ? err_set(e, CA_DATAERR, "'%s' has a state "
					   "that is not ours", dir) : 0;
	if (!rc && opts_compare(s->opts, s->which, json_get(j, "settings"),
				changed ? changed : &ignored, e))
		rc = err_wrap(e, "'%s'", dir);
	str_release(&ignored);
	json_free(j);
	str_release(&text);
	return rc;
}

int save_check_gae(const char *dir, const char *gae, struct err *e)
{
	struct json *j = read_state(dir, NULL);
	const char *was = json_str(json_path(j, "state.gae"), gae);
	int rc = 0;

	if (strcmp(was, gae))
		rc = err_set(e, CA_CONFIG, "the critic '%s' was trained with "
			     "--gae=%s, not %s", dir, was, gae);
	json_free(j);
	return rc;
}
