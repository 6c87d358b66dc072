/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing byte strings.
 */
#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define CAP_DEFAULT ((size_t)256 << 20)

void str_release(struct str *s)
{
	size_t cap = s->cap;

	free(s->buf);
	memset(s, 0, sizeof *s);
	s->cap = cap;
}

void str_reset(struct str *s)
{
	s->len = 0;
	s->failed = 0;
	if (s->buf)
		s->buf[0] = '\0';
}

/* Room for len more bytes and a NUL. */
static int grow(struct str *s, size_t len)
{
	size_t cap = s->cap ? s->cap : CAP_DEFAULT, want;
	char *p;

	if (s->failed || len > cap || s->len > cap - len) {
		s->failed = 1;
		return -1;
	}
	if (s->buf && s->len + len < s->alloc)
		return 0;
	want = s->alloc < 64 ? 64 : s->alloc;
	while (want <= s->len + len)
		want *= 2;
	p = realloc(s->buf, want);
	if (!p) {
		s->failed = 1;
		return -1;
	}
	s->buf = p;
	s->alloc = want;
	return 0;
}

int str_reserve(struct str *s, size_t len)
{
	return grow(s, len);
}

int str_add(struct str *s, const void *p, size_t len)
{
	if (grow(s, len))
		return -1;
	if (len)
		memcpy(s->buf + s->len, p, len);
	s->len += len;
	s->buf[s->len] = '\0';
	return 0;
}

int str_adds(struct str *s, const char *text)
{
	return str_add(s, text, strlen(text));
}

int str_addc(struct str *s, char c)
{
	return str_add(s, &c, 1);
}

int str_addf(struct str *s, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || grow(s, (size_t)n)) {
		s->failed = 1;
		return -1;
	}
	va_start(ap, fmt);
	vsnprintf(s->buf + s->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	s->len += (size_t)n;
	return 0;
}

char *str_detach(struct str *s)
{
	char *p = NULL;

	if (!s->failed && !grow(s, 0)) {
		p = s->buf;
		p[s->len] = '\0';
		s->buf = NULL;
	}
	str_release(s);
	return p;
}

int starts_with(const char *s, const char *t)
{
	return strncmp(s, t, strlen(t)) == 0;
}

int ends_with(const char *s, const char *t)
{
	size_t n = strlen(s), m = strlen(t);

	return n >= m && memcmp(s + n - m, t, m) == 0;
}

/* Ends lines or turns the direction of text (U+200E, U+2028 to U+202E, U+2066
 * to U+2069 and their like). */
static int is_format(const unsigned char *p)
{
	if (p[0] != 0xe2)
		return 0;
	return p[1] == 0x80 ? p[2] == 0x8e || p[2] == 0x8f ||
			      (p[2] >= 0xa8 && p[2] <= 0xae) :
			      p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9;
}

/* Whether a terminal shows the n bytes of a character as one. */
static int is_shown(const unsigned char *p, size_t n)
{
	switch (n) {
	case 0:
		return 0;
	case 1:
		return *p >= 0x20 && *p != 0x7f;
	case 2:
		return *p != 0xc2 || p[1] >= 0xa0;
	case 3:
		return !is_format(p);
	default:
		return 1;
	}
}

static int add_shown(struct str *s, const char *p, size_t len,
		     const char *others)
{
	const char *end = p + len;

	while (p < end) {
		size_t n = utf8_len(p, (size_t)(end - p));

		if (is_shown((const unsigned char *)p, n) ||
		    (*p && strchr(others, *p))) {
			str_add(s, p, n);
			p += n;
		} else {
			str_addf(s, "\\x%02x", (unsigned char)*p++);
		}
	}
	return s->failed ? -1 : 0;
}

int str_add_safe(struct str *s, const char *p, size_t len)
{
	return add_shown(s, p, len, "\n\t");
}

int str_add_name(struct str *s, const char *name)
{
	return add_shown(s, name, strlen(name), "");
}
