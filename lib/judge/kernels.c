/* SPDX-License-Identifier: Apache-2.0 */
#include "judge/kernels.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST 32
#define WIDTH 52	/* of a name in the table */
#define COUNTS 1e15	/* no number that a child tells is larger */

/* A name as demanglers write it: no return type, no arguments. */
static void plain_name(const char *name, char *out, size_t outlen)
{
	static const char anon[] = "(anonymous namespace)::";
	size_t n = 0;

	if (starts_with(name, "void "))
		name += 5;
	while (*name && *name != '<' && n + 1 < outlen) {
		if (starts_with(name, anon)) {
			name += sizeof(anon) - 1;
			continue;
		}
		if (*name == '(')
			break;
		out[n++] = *name++;
	}
	while (n && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
}

/*
 * Itanium names: _Z, then N and a run of <length><text> for nested ones, or
 * one of them.  Template arguments and parameters are left out.  The names
 * come from a process that nobody trusts, so nothing cleverer reads them.
 */
void kernels_name(const char *name, char *out, size_t outlen)
{
	const char *p = name;
	size_t n = 0;

	if (strncmp(p, "_Z", 2)) {
		plain_name(name, out, outlen);
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
		snprintf(out, outlen, "%s", name);
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
	char name[256], code[20];

	kernels_name(r->name, name, sizeof(name));
	snprintf(code, sizeof(code), "%016llx",
		 (unsigned long long)r->code);
	jw_obj(w);
	jw_kstr(w, "name", name);
	jw_kstr(w, "op", NULL);
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
	jw_kstr(w, "code", r->code ? code : NULL);
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

/* A number of a child's: 0 for what is none. */
static double told_num(const struct json *row, const char *key)
{
	double v = json_get_num(row, key, 0);

	return v > 0 && v < COUNTS ? v : 0;
}

static void told_dim(const struct json *row, const char *key, struct jw *w)
{
	const struct json *d = json_first(json_get(row, key));

	jw_key(w, key);
	if (!d) {
		jw_null(w);
		return;
	}
	jw_arr(w);
	for (int i = 0; i < 3; i++, d = json_next(d))
		jw_int(w, json_int(d, 1));
	jw_end_arr(w);
}

static void told_row(const struct json *row, double total, struct jw *w)
{
	char name[256];
	double bytes = told_num(row, "bytes");

	kernels_name(json_get_str(row, "name", "?"), name, sizeof(name));
	jw_obj(w);
	jw_kstr(w, "name", name);
	jw_kstr(w, "op", json_get_str(row, "op", NULL));
	jw_knum(w, "calls", told_num(row, "calls"));
	jw_knum(w, "us", told_num(row, "us"));
	jw_knum(w, "share", total > 0 ? told_num(row, "us") / total : 0);
	jw_knum(w, "bytes", bytes > 0 ? bytes : NAN);
	told_dim(row, "grid", w);
	told_dim(row, "block", w);
	jw_kstr(w, "code", NULL);
	jw_end_obj(w);
}

void kernels_told(const struct json *told, struct jw *w)
{
	const struct json *rows = json_get(told, "rows");
	double total = 0;
	int n = 0;

	if (!json_len(rows)) {
		jw_null(w);
		return;
	}
	for (const struct json *r = json_first(rows); r; r = json_next(r))
		total += told_num(r, "us");
	jw_arr(w);
	for (const struct json *r = json_first(rows); r && n++ < MOST;
	     r = json_next(r))
		told_row(r, total, w);
	jw_end_arr(w);
}

/* Text of others' on one line. */
static void one_line(const char *text, struct str *out)
{
	size_t n;

	for (; *text; text += n) {
		n = strcspn(text, "\n\t");
		str_add_safe(out, text, n);
		if (text[n]) {
			str_addc(out, ' ');
			n++;
		}
	}
}

/* The last line of a text: of a traceback, what was raised. */
static void last_line(const char *text, struct str *out)
{
	size_t n = strlen(text), from;

	while (n && text[n - 1] == '\n')
		n--;
	for (from = n; from && text[from - 1] != '\n';)
		from--;
	str_add_safe(out, text + from, n - from);
}

static void add_name(const struct json *k, struct str *out)
{
	const char *name = json_get_str(k, "name", "?");
	const char *op = json_get_str(k, "op", NULL);
	struct str cell = STR_INIT;

	if (op && strcmp(op, name)) {
		one_line(starts_with(op, "aten::") ? op + 6 : op, &cell);
		str_adds(&cell, ": ");
	}
	one_line(name, &cell);
	str_addf(out, "    %-*.*s", WIDTH, WIDTH, cell.buf ? cell.buf : "");
	str_release(&cell);
}

/* Megabytes, their rate, and what that is of a copy's. */
static void add_rate(double bytes, double us, double copy, struct str *out)
{
	if (!(bytes > 0 && us > 0)) {
		str_addf(out, " %9s %7s %6s", "-", "-", "-");
		return;
	}
	str_addf(out, " %9.2f %7.2f", bytes / 1e6, bytes / us / 1e3);
	if (copy > 0)
		str_addf(out, " %5.0f%%", 100 * bytes / (us * 1e-6) / copy);
	else
		str_addf(out, " %6s", "-");
}

static void table_dim(const struct json *d, struct str *out)
{
	for (d = json_first(d); d; d = json_next(d)) {
		str_addf(out, "%lld", (long long)json_int(d, 0));
		if (json_next(d))
			str_addc(out, ',');
	}
}

static void table_row(const struct json *k, double copy, struct str *out)
{
	double us = json_get_num(k, "us", 0);

	add_name(k, out);
	str_addf(out, " %7.4g %10.1f %5.1f%%", json_get_num(k, "calls", 0),
		 us, 100 * json_get_num(k, "share", 0));
	add_rate(json_get_num(k, "bytes", 0), us, copy, out);
	if (json_first(json_get(k, "grid"))) {
		str_adds(out, "  ");
		table_dim(json_get(k, "grid"), out);
		str_adds(out, " x ");
		table_dim(json_get(k, "block"), out);
	}
	str_addc(out, '\n');
}

/* The rows' sum, those left out too, by the largest row's share. */
static void table_rows(const struct json *rows, double copy, struct str *out)
{
	const struct json *k = json_first(rows);
	double us = json_get_num(k, "us", 0), calls = 0;
	double share = json_get_num(k, "share", 0), listed = 0;
	double total = share > 0 ? us / share : us;

	for (; k; k = json_next(k)) {
		table_row(k, copy, out);
		calls += json_get_num(k, "calls", 0);
		listed += json_get_num(k, "us", 0);
	}
	if (total - listed > total * 5e-4)
		str_addf(out, "    %-*s %7s %10.1f %5.1f%%\n", WIDTH,
			 "(shorter ones)", "-", total - listed,
			 100 - 100 * listed / total);
	str_addf(out, "    %-*s %7.4g %10.1f %5.1f%%\n", WIDTH, "sum", calls,
		 total, 100.0);
}

/* Whether rows were printed. */
static int table_racer(const struct json *p, const char *who, double copy,
		       struct str *out)
{
	const struct json *time = json_get(p, who);
	const struct json *rows = json_get(json_get(p, "kernels"), who);
	double us = json_get_num(time, "median_us", 0);

	if (json_type(time) != JSON_OBJECT)
		return 1;
	str_addf(out, "  %-*s %7s %10s %6s %9s %7s %6s", WIDTH + 2, who,
		 "calls", "us", "share", "MB", "GB/s", "copy");
	str_adds(out, json_first(json_get(json_first(rows), "grid")) ?
		 "  grid x block\n" : "\n");
	if (json_len(rows))
		table_rows(rows, copy, out);
	str_addf(out, "    %-*s %7d %10.1f %6s", WIDTH,
		 "whole call, by the judge's clock", 1, us, "");
	add_rate(json_get_num(p, "bytes", 0), us, copy, out);
	str_addc(out, '\n');
	return json_len(rows) > 0;
}

static void speedup(const struct json *p, const char *over, struct str *out)
{
	const struct json *s = json_path(p, "speedup");

	s = json_get(s, over);
	if (json_type(s) != JSON_OBJECT)
		return;
	str_addf(out, "  %.3gx over %s", json_get_num(s, "point", 0), over);
	if (json_type(json_get(s, "lower")) == JSON_NUMBER &&
	    json_type(json_get(s, "upper")) == JSON_NUMBER)
		str_addf(out, " (%.3g to %.3g)", json_get_num(s, "lower", 0),
			 json_get_num(s, "upper", 0));
	str_addc(out, '\n');
}

static void table_head(const struct json *p, const char *title,
		       struct str *out)
{
	const char *text = json_get_str(p, "text", NULL);
	const char *model = json_get_str(p, "model", NULL);

	one_line(title, out);
	str_addf(out, ": %s", json_get_str(p, "status", "no result"));
	if (text) {
		str_adds(out, ": ");
		last_line(text, out);
	} else if (model && json_get(p, "kernels")) {
		str_adds(out, ", ");
		one_line(model, out);
	}
	str_addc(out, '\n');
}

void kernels_table(const struct json *profile, const char *title, double copy,
		   struct str *out)
{
	static const char *const who[] = { "candidate", "eager", "compile" };
	const char *why = json_get_str(profile, "compile_reason", NULL);
	int on_cpu = !strcmp(json_get_str(profile, "device", ""), "cpu");
	int all = 1;

	table_head(profile, title, out);
	if (json_type(json_get(profile, "eager")) != JSON_OBJECT)
		return;
	speedup(profile, "eager", out);
	speedup(profile, "compile", out);
	if (copy > 0)
		str_addf(out, "  a copy reads and writes %.4g GB/s\n",
			 copy / 1e9);
	/* A compile baseline that did not run now, as `why` says, has none. */
	for (size_t i = 0; i < sizeof(who) / sizeof(who[0]); i++)
		all &= table_racer(profile, who[i], copy, out) ||
		       (why && !strcmp(who[i], "compile"));
	if (why) {
		str_adds(out, "  compile: ");
		last_line(why, out);
		str_addc(out, '\n');
	}
	why = json_get_str(profile, "kernels_reason", NULL);
	if (why) {
		str_adds(out, "  no kernels: ");
		last_line(why, out);
		str_addc(out, '\n');
	} else if (!all) {
		str_adds(out, on_cpu ? "  kernels are not recorded on the "
			 "CPU\n" : "  no kernels were recorded\n");
	}
}
