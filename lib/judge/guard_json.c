/* SPDX-License-Identifier: Apache-2.0
 *
 * Guard results as JSON, for their cache.
 */
#include "judge/guard.h"

#include <stdio.h>
#include <string.h>

void guard_write(struct jw *w, const struct guard_result *g)
{
	jw_obj(w);
	jw_kbool(w, "invalid", g->invalid);
	jw_kstr(w, "answer", guard_answer_name(g->answer));
	jw_kint(w, "bad_leaf", g->bad_leaf);
	jw_kbool(w, "no_finite", g->no_finite);
	jw_kint(w, "refused", g->refused);
	jw_kstr(w, "text", g->text);
	jw_key(w, "leaves");
	jw_arr(w);
	for (size_t i = 0; i < g->nleaf; i++) {
		const struct guard_leaf *l = &g->leaf[i];

		jw_obj(w);
		jw_knum(w, "factor", l->factor);
		jw_knum(w, "noise", l->noise);
		jw_knum(w, "limit", l->limit);
		jw_kstr(w, "nearest", guard_answer_name(l->nearest));
		jw_kstr(w, "trivial", guard_answer_name(l->trivial));
		jw_kstr(w, "passes", guard_answer_name(l->passes));
		jw_kint(w, "finite", (int64_t)l->finite);
		jw_end_obj(w);
	}
	jw_end_arr(w);
	jw_end_obj(w);
}

static int read_answer(const struct json *j, const char *key,
		       enum guard_answer *a)
{
	const char *s = json_get_str(j, key, "");
	int i;

	for (i = GUARD_NONE; i < GUARD_ANSWERS; i++)
		if (!strcmp(s, guard_answer_name((enum guard_answer)i)))
			break;
	*a = (enum guard_answer)i;
	return i < GUARD_ANSWERS ? 0 : -1;
}

static int read_leaf(const struct json *j, struct guard_leaf *l)
{
	int64_t finite = json_get_int(j, "finite", -1);

	l->factor = json_get_num(j, "factor", -1);
	l->noise = json_get_num(j, "noise", -1);
	l->limit = json_get_num(j, "limit", -1);
	l->finite = (uint64_t)finite;
	if (!(l->factor > 0) || l->factor > 1 || l->noise < 0 ||
	    l->limit < 0 || finite < 0)
		return -1;
	return read_answer(j, "nearest", &l->nearest) ||
	       read_answer(j, "trivial", &l->trivial) ||
	       read_answer(j, "passes", &l->passes) ? -1 : 0;
}

int guard_read(const struct json *j, struct guard_result *g)
{
	const struct json *leaves = json_get(j, "leaves"), *l;
	int64_t bad = json_get_int(j, "bad_leaf", -1);

	memset(g, 0, sizeof(*g));
	if (json_type(leaves) != JSON_ARRAY || json_len(leaves) > CA_LEAVES ||
	    json_type(json_get(j, "invalid")) != JSON_BOOL ||
	    bad < 0 || bad >= CA_LEAVES || read_answer(j, "answer", &g->answer))
		return -1;
	for (l = json_first(leaves); l; l = json_next(l))
		if (read_leaf(l, &g->leaf[g->nleaf++]))
			return -1;
	g->invalid = json_get_bool(j, "invalid", 0);
	g->refused = (uint32_t)json_get_int(j, "refused", 0);
	g->no_finite = json_get_bool(j, "no_finite", 0);
	g->bad_leaf = (uint32_t)bad;
	snprintf(g->text, sizeof(g->text), "%s", json_get_str(j, "text", ""));
	return 0;
}
