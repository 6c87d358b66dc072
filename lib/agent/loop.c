/* SPDX-License-Identifier: Apache-2.0
 *
 * Circles.
 */
#include "agent/loop.h"

#include <ctype.h>
#include <string.h>

#include "base/hash.h"

static int is_hex(char c)
{
	return isxdigit((unsigned char)c) != 0;
}

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Length of a unit of time at p, with a blank before it or not; 0. */
static size_t unit(const char *p)
{
	static const char *const units[] = {
		"milliseconds", "microseconds", "seconds", "second", "secs",
		"sec", "minutes", "min", "ms", "us", "ns", "s"
	};
	size_t blank = *p == ' ', i, n;

	for (i = 0; i < sizeof(units) / sizeof(*units); i++) {
		n = strlen(units[i]);
		if (!strncmp(p + blank, units[i], n) &&
		    !isalnum((unsigned char)p[blank + n]))
			return blank + n;
	}
	return 0;
}

/* Length of a time or address at p; 0: none. */
static size_t volatile_at(const char *p)
{
	size_t n = 0, colons = 0, u;

	if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X') && is_hex(p[2])) {
		for (n = 2; is_hex(p[n]); n++)
			;
		return n;
	}
	if (!is_digit(*p))
		return 0;
	for (; is_digit(p[n]) || ((p[n] == '.' || p[n] == ':') &&
				  is_digit(p[n + 1])); n++)
		colons += p[n] == ':';
	if (colons == 2)
		return n;
	u = colons ? 0 : unit(p + n);
	return u ? n + u : 0;
}

void loop_mask(const char *text, struct str *out)
{
	const char *p = text;

	while (*p) {
		size_t n = p == text || !isalnum((unsigned char)p[-1]) ?
			volatile_at(p) : 0;

		if (n)
			str_addc(out, '#');
		else
			str_addc(out, *p);
		p += n ? n : 1;
	}
}

static uint64_t digest(const char *tool, const char *args, const char *result)
{
	struct str masked = STR_INIT;
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];
	uint64_t v = 0;

	if (!h)
		return 0;
	loop_mask(result, &masked);
	hash_part(h, tool, strlen(tool));
	hash_part(h, args, strlen(args));
	hash_part(h, masked.buf ? masked.buf : "", masked.len);
	hash_end(h, sum);
	str_release(&masked);
	memcpy(&v, sum, sizeof(v));
	return v ? v : 1;
}

int loop_add(struct loop *l, const char *tool, const char *args,
	     const char *result)
{
	uint64_t *v = l->last;

	memmove(v + 1, v, (LOOP_SPAN - 1) * sizeof(*v));
	v[0] = digest(tool, args, result);
	if (v[0] && v[0] == v[1] && v[1] == v[2] && v[2] == v[3])
		return 1;
	return v[0] && v[5] && v[0] == v[2] && v[2] == v[4] && v[1] == v[3] &&
	       v[3] == v[5] && v[0] != v[1];
}
