/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model reads of a verdict: the text of ca-verify --explain and of
 * ca-profile --table.
 */
#include "agent/try.h"

#include <string.h>

#include "judge/kernels.h"
#include "judge/options.h"
#include "reward/reward.h"
#include "rec/status.h"

static struct json *field(const struct rec *r, const char *name)
{
	size_t len;
	const char *text = rec_text(r, name, &len);

	return text ? json_parse(text, len, JSON_MAX_LINE, NULL, NULL) : NULL;
}

static int is_ok(const struct json *f)
{
	return !strcmp(json_get_str(f, "status", ""), "ok");
}

static void built(const struct json *b, struct str *out)
{
	const struct json *l;
	int n = 0;

	str_addf(out, "built: %s form, %s", json_get_str(b, "form", "?"),
		 json_get_str(b, "arch", json_get_str(b, "device", "?")));
	for (l = json_first(json_get(b, "launchers")); l; l = json_next(l))
		str_addf(out, "%s%s", n++ ? ", " : "; launchers: ",
			 json_get_str(l, "name", "?"));
	str_addc(out, '\n');
}

static int compiled(const struct json *b, struct str *out)
{
	const struct json *er = json_get(b, "error");
	const char *file = json_get_str(er, "file", NULL);
	const char *st = json_get_str(b, "status", "bad_record");

	if (is_ok(b)) {
		built(b, out);
		return 0;
	}
	str_addf(out, "%s (%s)\n", st, status_meaning(status_parse(st)));
	if (file)
		str_addf(out, "%s:%lld: ", file,
			 (long long)json_get_int(er, "line", 0));
	str_addf(out, "%s\n%s", json_get_str(er, "message", ""),
		 json_get_str(b, "log", ""));
	return 1;
}

/* What the try would earn if it were the graded run. */
static void worth(const struct rec *r, struct str *out)
{
	const struct reward_rules rules = { 0 };
	struct reward w;

	reward_compute(r, &rules, &w);
	if (w.known)
		str_addf(out, "reward, by this quick run: %g (%s)\n", w.value,
			 w.reason);
	else
		str_addf(out, "no reward by this run: %s\n", w.reason);
}

int try_text(enum ask s, const struct rec *r, struct str *out)
{
	struct json *b = field(r, "build"), *v = field(r, "verify");
	struct json *p = field(r, "profile"), *ref = field(r, "reference");
	int code = 0;

	if (s == ASK_COMPILE)
		code = compiled(b, out);
	else if (s == ASK_REFERENCE)
		kernels_table(ref, "model.py", 0, out);
	else
		judge_explain(r, out);
	if (s == ASK_VERIFY || s == ASK_PROFILE)
		code = !is_ok(v);
	if (s == ASK_PROFILE && is_ok(v)) {
		kernels_table(p, "profile", 0, out);
		worth(r, out);
	}
	json_free(b);
	json_free(v);
	json_free(p);
	json_free(ref);
	return code;
}

double try_seconds(const struct rec *r)
{
	static const char *const names[] = { "verify", "profile",
					     "reference" };
	double sum = 0;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct json *f = field(r, names[i]);

		sum += json_num(json_path(f, "prov.seconds"), 0);
		json_free(f);
	}
	return sum;
}
