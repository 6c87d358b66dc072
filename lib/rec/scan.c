/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict scanner for RFC 8259: UTF-8 without overlong forms, no control
 * characters, no NUL (written out or escaped), surrogates in pairs, no key
 * twice in one object, numbers that are finite as doubles, a limit on depth.
 */
#include "rec/scan.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "rec/json.h"

#define KEYS_INLINE 64

struct key {
	uint64_t hash;
	const char *p;		/* unescaped */
	size_t len;
	const char *at;		/* where it stands, for messages */
};

struct scan {
	const char *text, *p, *end;
	int depth;
	struct err *e;
	const char *bad;	/* where it went wrong */
	struct key *keys;	/* of all open objects, innermost last */
	size_t nkeys, alloc;
	struct key few[KEYS_INLINE];
	struct arena own;	/* unescaped keys, unless the caller has one */
	struct arena *arena;
	struct scan_top *top;	/* filled at depth 1 */
};

/* A scanned string: its inside. */
struct span {
	const char *p;
	size_t len;
	int escaped;
};

static int value(struct scan *s);

static int fail(struct scan *s, const char *at, const char *what)
{
	s->bad = at;
	return err_set(s->e, CA_DATAERR, "%s", what);
}

static int no_memory(struct scan *s)
{
	s->bad = s->p;
	return err_set(s->e, CA_SOFTWARE, "no memory");
}

const char *scan_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' ||
			   *p == '\t'))
		p++;
	return p;
}

static void space(struct scan *s)
{
	s->p = scan_space(s->p, s->end);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Four hexadecimal digits at p; -1 when they are not. */
static long hex4(const char *p, const char *end)
{
	long v = 0;
	int i;

	if (end - p < 4)
		return -1;
	for (i = 0; i < 4; i++) {
		int d = hex_digit(p[i]);

		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

static int is_high(long v)
{
	return v >= 0xd800 && v < 0xdc00;
}

static int is_low(long v)
{
	return v >= 0xdc00 && v < 0xe000;
}

/* A \u escape; s->p is at the backslash. */
static int unicode_escape(struct scan *s)
{
	const char *at = s->p;
	long v = hex4(at + 2, s->end), w = -1;

	if (v < 0)
		return fail(s, at, "bad \\u escape");
	if (v == 0)
		return fail(s, at, "\\u0000 is not allowed");
	s->p += 6;
	if (is_low(v))
		return fail(s, at, "lone surrogate");
	if (!is_high(v))
		return 0;
	if (s->end - s->p >= 2 && s->p[0] == '\\' && s->p[1] == 'u')
		w = hex4(s->p + 2, s->end);
	if (!is_low(w))
		return fail(s, at, "lone surrogate");
	s->p += 6;
	return 0;
}

static int escape(struct scan *s)
{
	char c;

	if (s->end - s->p < 2)
		return fail(s, s->p, "unterminated string");
	c = s->p[1];
	if (c == 'u')
		return unicode_escape(s);
	if (!c || !strchr("\"\\/bfnrt", c))
		return fail(s, s->p, "bad escape");
	s->p += 2;
	return 0;
}

/* A byte of a string that is not plain ASCII. */
static int odd_byte(struct scan *s)
{
	unsigned char c = (unsigned char)*s->p;
	size_t n;

	if (c == 0)
		return fail(s, s->p, "NUL byte");
	if (c < 0x20)
		return fail(s, s->p, "control character in a string");
	n = utf8_len(s->p, (size_t)(s->end - s->p));
	if (n == 0)
		return fail(s, s->p, "invalid UTF-8");
	s->p += n;
	return 0;
}

/* s->p is at the opening quote. */
static int string(struct scan *s, struct span *out)
{
	const char *open = s->p++;

	out->p = s->p;
	out->escaped = 0;
	while (s->p < s->end) {
		unsigned char c = (unsigned char)*s->p;

		if (c == '"') {
			out->len = (size_t)(s->p - out->p);
			s->p++;
			return 0;
		}
		if (c == '\\') {
			out->escaped = 1;
			if (escape(s))
				return -1;
		} else if (c >= 0x20 && c < 0x80) {
			s->p++;
		} else if (odd_byte(s)) {
			return -1;
		}
	}
	return fail(s, open, "unterminated string");
}

static int digits(struct scan *s)
{
	const char *from = s->p, *p = from, *end = s->end;

	while (p < end && *p >= '0' && *p <= '9')
		p++;
	s->p = p;
	return p > from ? 0 : -1;
}

static int is_at(const struct scan *s, char c)
{
	return s->p < s->end && *s->p == c;
}

static int finite_as_double(const char *p, size_t len)
{
	char buf[SCAN_NUMBER_MAX + 1];

	memcpy(buf, p, len);
	buf[len] = '\0';
	return isfinite(strtod(buf, NULL));
}

static int number(struct scan *s)
{
	const char *from = s->p;
	int exponent = 0;

	s->p += is_at(s, '-');
	if (is_at(s, '0'))
		s->p++;
	else if (digits(s))
		return fail(s, s->p, "bad number");
	if (is_at(s, '.')) {
		s->p++;
		if (digits(s))
			return fail(s, s->p, "bad number");
	}
	if (is_at(s, 'e') || is_at(s, 'E')) {
		exponent = 1;
		s->p++;
		s->p += is_at(s, '+') || is_at(s, '-');
		if (digits(s))
			return fail(s, s->p, "bad number");
	}
	if (s->p - from > SCAN_NUMBER_MAX)
		return fail(s, from, "number of more than 63 characters");
	/* Without an exponent, 63 digits are far from overflow. */
	if (exponent && !finite_as_double(from, (size_t)(s->p - from)))
		return fail(s, from, "number out of range");
	return 0;
}

static int word(struct scan *s, const char *w)
{
	size_t n = strlen(w);

	if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0)
		return fail(s, s->p, "unexpected character");
	s->p += n;
	return 0;
}

static uint64_t key_hash(const char *p, size_t len)
{
	uint64_t h = 0xcbf29ce484222325u;
	size_t i;

	for (i = 0; i < len; i++)
		h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
	return h;
}

static int keys_grow(struct scan *s)
{
	size_t want = s->alloc * 2;
	struct key *k;

	if (want > SIZE_MAX / sizeof *k)
		return no_memory(s);
	k = realloc(s->keys == s->few ? NULL : s->keys, want * sizeof *k);
	if (!k)
		return no_memory(s);
	if (s->keys == s->few)
		memcpy(k, s->few, sizeof s->few);
	s->keys = k;
	s->alloc = want;
	return 0;
}

/* Pushes the key of a member, unescaped. */
static int push_key(struct scan *s, const struct span *k, const char *at)
{
	struct key key = { 0, k->p, k->len, at };

	if (k->escaped) {
		char *p = arena_alloc(s->arena, k->len, 1);

		if (!p)
			return no_memory(s);
		key.len = scan_unescape(k->p, k->len, p);
		key.p = p;
	}
	key.hash = key_hash(key.p, key.len);
	if (s->nkeys == s->alloc && keys_grow(s))
		return -1;
	s->keys[s->nkeys++] = key;
	return 0;
}

/* By hash, length, bytes: a total order, so that keys made to collide cost no
 * more than others. */
static int key_order(const void *a, const void *b)
{
	const struct key *x = a, *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return memcmp(x->p, y->p, x->len);
}

/* Looks for a key that occurs twice among n. */
static int check_keys(struct scan *s, struct key *k, size_t n)
{
	size_t i, j;

	if (n > 12) {
		qsort(k, n, sizeof *k, key_order);
		for (i = 1; i < n; i++)
			if (key_order(&k[i - 1], &k[i]) == 0)
				return fail(s, k[i - 1].at > k[i].at ?
					    k[i - 1].at : k[i].at,
					    "duplicate key");
		return 0;
	}
	for (i = 1; i < n; i++)
		for (j = 0; j < i; j++)
			if (key_order(&k[i], &k[j]) == 0)
				return fail(s, k[i].at, "duplicate key");
	return 0;
}

/* Notes a finished member of the top-level object. */
static int note_member(struct scan *s, const char *start, const char *val)
{
	struct scan_top *t = s->top;
	const struct key *k = &s->keys[s->nkeys - 1];

	if (t->n == t->alloc) {
		size_t want = t->alloc ? 2 * t->alloc : 16;
		struct scan_member *m = arena_alloc(s->arena, want, sizeof *m);

		if (!m)
			return no_memory(s);
		if (t->n)
			memcpy(m, t->member, t->n * sizeof *m);
		t->member = m;
		t->alloc = want;
	}
	t->member[t->n++] = (struct scan_member){
		k->p, k->len, (size_t)(start - s->text),
		(size_t)(val - s->text), (size_t)(s->p - s->text)
	};
	return 0;
}

/* Whether the member whose key was read is to be taken as numbers. */
static int wants_ids(const struct scan *s)
{
	const struct scan_top *t = s->top;
	const struct key *k = &s->keys[s->nkeys - 1];

	return t && t->ids_key && s->depth == 1 &&
	       k->len == strlen(t->ids_key) &&
	       !memcmp(k->p, t->ids_key, k->len);
}

/* Room for one more. */
static int ids_grow(struct scan_top *t, size_t *alloc)
{
	size_t want = *alloc ? 2 * *alloc : 1024;
	int32_t *id;

	if (t->nids < *alloc)
		return 0;
	id = realloc(t->ids, want * sizeof *id);
	if (!id)
		return -1;
	t->ids = id;
	*alloc = want;
	return 0;
}

/* Up to nine digits at p, and their end; NULL: there is no such number. */
static const char *plain_number(const char *p, const char *end, int32_t *v)
{
	const char *from = p;
	int32_t x = 0;

	if (end - p > 9)
		end = p + 9;
	for (unsigned d; p < end && (d = (unsigned char)*p - '0') < 10; p++)
		x = 10 * x + (int32_t)d;
	*v = x;
	return p == from || (*from == '0' && p > from + 1) ? NULL : p;
}

/* An array of nothing but such numbers; else nothing is taken: 0. */
static int take_ids(struct scan *s)
{
	struct scan_top *t = s->top;
	const char *p = scan_space(s->p + 1, s->end);
	size_t alloc = 0;

	for (t->nids = 0; !ids_grow(t, &alloc); t->nids++) {
		p = plain_number(p, s->end, &t->ids[t->nids]);
		if (!p)
			break;
		/* As nearly all are written. */
		if (s->end - p > 2 && p[0] == ',' && p[1] == ' ' &&
		    p[2] > ' ') {
			p += 2;
			continue;
		}
		p = scan_space(p, s->end);
		if (p == s->end || (*p != ',' && *p != ']'))
			break;
		if (*p == ']') {
			t->nids++;
			s->p = p + 1;
			return 1;
		}
		p = scan_space(p + 1, s->end);
	}
	free(t->ids);
	t->ids = NULL;
	t->nids = 0;
	return 0;
}

static int member(struct scan *s)
{
	const char *start = s->p, *val;
	struct span key;

	if (!is_at(s, '"'))
		return fail(s, s->p, "expected a key");
	if (string(s, &key) || push_key(s, &key, start))
		return -1;
	space(s);
	if (!is_at(s, ':'))
		return fail(s, s->p, "expected ':'");
	s->p++;
	space(s);
	val = s->p;
	if (wants_ids(s) && is_at(s, '[')) {
		if (!take_ids(s) && value(s))
			return -1;
	} else if (value(s)) {
		return -1;
	}
	return s->top && s->depth == 1 ? note_member(s, start, val) : 0;
}

/* The part of arrays and objects between the brackets. */
static int items(struct scan *s, int (*item)(struct scan *), char close)
{
	s->p++;
	space(s);
	if (is_at(s, close)) {
		s->p++;
		return 0;
	}
	for (;;) {
		if (item(s))
			return -1;
		space(s);
		if (is_at(s, close)) {
			s->p++;
			return 0;
		}
		if (!is_at(s, ','))
			return fail(s, s->p, close == '}' ?
				    "expected ',' or '}'" :
				    "expected ',' or ']'");
		s->p++;
		space(s);
	}
}

static int container(struct scan *s)
{
	size_t first = s->nkeys;
	int rc;

	if (++s->depth > JSON_MAX_DEPTH)
		return fail(s, s->p, "nested too deeply");
	if (*s->p == '[') {
		rc = items(s, value, ']');
	} else {
		rc = items(s, member, '}');
		if (rc == 0)
			rc = check_keys(s, s->keys + first, s->nkeys - first);
		s->nkeys = first;
	}
	s->depth--;
	return rc;
}

static int value(struct scan *s)
{
	struct span ignored;

	if (s->p == s->end)
		return fail(s, s->p, "unexpected end");
	switch (*s->p) {
	case '"':
		return string(s, &ignored);
	case '{':
	case '[':
		return container(s);
	case 't':
		return word(s, "true");
	case 'f':
		return word(s, "false");
	case 'n':
		return word(s, "null");
	case '\0':
		return fail(s, s->p, "NUL byte");
	default:
		if (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'))
			return number(s);
		return fail(s, s->p, "unexpected character");
	}
}

int scan_json(const char *text, size_t len, struct scan_top *top,
	      struct arena *arena, size_t *at, struct err *e)
{
	struct scan s;
	int rc = -1;

	s.text = s.p = s.bad = text;
	s.end = text + len;
	s.depth = 0;
	s.e = e;
	s.keys = s.few;
	s.nkeys = 0;
	s.alloc = KEYS_INLINE;
	s.own = (struct arena)ARENA_INIT;
	s.arena = arena ? arena : &s.own;
	s.top = top;
	space(&s);
	if (s.p == s.end)
		fail(&s, s.p, "empty");
	else if (top && *s.p != '{')
		fail(&s, s.p, "not an object");
	else
		rc = value(&s);
	if (rc == 0) {
		space(&s);
		if (s.p < s.end)
			rc = fail(&s, s.p, "trailing bytes");
	}
	if (rc && at)
		*at = (size_t)(s.bad - text) + 1;
	if (s.keys != s.few)
		free(s.keys);
	arena_release(&s.own);
	return rc;
}

/* One escape at p (a backslash); its length goes to *used. */
static size_t unescape_one(const char *p, char *out, size_t *used)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	unsigned long v;

	if (p[1] != 'u') {
		*used = 2;
		out[0] = to[strchr(from, p[1]) - from];
		return 1;
	}
	v = (unsigned long)hex4(p + 2, p + 6);
	*used = 6;
	if (is_high((long)v)) {
		v = 0x10000 + ((v - 0xd800) << 10) +
		    ((unsigned long)hex4(p + 8, p + 12) - 0xdc00);
		*used = 12;
	}
	return utf8_put(v, out);
}

size_t scan_unescape(const char *p, size_t len, char *out)
{
	const char *end = p + len;
	char *o = out;

	while (p < end) {
		const char *back = memchr(p, '\\', (size_t)(end - p));
		size_t n = (size_t)((back ? back : end) - p), used = 0;

		memmove(o, p, n);
		o += n;
		p += n;
		if (back) {
			o += unescape_one(p, o, &used);
			p += used;
		}
	}
	return (size_t)(o - out);
}

static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p < end ? p + 1 : end;
}

const char *scan_skip(const char *p, const char *end)
{
	int depth = 0;

	while (p < end) {
		if (*p == '"') {
			p = skip_string(p, end);
		} else if (*p == '{' || *p == '[') {
			depth++;
			p++;
			continue;
		} else if (*p == '}' || *p == ']') {
			depth--;
			p++;
		} else if (depth == 0) {
			while (p < end && !strchr(",]} \t\r\n", *p))
				p++;
		} else {
			p++;
			continue;
		}
		if (depth == 0)
			return p;
	}
	return p;
}

const struct scan_member *scan_find(const struct scan_top *top,
				    const char *key)
{
	size_t i, len = strlen(key);

	for (i = 0; i < top->n; i++)
		if (top->member[i].keylen == len &&
		    memcmp(top->member[i].key, key, len) == 0)
			return &top->member[i];
	return NULL;
}
