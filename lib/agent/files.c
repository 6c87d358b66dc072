/* SPDX-License-Identifier: Apache-2.0
 *
 * Read, Write, Edit and MultiEdit.
 */
#define _GNU_SOURCE
#include "agent/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/edit.h"
#include "base/utf8.h"

#define EDITS_MAX 1000
#define READ_LINES 2000
#define READ_CHARS 2000		/* of a line */
#define READ_BYTES ((size_t)256 << 10)	/* of one answer */

void text_add(struct str *out, const char *p, size_t len)
{
	const char *end = p + len;

	while (p < end) {
		size_t n = utf8_len(p, (size_t)(end - p));
		unsigned char c = (unsigned char)*p;

		if (n == 0 || (n == 1 && ((c < 0x20 && c != '\t' &&
					   c != '\n' && c != '\r') ||
					  c == 0x7f))) {
			str_adds(out, "\xef\xbf\xbd");
			p += n ? n : 1;
			continue;
		}
		str_add(out, p, n);
		p += n;
	}
}

size_t text_cut(const char *p, size_t len)
{
	size_t n = len;

	/* Back to the start of the last character; drop it if it is cut. */
	while (n && len - n < 4 && ((unsigned char)p[n - 1] & 0xc0) == 0x80)
		n--;
	if (!n || len - n >= 4 || !((unsigned char)p[n - 1] & 0x80))
		return len;
	return utf8_len(p + n - 1, len - n + 1) ? len : n - 1;
}

static int fail(struct str *out, const struct err *e)
{
	str_addf(out, "Error: %s", e->msg);
	return 0;
}

/* State of one Read, fed with pieces of the file. */
struct view {
	struct str *out, line;	/* line: at most a few bytes per character */
	int64_t at;		/* number of the line that is being read */
	int64_t from, to;	/* wanted: from <= at < to */
	int64_t shown;		/* last line shown */
	int cut;		/* this line is longer than is shown */
	int some;		/* this line has begun */
	int full;		/* the answer is long enough */
};

static void end_line(struct view *v)
{
	const char *p = v->line.buf;
	size_t len = v->line.len, chars = 0, i, n;

	if (v->at >= v->from && v->at < v->to && !v->full) {
		for (i = 0; i < len && chars < READ_CHARS; i += n, chars++) {
			n = utf8_len(p + i, len - i);
			n = n ? n : 1;
		}
		/* The line end's CR is not shown. */
		if (len && !v->cut && p[len - 1] == '\r') {
			len--;
			i = i < len ? i : len;
		}
		str_addf(v->out, "%6lld\xe2\x86\x92", (long long)v->at);
		text_add(v->out, p ? p : "", i);
		str_adds(v->out, i < len || v->cut ? " [line cut]\n" : "\n");
		v->shown = v->at;
		v->full = v->out->len > READ_BYTES;
	}
	str_reset(&v->line);
	v->cut = v->some = 0;
	v->at++;
}

static void feed(struct view *v, const char *p, size_t len)
{
	const char *end = p + len;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((nl ? nl : end) - p);
		size_t room = 4 * READ_CHARS + 4 - v->line.len;

		v->some = 1;
		if (v->at >= v->from && v->at < v->to) {
			v->cut |= n > room;
			str_add(&v->line, p, n < room ? n : room);
		}
		if (nl)
			end_line(v);
		p += n + (nl != NULL);
	}
}

static int read_lines(int fd, const char *name, struct view *v, struct err *e)
{
	char buf[65536];
	ssize_t n;
	int first = 1;

	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		if (first && memchr(buf, '\0', n < 8192 ? (size_t)n : 8192))
			return err_set(e, CA_DATAERR, "'%s' is a binary file",
				       name);
		first = 0;
		feed(v, buf, (size_t)n);
	}
	if (n < 0)
		return err_sys(e, CA_DATAERR, "cannot read '%s'", name);
	if (v->some)
		end_line(v);
	return 0;
}

static int open_regular(const struct place *p, const char *name,
			struct err *e)
{
	int fd = place_file(p, name, O_RDONLY, 0, e);
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode))
		return fd;
	close(fd);
	return err_set(e, CA_DATAERR, "'%s' is %s, not a file", name,
		       S_ISDIR(st.st_mode) ? "a directory" :
		       S_ISFIFO(st.st_mode) ? "a FIFO" : "a device");
}

int files_read(const struct place *p, const struct json *args,
	       struct str *out)
{
	int64_t from = json_get_int(args, "offset", 1);
	int64_t limit = json_get_int(args, "limit", READ_LINES);
	struct view v = { .out = out, .at = 1, .from = from,
			  .to = from + limit };
	struct err e = ERR_INIT;
	const char *name = place_below(json_get_str(args, "file_path", ""),
				      &e);
	int fd = name ? open_regular(p, name, &e) : -1;
	int rc = fd < 0 ? -1 : read_lines(fd, name, &v, &e);

	if (fd >= 0)
		close(fd);
	str_release(&v.line);
	if (rc) {
		str_reset(out);
		return fail(out, &e);
	}
	if (v.at == 1)
		str_adds(out, "(the file is empty)");
	else if (!v.shown)
		str_addf(out, "Error: the file has only %lld lines",
			 (long long)v.at - 1);
	else
		str_addf(out, "(lines %lld-%lld of %lld)", (long long)from,
			 (long long)v.shown, (long long)v.at - 1);
	return v.at == 1 || v.shown;
}

int files_write(const struct place *p, const struct json *args,
		struct str *out)
{
	const char *text = json_get_str(args, "content", "");
	struct err e = ERR_INIT;
	const char *name = place_below(json_get_str(args, "file_path", ""),
				      &e);

	if (!name || place_write(p, name, text, strlen(text), &e))
		return fail(out, &e);
	str_addf(out, "Wrote %zu bytes to %s", strlen(text), name);
	return 1;
}

/* Applies edits [first, …) of one object or of a list to the text. */
static int apply(const struct json *edits, int list, struct str *text,
		 int *count, struct err *e)
{
	const struct json *m = list ? json_first(edits) : edits;
	int i = 0, n;

	for (; m; m = list ? json_next(m) : NULL, i++) {
		struct str next = { .cap = EDIT_MAX };

		n = edit_text(text->buf ? text->buf : "", text->len,
			      json_get_str(m, "old_string", ""),
			      json_get_str(m, "new_string", ""),
			      json_get_bool(m, "replace_all", 0), &next, e);
		if (n < 0) {
			str_release(&next);
			return list ? err_wrap(e, "edit %d (nothing was "
					       "changed)", i + 1) : -1;
		}
		*count += n;
		str_release(text);
		*text = next;
	}
	return 0;
}

static int edit(const struct place *p, const struct json *args,
		const struct json *edits, int list, struct str *out)
{
	struct str text = STR_INIT;
	struct err e = ERR_INIT;
	const char *name = place_below(json_get_str(args, "file_path", ""),
				      &e);
	int count = 0, rc = -1;

	if (name && !place_read(p, name, EDIT_MAX, &text, &e) &&
	    !apply(edits, list, &text, &count, &e))
		rc = place_write(p, name, text.buf, text.len, &e);
	str_release(&text);
	if (rc)
		return fail(out, &e);
	str_addf(out, "Made %d replacement%s in %s", count,
		 count == 1 ? "" : "s", name);
	return 1;
}

int files_edit(const struct place *p, const struct json *args,
	       struct str *out)
{
	return edit(p, args, args, 0, out);
}

int files_multi_edit(const struct place *p, const struct json *args,
		     struct str *out)
{
	const struct json *edits = json_get(args, "edits");

	if (!json_len(edits) || json_len(edits) > EDITS_MAX) {
		str_addf(out, json_len(edits) ? "Error: more than %d edits" :
			 "Error: edits is empty", EDITS_MAX);
		return 0;
	}
	return edit(p, args, edits, 1, out);
}
