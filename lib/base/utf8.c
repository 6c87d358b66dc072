/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8, one character at a time.
 */
#include "base/utf8.h"

#include <string.h>

static int is_tail(unsigned char c)
{
	return (c & 0xc0) == 0x80;
}

size_t utf8_len(const char *p, size_t len)
{
	const unsigned char *s = (const unsigned char *)p;
	unsigned char lo = 0x80, hi = 0xbf;
	size_t n, i;

	if (len == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (len < n)
		return 0;
	/* The second byte excludes overlong forms, surrogates and what lies
	 * beyond U+10FFFF. */
	if (s[0] == 0xe0)
		lo = 0xa0;
	else if (s[0] == 0xed)
		hi = 0x9f;
	else if (s[0] == 0xf0)
		lo = 0x90;
	else if (s[0] == 0xf4)
		hi = 0x8f;
	if (s[1] < lo || s[1] > hi)
		return 0;
	for (i = 2; i < n; i++)
		if (!is_tail(s[i]))
			return 0;
	return n;
}

size_t utf8_bad(const char *p, size_t len, size_t *line)
{
	size_t i, n;

	*line = 1;
	for (i = 0; i < len; i += n) {
		n = utf8_len(p + i, len - i);
		if (n == 0 || p[i] == '\0')
			return i + 1;
		*line += p[i] == '\n';
	}
	return 0;
}

size_t utf8_mark(const char *p, size_t len)
{
	return len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

size_t utf8_whole(const char *p, size_t len)
{
	for (size_t k = 1; k <= 3 && k <= len; k++) {
		unsigned char c = (unsigned char)p[len - k];
		size_t need = c < 0xc2 || c > 0xf4 ? 1 : c < 0xe0 ? 2 :
			      c < 0xf0 ? 3 : 4;

		if (!is_tail(c))
			return need > k ? len - k : len;
	}
	return len;
}

size_t utf8_put(unsigned long cp, char out[4])
{
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		out[0] = (char)(0xc0 | cp >> 6);
		out[1] = (char)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		out[0] = (char)(0xe0 | cp >> 12);
		out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
		out[2] = (char)(0x80 | (cp & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | cp >> 18);
	out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
	out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
	out[3] = (char)(0x80 | (cp & 0x3f));
	return 4;
}
