/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character before `end`. */
static size_t last_len(const char *p, size_t end)
{
	size_t n = 1;

	while (n < end && n < 4 && ((unsigned char)p[end - n] & 0xc0) == 0x80)
		n++;
	return n;
}

static size_t first_len(const char *p, size_t len)
{
	size_t n = 1;

	while (n < len && n < 4 && ((unsigned char)p[n] & 0xc0) == 0x80)
		n++;
	return n;
}

/* Whether a character is white space: U+0009-D, 1C-20, 85, A0, 1680,
 * 2000-200A, 2028, 2029, 202F, 205F, 3000. */
static int is_space(const char *p, size_t len)
{
	const unsigned char *c = (const unsigned char *)p;

	if (len == 1)
		return *c == ' ' || (*c >= 9 && *c <= 13) ||
		       (*c >= 0x1c && *c <= 0x1f);
	if (len == 2)
		return c[0] == 0xc2 && (c[1] == 0x85 || c[1] == 0xa0);
	if (len != 3)
		return 0;
	if (c[0] == 0xe2 && c[1] == 0x80)
		return c[2] <= 0x8a || c[2] == 0xa8 || c[2] == 0xa9 ||
		       c[2] == 0xaf;
	return !memcmp(p, "\xe1\x9a\x80", 3) || !memcmp(p, "\xe2\x81\x9f", 3) ||
	       !memcmp(p, "\xe3\x80\x80", 3);
}

static int in_set(const char *p, size_t len, const char *set, size_t nset)
{
	size_t n;

	for (size_t i = 0; i < nset; i += n) {
		n = first_len(set + i, nset - i);
		if (n == len && !memcmp(set + i, p, n))
			return 1;
	}
	return 0;
}

size_t text_skip_set(const char *p, size_t len, const char *set, size_t nset)
{
	size_t at = 0, n;

	for (; at < len; at += n) {
		n = first_len(p + at, len - at);
		if (!(set ? in_set(p + at, n, set, nset) :
			    is_space(p + at, n)))
			break;
	}
	return at;
}

size_t text_rstrip_set(const char *p, size_t len, const char *set,
		       size_t nset)
{
	while (len) {
		size_t n = last_len(p, len);
		const char *c = p + len - n;

		if (!(set ? in_set(c, n, set, nset) : is_space(c, n)))
			break;
		len -= n;
	}
	return len;
}

size_t text_spaces(const char *p, size_t len)
{
	return text_skip_set(p, len, NULL, 0);
}

size_t text_rstrip(const char *p, size_t len)
{
	return text_rstrip_set(p, len, NULL, 0);
}

size_t text_chars(const char *p, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)p[i] & 0xc0) != 0x80;
	return n;
}

int text_ascii(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)p[i] >= 0x80)
			return 0;
	return 1;
}

/* The fewest digits that read back; then an exponent where Python has one. */
void text_float(double v, struct str *out)
{
	char s[40], digits[24] = { 0 };
	int precision = 0, point, n = 0;

	do
		snprintf(s, sizeof s, "%.*e", precision, v);
	while (strtod(s, NULL) != v && ++precision < 17);
	point = atoi(strchr(s, 'e') + 1);
	for (const char *c = s; *c != 'e'; c++)
		if (*c >= '0' && *c <= '9')
			digits[n++] = *c;
	if (*s == '-')
		str_addc(out, '-');
	if (point < -4 || point >= 16) {
		str_add(out, digits, 1);
		if (n > 1)
			str_addf(out, ".%s", digits + 1);
		str_addf(out, "e%c%02d", point < 0 ? '-' : '+', abs(point));
	} else if (point < 0) {
		str_addf(out, "0.%.*s%s", -point - 1, "000", digits);
	} else {
		for (int i = 0; i <= point || i < n; i++) {
			if (i == point + 1)
				str_addc(out, '.');
			str_addc(out, i < n ? digits[i] : '0');
		}
		if (n <= point + 1)
			str_adds(out, ".0");
	}
}

void text_json(const char *p, size_t len, struct str *out)
{
	static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
	size_t was = 0;

	str_addc(out, '"');
	for (size_t i = 0; i < len; i++) {
		const char *hit = p[i] ? strchr(from, p[i]) : NULL;

		if (!hit && (unsigned char)p[i] >= 0x20)
			continue;
		str_add(out, p + was, i - was);
		was = i + 1;
		if (hit)
			str_addf(out, "\\%c", to[hit - from]);
		else
			str_addf(out, "\\u%04x", (unsigned)p[i]);
	}
	str_add(out, p + was, len - was);
	str_addc(out, '"');
}
