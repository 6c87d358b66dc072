/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of the baselines, remembered.
 */
#include "judge/baseline.h"

#include <math.h>
#include <string.h>

#include "judge/memo.h"
#include "judge/rules.h"

int baseline_get(struct judge *j, const char *task, struct baseline *b)
{
	struct json *root = memo_get(j, "baseline", task, j->o.mode);

	b->eager_ns = json_get_num(root, "eager_ns", 0);
	b->compile_ns = json_get_num(root, "compile_ns", 0);
	b->correction_ns = json_get_num(root, "correction_ns", -1);
	if (json_get_bool(root, "rewrites", 0) != j->rules->rewrites)
		b->correction_ns = 0;
	json_free(root);
	return b->eager_ns > 0 && b->compile_ns > 0 && b->correction_ns >= 0 ?
		0 : -1;
}

void baseline_put(struct judge *j, const char *task, const struct timing *t)
{
	const struct race *race = &t->race[RACE_EAGER];
	struct stats_bound eager, compile;
	double c[STATS_ROUNDS];
	struct str s = STR_INIT;
	struct jw w;

	timing_bound(t, RACE_EAGER, &eager);
	timing_bound(t, RACE_COMPILE, &compile);
	if (!(eager.point > 0) || !(compile.point > 0))
		return;
	memcpy(c, race->correction, sizeof(c));
	jw_init(&w, &s);
	jw_obj(&w);
	jw_knum(&w, "eager_ns", eager.point);
	jw_knum(&w, "compile_ns", compile.point);
	jw_knum(&w, "correction_ns",
		race->no_wait ? stats_median(c, t->rounds) : 0);
	jw_kbool(&w, "rewrites", j->rules->rewrites);
	jw_end_obj(&w);
	memo_put(j, "baseline", task, j->o.mode, &s);
	str_release(&s);
}

int baseline_apply(const struct baseline *b, struct timing *t)
{
	const struct race *eager = &t->race[RACE_EAGER];
	struct race *compile = &t->race[RACE_COMPILE];
	double ratio = b->compile_ns / b->eager_ns;
	struct stats_bound now;

	timing_bound(t, RACE_EAGER, &now);
	if (!(fabs(now.point / b->eager_ns - 1) <= BASELINE_AGREES))
		return -1;
	for (size_t i = 0; i < t->rounds; i++) {
		compile->time[i] = eager->time[i];
		compile->time[i].ns *= ratio;
		compile->time[i].low *= ratio;
		compile->time[i].high *= ratio;
		compile->device_us[i] = NAN;
	}
	compile->runs = 1;
	compile->remembered = 1;
	return 0;
}
