/* SPDX-License-Identifier: Apache-2.0
 *
 * Replacing text.
 */
#define _GNU_SOURCE
#include "agent/edit.h"

#include <ctype.h>
#include <string.h>

#define SHOWN_MAX 5

/* Whether there are line ends and all of them are CRLF. */
static int all_crlf(const char *p, size_t len)
{
	size_t i, n = 0;

	for (i = 0; i < len; i++)
		if (p[i] == '\n') {
			if (!i || p[i - 1] != '\r')
				return 0;
			n++;
		}
	return n > 0;
}

/* s with every bare LF as CRLF. */
static int to_crlf(const char *s, struct str *out)
{
	const char *p;

	str_add(out, "", 0);
	for (p = s; *p; p++) {
		if (*p == '\n' && (p == s || p[-1] != '\r'))
			str_addc(out, '\r');
		str_addc(out, *p);
	}
	return out->failed ? -1 : 0;
}

static size_t line_of(const char *text, const char *at)
{
	size_t n = 1;

	for (; text < at; text++)
		n += *text == '\n';
	return n;
}

/* "found 3 times, in lines 4, 9, 12" */
static int ambiguous(const char *text, size_t len, const char *old, size_t n,
		     size_t count, struct err *e)
{
	const char *p = text, *end = text + len;
	struct str s = STR_INIT;
	size_t shown = 0;

	while ((p = memmem(p, (size_t)(end - p), old, n)) &&
	       shown < SHOWN_MAX) {
		str_addf(&s, "%s%zu", shown ? ", " : "", line_of(text, p));
		p += n;
		shown++;
	}
	err_set(e, CA_DATAERR, "old_string occurs %zu times (lines %s%s); give"
		" more of the text around it, or set replace_all", count,
		s.buf ? s.buf : "?", count > shown ? ", ..." : "");
	str_release(&s);
	return -1;
}

/* How much of two lines agrees: 0 to 1, blanks aside. */
static double likeness(const char *a, size_t n, const char *b, size_t m)
{
	size_t i = 0, j = 0, same = 0, total = 0;

	while (i < n || j < m) {
		while (i < n && isspace((unsigned char)a[i]))
			i++;
		while (j < m && isspace((unsigned char)b[j]))
			j++;
		if (i < n && j < m && a[i] == b[j])
			same++;
		total += (i < n) + (j < m);
		i += i < n;
		j += j < m;
	}
	return total ? 2.0 * (double)same / (double)total : 0;
}

/* The line of the text that is most like the first line of old that is not
 * blank. */
static int missing(const char *text, size_t len, const char *old,
		   struct err *e)
{
	const char *p = text, *end = text + len, *best = NULL;
	size_t n, bestlen = 0;
	double top = 0.5, v;

	old += strspn(old, " \t\r\n");
	n = strcspn(old, "\r\n");
	while (n && p < end) {
		const char *q = memchr(p, '\n', (size_t)(end - p));
		size_t m = q ? (size_t)(q - p) : (size_t)(end - p);

		v = m < 2000 ? likeness(old, n, p, m) : 0;
		if (v > top) {
			top = v;
			best = p;
			bestlen = m;
		}
		p += m + 1;
	}
	if (!best)
		return err_set(e, CA_DATAERR, "old_string is not in the "
			       "file");
	return err_set(e, CA_DATAERR, "old_string is not in the file; the "
		       "nearest is line %zu: '%.*s'", line_of(text, best),
		       (int)(bestlen < 200 ? bestlen : 200), best);
}

static size_t count_of(const char *text, size_t len, const char *old,
		       size_t n)
{
	const char *p = text, *end = text + len;
	size_t count = 0;

	while ((p = memmem(p, (size_t)(end - p), old, n))) {
		count++;
		p += n;
	}
	return count;
}

static int replace(const char *text, size_t len, const char *old, size_t n,
		   const char *by, struct str *out, struct err *e)
{
	const char *p = text, *end = text + len, *q;
	int count = 0;

	str_add(out, "", 0);
	while ((q = memmem(p, (size_t)(end - p), old, n))) {
		str_add(out, p, (size_t)(q - p));
		str_adds(out, by);
		p = q + n;
		count++;
	}
	str_add(out, p, (size_t)(end - p));
	if (out->failed)
		return err_set(e, CA_DATAERR, "the file would be too large");
	return count;
}

int edit_text(const char *text, size_t len, const char *old, const char *by,
	      int all, struct str *out, struct err *e)
{
	struct str o = STR_INIT, b = STR_INIT;
	int crlf = all_crlf(text, len), rc = -1;
	size_t count;

	if (!*old)
		return err_set(e, CA_DATAERR, "old_string is empty; Write "
			       "makes new files");
	if (!strcmp(old, by))
		return err_set(e, CA_DATAERR, "old_string and new_string are "
			       "the same");
	if (crlf && (to_crlf(old, &o) || to_crlf(by, &b))) {
		err_set(e, CA_SOFTWARE, "out of memory");
		goto out;
	}
	if (crlf) {
		old = o.buf;
		by = b.buf;
	}
	count = count_of(text, len, old, strlen(old));
	if (!count)
		missing(text, len, old, e);
	else if (count > 1 && !all)
		ambiguous(text, len, old, strlen(old), count, e);
	else
		rc = replace(text, len, old, strlen(old), by, out, e);
out:
	str_release(&o);
	str_release(&b);
	return rc;
}
