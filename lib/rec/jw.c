/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing JSON.
 */
#include "rec/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void jw_init(struct jw *w, struct str *out)
{
	w->out = out;
	w->comma = 0;
}

/* What stands before a value, and that the next one needs a comma. */
static void before(struct jw *w)
{
	if (w->comma)
		str_addc(w->out, ',');
	w->comma = 1;
}

static void open_with(struct jw *w, char c)
{
	before(w);
	str_addc(w->out, c);
	w->comma = 0;
}

static void close_with(struct jw *w, char c)
{
	str_addc(w->out, c);
	w->comma = 1;
}

void jw_obj(struct jw *w)
{
	open_with(w, '{');
}

void jw_arr(struct jw *w)
{
	open_with(w, '[');
}

void jw_end_obj(struct jw *w)
{
	close_with(w, '}');
}

void jw_end_arr(struct jw *w)
{
	close_with(w, ']');
}

/* One byte that a string cannot hold as it is. */
static void put_escape(struct str *out, unsigned char c)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
	const char *at = c ? strchr(from, c) : NULL;

	if (at)
		str_add(out, (const char[]){ '\\', to[at - from] }, 2);
	else
		str_addf(out, "\\u%04x", c);
}

/* Whether none of eight bytes is a quote, a backslash, a control character or
 * beyond ASCII. */
static int all_plain(const char *p)
{
	const uint64_t ones = 0x0101010101010101u, tops = ones << 7;
	uint64_t w, quote, slash;

	memcpy(&w, p, sizeof w);
	quote = w ^ ones * '"';
	slash = w ^ ones * '\\';
	/* A byte of ASCII less than x borrows from its top bit. */
	return !((w | (w - ones * 0x20) | (quote - ones) | (slash - ones)) &
		 tops);
}

/* The longest run from p on that is copied as it is. */
static size_t plain_run(const char *p, size_t len)
{
	size_t n = 0, k;

	while (n < len) {
		unsigned char c = (unsigned char)p[n];

		if (len - n >= 8 && all_plain(p + n)) {
			n += 8;
			continue;
		}
		if (c < 0x20 || c == '"' || c == '\\')
			break;
		k = c < 0x80 ? 1 : utf8_len(p + n, len - n);
		if (k == 0)
			break;
		n += k;
	}
	return n;
}

static void put_string(struct str *out, const char *s, size_t len)
{
	size_t i = 0;

	str_addc(out, '"');
	while (i < len) {
		size_t n = plain_run(s + i, len - i);

		str_add(out, s + i, n);
		i += n;
		if (i == len)
			break;
		/* NUL is refused by every reader behind the wall. */
		if (s[i] == '\0' || (unsigned char)s[i] >= 0x80)
			str_adds(out, "\xef\xbf\xbd");
		else
			put_escape(out, (unsigned char)s[i]);
		i++;
	}
	str_addc(out, '"');
}

void jw_key(struct jw *w, const char *key)
{
	before(w);
	put_string(w->out, key, strlen(key));
	str_addc(w->out, ':');
	w->comma = 0;
}

void jw_str(struct jw *w, const char *s)
{
	jw_strn(w, s, strlen(s));
}

void jw_strn(struct jw *w, const char *s, size_t len)
{
	before(w);
	put_string(w->out, s, len);
}

void jw_int(struct jw *w, int64_t v)
{
	before(w);
	str_addf(w->out, "%" PRId64, v);
}

void jw_u64(struct jw *w, uint64_t v)
{
	before(w);
	str_addf(w->out, "\"%" PRIu64 "\"", v);
}

void jw_num(struct jw *w, double v)
{
	char buf[32];
	int digits;

	if (!isfinite(v)) {
		jw_null(w);
		return;
	}
	for (digits = 15; digits <= 17; digits++) {
		snprintf(buf, sizeof buf, "%.*g", digits, v);
		if (strtod(buf, NULL) == v)
			break;
	}
	before(w);
	str_adds(w->out, buf);
}

void jw_bool(struct jw *w, int v)
{
	before(w);
	str_adds(w->out, v ? "true" : "false");
}

void jw_null(struct jw *w)
{
	before(w);
	str_adds(w->out, "null");
}

void jw_b64(struct jw *w, const void *p, size_t len)
{
	static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
		"abcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *s = p;
	size_t i;

	before(w);
	str_addc(w->out, '"');
	for (i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		unsigned v = (unsigned)s[i] << 16 |
			     (n > 1 ? (unsigned)s[i + 1] << 8 : 0) |
			     (n > 2 ? s[i + 2] : 0u);
		char four[4] = {
			digit[v >> 18], digit[v >> 12 & 63],
			n > 1 ? digit[v >> 6 & 63] : '=',
			n > 2 ? digit[v & 63] : '='
		};

		str_add(w->out, four, 4);
	}
	str_addc(w->out, '"');
}

void jw_raw(struct jw *w, const char *json, size_t len)
{
	before(w);
	str_add(w->out, json, len);
}

static void put_members(struct jw *w, const struct json *j, int keys)
{
	const struct json *m;

	for (m = json_first(j); m; m = json_next(m)) {
		if (keys)
			jw_key(w, json_key(m));
		jw_node(w, m);
	}
}

/* Recursion is bounded by JSON_MAX_DEPTH, which the parser enforced. */
void jw_node(struct jw *w, const struct json *j)
{
	switch (json_type(j)) {
	case JSON_NONE:
	case JSON_NULL:
		jw_null(w);
		break;
	case JSON_BOOL:
		jw_bool(w, json_bool(j, 0));
		break;
	case JSON_NUMBER:
		jw_num(w, json_num(j, 0));
		break;
	case JSON_STRING:
		jw_str(w, json_str(j, ""));
		break;
	case JSON_ARRAY:
		jw_arr(w);
		put_members(w, j, 0);
		jw_end_arr(w);
		break;
	case JSON_OBJECT:
		jw_obj(w);
		put_members(w, j, 1);
		jw_end_obj(w);
		break;
	}
}

void jw_kstr(struct jw *w, const char *k, const char *v)
{
	jw_key(w, k);
	if (v)
		jw_str(w, v);
	else
		jw_null(w);
}

void jw_kint(struct jw *w, const char *k, int64_t v)
{
	jw_key(w, k);
	jw_int(w, v);
}

void jw_ku64(struct jw *w, const char *k, uint64_t v)
{
	jw_key(w, k);
	jw_u64(w, v);
}

void jw_knum(struct jw *w, const char *k, double v)
{
	jw_key(w, k);
	jw_num(w, v);
}

void jw_kbool(struct jw *w, const char *k, int v)
{
	jw_key(w, k);
	jw_bool(w, v);
}
