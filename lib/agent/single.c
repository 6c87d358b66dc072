/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer of --single-turn: fenced blocks, each headed by its path, on the
 * fence itself or on the line before it.
 */
#include "agent/rollout.h"

#include <ctype.h>
#include <string.h>

#include "build/source.h"

/* The longest word of a line that is the path of an allowed file, without
 * marks around it. */
static int path_in(const char *p, size_t len, char out[256])
{
	const char *end = p + len;

	while (p < end) {
		const char *q;
		size_t n;

		while (p < end && !isalnum((unsigned char)*p))
			p++;
		for (q = p; q < end && (isalnum((unsigned char)*q) ||
					strchr("._-/+", *q)); q++)
			;
		n = (size_t)(q - p);
		while (n && strchr("._-/+", p[n - 1]))
			n--;
		if (n && n < 256) {
			memcpy(out, p, n);
			out[n] = '\0';
			if (source_allowed(out))
				return 1;
		}
		p = q > p ? q : p + 1;
	}
	return 0;
}

static size_t fence(const char *p, size_t len)
{
	size_t blank = 0, n = 0;

	while (blank < len && blank < 4 && p[blank] == ' ')
		blank++;
	while (blank + n < len && p[blank + n] == '`')
		n++;
	return n >= 3 ? n : 0;
}

struct block {
	char path[256];
	struct str text;
	size_t ticks;		/* of its opening fence; 0: not inside */
};

static int take_block(struct rollout *r, struct block *b, struct err *e)
{
	int rc;

	if (!b->path[0])
		return err_set(e, CA_DATAERR, "a block has no path");
	rc = place_write(&r->place, b->path, b->text.buf ? b->text.buf : "",
			 b->text.len, e);
	b->path[0] = '\0';
	b->ticks = 0;
	str_reset(&b->text);
	return rc ? -1 : 1;
}

/* 1 when a block was completed, 0, or -1. */
static int take_line(struct rollout *r, struct block *b, const char *p,
		     size_t len, struct err *e)
{
	size_t ticks = fence(p, len);
	char path[256];

	if (b->ticks) {
		if (ticks >= b->ticks)
			return take_block(r, b, e);
		str_add(&b->text, p, len);
		str_addc(&b->text, '\n');
		return 0;
	}
	if (path_in(p, len, path))
		strcpy(b->path, path);
	else if (!ticks && strspn(p, " \t\r") < len)
		b->path[0] = '\0';
	b->ticks = ticks;
	return 0;
}

int single_files(struct rollout *r, const char *text, struct err *e)
{
	struct block b = { .ticks = 0 };
	int count = 0, rc = 0;

	while (*text && rc >= 0) {
		size_t n = strcspn(text, "\n");

		rc = take_line(r, &b, text, n, e);
		count += rc > 0;
		text += n + (text[n] == '\n');
	}
	if (rc >= 0 && b.ticks)
		rc = err_set(e, CA_DATAERR, "the last block does not end");
	else if (rc >= 0 && !count)
		rc = err_set(e, CA_DATAERR, "there is no block of code");
	str_release(&b.text);
	return rc < 0 ? -1 : 0;
}
