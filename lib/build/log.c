/* SPDX-License-Identifier: Apache-2.0
 *
 * What compilers say.
 */
#define _GNU_SOURCE
#include "build/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 1000000000	/* more is no line number */

static const char *safe(struct arena *a, const char *p, size_t n)
{
	struct str s = STR_INIT;
	const char *t;

	str_add_safe(&s, p, n < 1000 ? n : 1000);
	t = arena_strndup(a, s.buf ? s.buf : "", s.len);
	str_release(&s);
	return t ? t : "";
}

static const char *find(const char *p, size_t n, const char *what)
{
	return memmem(p, n, what, strlen(what));
}

/* "FILE:LINE[:COL]: " or "FILE(LINE): " in front of `tail`; 1 if so. */
static int place(const char *p, const char *tail, const char **file_end,
		 long *line)
{
	const char *s = tail;
	int numbers = 0;

	if (s > p && s[-1] == ' ')
		s--;
	if (s == p || s[-1] != ':')
		return 0;
	s--;
	if (s > p && s[-1] == ')') {
		for (s--; s > p && isdigit((unsigned char)s[-1]); s--)
			;
		*line = strtol(s, NULL, 10);
		if (s == p || s[-1] != '(')
			return 0;
		*file_end = s - 1;
		return s - 1 > p && *line > 0 && *line < LINES_MAX;
	}
	while (numbers < 2) {
		const char *d = s;

		while (d > p && isdigit((unsigned char)d[-1]))
			d--;
		if (d == s || d == p || d[-1] != ':')
			break;
		*line = strtol(d, NULL, 10);
		s = d - 1;
		numbers++;
	}
	*file_end = s;
	return numbers > 0 && s > p && *line < LINES_MAX;
}

/* An error with a place in the line [p, p + n). */
static int placed(const char *p, size_t n, struct arena *a,
		  struct first_error *out)
{
	static const char *const mark[] = { "fatal error: ", "error: ",
					    "Error: ",
					    "catastrophic error: " };
	const char *m, *file_end;
	size_t i;
	long line = 0;

	for (i = 0; i < sizeof(mark) / sizeof(*mark); i++) {
		m = find(p, n, mark[i]);
		if (!m || !place(p, m, &file_end, &line))
			continue;
		m += strlen(mark[i]);
		out->file = safe(a, p, (size_t)(file_end - p));
		out->line = line;
		out->message = safe(a, m, (size_t)(p + n - m));
		return 1;
	}
	return 0;
}

static int unplaced(const char *p, size_t n)
{
	static const char *const mark[] = {
		"undefined reference", "undefined symbol",
		"multiple definition", "cannot find -l", "ptxas error",
		"ptxas fatal", "nvcc fatal", "out of memory", ": error",
		"; error"
	};
	size_t i;

	if (find(p, n, "collect2: error"))
		return 0;
	for (i = 0; i < sizeof(mark) / sizeof(*mark); i++)
		if (find(p, n, mark[i]))
			return 1;
	return 0;
}

void log_first_error(const char *text, size_t len, struct arena *a,
		     struct first_error *out)
{
	const char *p = text, *end = text + len, *nl;
	const char *first = NULL, *plain = NULL;
	size_t n, first_n = 0, plain_n = 0;

	out->file = NULL;
	out->line = 0;
	for (; p < end; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		nl = nl ? nl : end;
		n = (size_t)(nl - p);
		if (placed(p, n, a, out))
			return;
		if (!plain && unplaced(p, n))
			plain = p, plain_n = n;
		if (!first && n)
			first = p, first_n = n;
	}
	if (plain)
		out->message = safe(a, plain, plain_n);
	else if (first)
		out->message = safe(a, first, first_n);
	else
		out->message = "the compiler failed without a message";
}

/* Length of a made-up part of a name that begins at s, behind "/tmp/"; *keep
 * is how much of it stays. */
static size_t made_up(const char *s, size_t n, size_t *keep)
{
	size_t i = 2;

	if (n > 8 && memcmp(s, "cc", 2) == 0) {
		while (i < 8 && isalnum((unsigned char)s[i]))
			i++;
		*keep = 2;
		return i == 8 && !isalnum((unsigned char)s[8]) ? 8 : 0;
	}
	*keep = 0;
	if (n < 8 || memcmp(s, "tmpxft_", 7) != 0)
		return 0;
	for (i = 7; i < n && (isxdigit((unsigned char)s[i]) ||
			      s[i] == '_' || s[i] == '-'); i++)
		;
	/* the name itself may begin with hexadecimal digits */
	while (i > 7 && s[i - 1] != '_')
		i--;
	return i;
}

void log_settle(struct str *s)
{
	size_t i = 0, k = 0, n, keep;

	while (i < s->len) {
		s->buf[k++] = s->buf[i++];
		if (k < 5 || memcmp(s->buf + k - 5, "/tmp/", 5) != 0)
			continue;
		n = made_up(s->buf + i, s->len - i, &keep);
		memmove(s->buf + k, s->buf + i, n ? keep : 0);
		k += n ? keep : 0;
		i += n;
	}
	s->len = k;
	if (s->buf)
		s->buf[k] = '\0';
}

/* Where to cut: at a line's end, else between two characters. */
static size_t cut(const char *s, size_t max)
{
	size_t n = max;

	while (n > 0 && s[n - 1] != '\n')
		n--;
	if (n > 0)
		return n - 1;
	for (n = max; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80; n--)
		;
	return n;
}

void log_add(struct str *out, const char *text, size_t len)
{
	struct str s = STR_INIT;
	size_t n;

	str_add_safe(&s, text, len < 4 * LOG_MAX ? len : 4 * LOG_MAX);
	n = s.len;
	if (n > LOG_MAX) {
		n = cut(s.buf, LOG_MAX - 32);
		str_add(out, s.buf, n);
		str_adds(out, "\n(log cut here)\n");
	} else if (n) {
		str_add(out, s.buf, n);
	}
	str_release(&s);
}

int log_says_oom(const char *text, size_t len)
{
	static const char *const mark[] = {
		"out of memory", "virtual memory exhausted",
		"Cannot allocate memory", "Killed signal terminated",
		"std::bad_alloc", "died due to signal 9", "memory exhausted"
	};
	size_t i;

	for (i = 0; i < sizeof(mark) / sizeof(*mark); i++)
		if (find(text, len, mark[i]))
			return 1;
	return 0;
}

/* A line that the compiler made, not one that it quotes: an error, or what
 * follows one about types and candidates. */
static int speaks(const char *p, size_t n)
{
	static const char *const mark[] = {
		"error", "types are", "candidate", "detected during"
	};
	size_t i;

	for (i = 0; i < sizeof(mark) / sizeof(*mark); i++)
		if (find(p, n, mark[i]) && !find(p, n, " | "))
			return 1;
	return 0;
}

/* Of a line how much says what is wrong: not what the compiler would propose,
 * nor that a module is defined twice, which is the candidate's doing. */
static size_t blaming(const char *p, size_t n)
{
	const char *hint = find(p, n, "; did you mean");

	return find(p, n, "redefinition of 'void catorch_fill_") ? 0 :
	       hint ? (size_t)(hint - p) : n;
}

int log_blames_torch(const char *text, size_t len)
{
	static const char *const name[] = {
		"torch", "c10", "ATen", "pybind", "catorch", "at::", "py::",
		"std::", "AT_", "TORCH_", "C10_", "Py_",
		/* namespaces, as gcc and nvcc quote them */
		"'at'", "'py'", "'std'", "\"at\"", "\"py\"", "\"std\""
	};
	const char *p = text, *end = text + len, *nl;
	size_t n, i;

	for (; p < end; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		nl = nl ? nl : end;
		n = blaming(p, (size_t)(nl - p));
		for (i = 0; speaks(p, n) && i < sizeof(name) / sizeof(*name);
		     i++)
			if (find(p, n, name[i]))
				return 1;
	}
	return 0;
}
