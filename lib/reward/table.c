/* SPDX-License-Identifier: Apache-2.0
 *
 * A readable line for each candidate, written as it comes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reward/fields.h"
#include "reward/reward.h"

#define ROW "%-24s  %-18s  %11s  %9s  %10s  %7s  %s\n"

void reward_table_head(struct str *out)
{
	str_addf(out, ROW, "candidate", "verdict", "time", "vs eager",
		 "vs compile", "spent", "reward");
}

/* Its name, made fit to print and cut to the column. */
static void put_name(const struct rec *r, char out[25])
{
	struct str s = STR_INIT;
	size_t n;

	str_add_name(&s, rec_name(r));
	n = s.len < 24 ? s.len : 24;
	while (n && n < s.len && ((unsigned char)s.buf[n] & 0xc0) == 0x80)
		n--;
	memcpy(out, s.buf ? s.buf : "?", n);
	out[n] = '\0';
	str_release(&s);
}

static void put_time(const struct json *profile, char out[32])
{
	int limit = fields_status(profile) == ST_INCONCLUSIVE_TIME;
	const struct json *c = json_get(profile, "candidate");
	double us = json_get_num(c, limit ? "high_us" : "median_us", NAN);
	const char *most = limit ? "<= " : "";

	if (limit && isnan(us))
		us = json_get_num(c, "median_us", NAN);
	if (isnan(us))
		strcpy(out, "-");
	else if (us < 1e3)
		snprintf(out, 32, "%s%.1f us", most, us);
	else if (us < 1e6)
		snprintf(out, 32, "%s%.2f ms", most, us / 1e3);
	else
		snprintf(out, 32, "%s%.2f s", most, us / 1e6);
}

static void put_speedup(const struct json *reward, const char *who,
			char out[32])
{
	double x = json_get_num(json_get(reward, "speedup"), who, NAN);

	if (isnan(x))
		strcpy(out, "-");
	else
		snprintf(out, 32, "%.2fx", x);
}

static void put_reward(const struct json *reward, char out[300])
{
	double x = json_get_num(reward, "value", NAN);

	if (isnan(x))
		snprintf(out, 300, "null: %s",
			 json_get_str(reward, "reason", "not judged"));
	else
		snprintf(out, 300, "%.4g%s", x,
			 json_get_bool(reward, "provisional", 0) ?
			 " (provisional)" : "");
}

/* Seconds that the stages took for it, where they say so. */
static void put_spent(const struct rec *r, char out[32])
{
	static const char *const stages[] = { "build", "verify", "profile" };
	double sum = 0, x;
	int known = 0;
	size_t i;

	for (i = 0; i < sizeof stages / sizeof *stages; i++) {
		struct json *f = fields_get(r, stages[i]);

		x = json_get_num(json_get(f, "prov"), "seconds", NAN);
		if (!isnan(x)) {
			sum += x;
			known = 1;
		}
		json_free(f);
	}
	if (known)
		snprintf(out, 32, "%.1f s", sum);
	else
		strcpy(out, "-");
}

/* The first field that is not ok says it all. */
static const char *verdict(const struct json *verify,
			   const struct json *profile)
{
	enum status v = fields_status(verify), p = fields_status(profile);

	if (v == ST_NONE)
		return "not judged";
	return status_name(v != ST_OK || p == ST_NONE ? v : p);
}

void reward_table_row(const struct rec *r, struct str *out)
{
	struct json *verify = fields_get(r, "verify");
	struct json *profile = fields_get(r, "profile");
	struct json *reward = fields_get(r, "reward");
	char name[25], time[32], eager[32], compile[32], spent[32];
	char value[300];

	put_name(r, name);
	put_time(profile, time);
	put_speedup(reward, "eager", eager);
	put_speedup(reward, "compile", compile);
	put_spent(r, spent);
	put_reward(reward, value);
	str_addf(out, ROW, name, verdict(verify, profile), time, eager,
		 compile, spent, value);
	json_free(verify);
	json_free(profile);
	json_free(reward);
}
