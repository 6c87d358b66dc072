/* SPDX-License-Identifier: Apache-2.0 */
#include "judge/kernels.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define MOST 32
#define WIDTH 44	/* of a name in the table */

/*
 * Itanium names: _Z, then N and a run of <length><text> for nested ones, or
 * one of them.  Template arguments and parameters are left out.  The names
 * come from a process that nobody trusts, so nothing cleverer reads them.
 */
void kernels_name(const char *mangled, char *out, size_t outlen)
{
	const char *p = mangled;
	size_t n = 0;

	if (strncmp(p, "_Z", 2)) {
		snprintf(out, outlen, "%s", mangled);
		return;
	}
	p += 2;
	p += *p == 'N';
	while (*p == 'K' || *p == 'L')	/* const; internal linkage */
		p++;
	out[0] = '\0';
	while (isdigit((unsigned char)*p)) {
		size_t len = 0, left = strlen(p);

		for (; isdigit((unsigned char)*p); p++, left--)
			len = len < 100000 ? len * 10 + (size_t)(*p - '0') :
			      len;
		if (len > left)
			len = left;
		if (len > 11 && !strncmp(p, "_GLOBAL__N_", 11)) {
			p += len;
			continue;
		}
		n += (size_t)snprintf(out + n, outlen - n, "%s%.*s",
				      n ? "::" : "", (int)len, p);
		if (n >= outlen)
			return;
		p += len;
	}
	if (!n)
		snprintf(out, outlen, "%s", mangled);
}

static void write_dim(struct jw *w, const char *key, const int32_t d[3])
{
	jw_key(w, key);
	jw_arr(w);
	for (int i = 0; i < 3; i++)
		jw_int(w, d[i]);
	jw_end_arr(w);
}

static void write_row(const struct trace_row *r, uint64_t iterations,
		      double total, struct jw *w)
{
	double per = (double)iterations;
	char name[256], module[20];

	kernels_name(r->name, name, sizeof(name));
	snprintf(module, sizeof(module), "%016llx",
		 (unsigned long long)r->module);
	jw_obj(w);
	jw_kstr(w, "name", name);
	jw_knum(w, "calls", (double)r->calls / per);
	jw_knum(w, "us", (double)r->ns / per / 1e3);
	jw_knum(w, "share", total > 0 ? (double)r->ns / total : 0);
	jw_key(w, "bytes");
	if (r->bytes)
		jw_num(w, (double)r->bytes / per);
	else
		jw_null(w);
	write_dim(w, "grid", r->grid);
	write_dim(w, "block", r->block);
	jw_kstr(w, "module", r->module ? module : NULL);
	jw_end_obj(w);
}

void kernels_write(const struct trace_table *t, struct jw *w)
{
	double total = 0;

	if (!t->n || !t->iterations) {
		jw_null(w);
		return;
	}
	for (size_t i = 0; i < t->n; i++)
		total += (double)t->row[i].ns;
	jw_arr(w);
	for (size_t i = 0; i < t->n && i < MOST; i++)
		write_row(&t->row[i], t->iterations, total, w);
	jw_end_arr(w);
}

static void table_dim(const struct json *d, struct str *out)
{
	for (d = json_first(d); d; d = json_next(d)) {
		str_addf(out, "%lld", (long long)json_int(d, 0));
		if (json_next(d))
			str_addc(out, ',');
	}
}

static void table_row(const struct json *k, struct str *out)
{
	double bytes = json_get_num(k, "bytes", 0);
	double us = json_get_num(k, "us", 0);

	str_addf(out, "    %-*.*s %7.6g %10.2f %5.1f%%", WIDTH, WIDTH,
		 json_get_str(k, "name", "?"), json_get_num(k, "calls", 0),
		 us, 100 * json_get_num(k, "share", 0));
	if (bytes > 0 && us > 0)
		str_addf(out, " %9.2f %7.0f", bytes / 1e6, bytes / us / 1e3);
	else
		str_addf(out, " %9s %7s", "", "");
	str_adds(out, "  ");
	table_dim(json_get(k, "grid"), out);
	str_adds(out, " x ");
	table_dim(json_get(k, "block"), out);
	str_addc(out, '\n');
}

static void table_racer(const struct json *p, const char *who,
			struct str *out)
{
	const struct json *time = json_get(p, who), *k;
	double us = json_get_num(time, "median_us", 0);
	double sum = json_get_num(json_get(p, "device_sum_us"), who, 0);
	double bytes = json_get_num(p, "bytes", 0);
	double peak = json_get_num(p, "peak_bytes_per_s", 0);

	if (json_type(time) != JSON_OBJECT)
		return;
	str_addf(out, "  %s: %.2f us", who, us);
	if (sum > 0)
		str_addf(out, ", kernels %.2f us", sum);
	if (sum <= 0)
		sum = us;
	if (bytes > 0 && sum > 0)
		str_addf(out, ", inputs and results at %.0f GB/s",
			 bytes / sum / 1e3);
	if (bytes > 0 && sum > 0 && peak > 0)
		str_addf(out, " (%.0f%% of the memory's)",
			 100 * bytes / (sum * 1e-6) / peak);
	str_addc(out, '\n');
	k = json_first(json_get(json_get(p, "kernels"), who));
	if (k)
		str_addf(out, "    %-*s %7s %10s %6s %9s %7s  %s\n", WIDTH,
			 "kernel", "calls", "us", "share", "MB", "GB/s",
			 "grid x block");
	for (; k; k = json_next(k))
		table_row(k, out);
}

void kernels_table(const struct json *profile, const char *title,
		   struct str *out)
{
	static const char *const who[] = { "candidate", "eager", "compile" };
	const char *text = json_get_str(profile, "text", NULL);
	const char *why = json_get_str(profile, "compile_reason", NULL);

	str_addf(out, "%s: %s", title,
		 json_get_str(profile, "status", "no profile"));
	if (json_get_str(profile, "model", NULL))
		str_addf(out, ", %s", json_get_str(profile, "model", ""));
	str_addc(out, '\n');
	if (text)
		str_addf(out, "  %s\n", text);
	for (size_t i = 0; i < sizeof(who) / sizeof(who[0]); i++)
		table_racer(profile, who[i], out);
	if (why)
		str_addf(out, "  compile: %s\n", why);
}
