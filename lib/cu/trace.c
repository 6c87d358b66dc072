/* SPDX-License-Identifier: Apache-2.0 */
#include "cu/trace.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 4096
#define MAX_MARKS ((size_t)1 << 20)

struct mark { uint64_t start, seq, ns; };

struct reader {
	const struct trace_rec *rec;
	size_t nrec;
	const char *names;
	size_t nnames;
	struct mark *mark;	/* by start */
	size_t nmark;
	struct trace_table *t;
	uint64_t from, to, step;
};

static int by_start(const void *a, const void *b)
{
	const struct mark *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static int by_ns(const void *a, const void *b)
{
	const struct mark *x = a, *y = b;

	return (x->ns > y->ns) - (x->ns < y->ns);
}

static int rows_by_ns(const void *a, const void *b)
{
	const struct trace_row *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

static int collect_marks(struct reader *r, struct err *e)
{
	size_t n = 0;

	for (size_t i = 0; i < r->nrec; i++)
		n += r->rec[i].kind == TRACE_MARK;
	if (n > MAX_MARKS)
		return err_set(e, CA_DATAERR, "trace: too many iterations");
	r->mark = calloc(n + 1, sizeof(*r->mark));
	if (!r->mark)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (size_t i = 0; i < r->nrec; i++) {
		const struct trace_rec *v = &r->rec[i];

		if (v->kind != TRACE_MARK)
			continue;
		r->mark[r->nmark].start = v->start;
		r->mark[r->nmark++].seq = v->bytes;
	}
	qsort(r->mark, r->nmark, sizeof(*r->mark), by_start);
	return 0;
}

/* The iteration in which something started; NULL: before the first. */
static struct mark *mark_of(struct reader *r, uint64_t start)
{
	size_t lo = 0, hi = r->nmark;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (r->mark[mid].start <= start)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &r->mark[lo - 1] : NULL;
}

static void row_name(const struct reader *r, const struct trace_rec *v,
		     char *out, size_t len)
{
	size_t n = 0;

	if (v->kind == TRACE_COPY) {
		strcpy(out, "[copy]");
		return;
	}
	if (v->kind == TRACE_FILL) {
		strcpy(out, "[fill]");
		return;
	}
	for (size_t at = v->name; at < r->nnames && n + 1 < len; at++) {
		unsigned char c = (unsigned char)r->names[at];

		if (!c)
			break;
		out[n++] = c < 127 && isprint(c) ? (char)c : '?';
	}
	out[n] = '\0';
}

static struct trace_row *row_of(struct trace_table *t, const char *name,
				const struct trace_rec *v)
{
	struct trace_row *row;

	for (size_t i = 0; i < t->n; i++)
		if (t->row[i].code == v->code &&
		    !strcmp(t->row[i].name, name))
			return &t->row[i];
	if (t->n == MAX_ROWS)
		return NULL;
	row = &t->row[t->n++];
	memset(row, 0, sizeof(*row));
	strcpy(row->name, name);
	row->kind = (enum trace_kind)v->kind;
	row->code = v->code;
	memcpy(row->grid, v->grid, sizeof(row->grid));
	memcpy(row->block, v->block, sizeof(row->block));
	return row;
}

static int wanted(const struct reader *r, uint64_t seq)
{
	return seq >= r->from && seq <= r->to &&
		(seq - r->from) % r->step == 0;
}

static void count(struct reader *r, const struct trace_rec *v)
{
	char name[sizeof(((struct trace_row *)0)->name)];
	struct mark *m = mark_of(r, v->start);
	struct trace_row *row;

	if (!m || !wanted(r, m->seq))
		return;
	row_name(r, v, name, sizeof(name));
	if (v->kind == TRACE_KERNEL && !strcmp(name, CA_NUDGE))
		return;
	row = row_of(r->t, name, v);
	if (!row || v->end < v->start) {
		r->t->lost++;
		return;
	}
	row->calls++;
	row->ns += v->end - v->start;
	row->bytes += v->bytes;
	m->ns += v->end - v->start;
}

static void median(struct reader *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->nmark; i++)
		if (wanted(r, r->mark[i].seq))
			r->mark[n++] = r->mark[i];
	r->t->iterations = n;
	if (!n)
		return;
	qsort(r->mark, n, sizeof(*r->mark), by_ns);
	r->t->median_us = ((double)r->mark[(n - 1) / 2].ns +
			   (double)r->mark[n / 2].ns) / 2e3;
}

static int find_parts(struct reader *r, const void *region, size_t bytes,
		      struct err *e)
{
	const struct trace_head *h = region;
	size_t room;

	if (bytes < sizeof(*h) + TRACE_NAMES || h->magic != TRACE_MAGIC)
		return err_set(e, CA_DATAERR, "nothing was traced");
	room = (bytes - sizeof(*h) - TRACE_NAMES) / sizeof(struct trace_rec);
	r->names = (const char *)region + sizeof(*h);
	r->nnames = TRACE_NAMES;
	r->rec = (const struct trace_rec *)(r->names + TRACE_NAMES);
	r->nrec = h->records < room ? (size_t)h->records : room;
	r->t->lost = h->lost + (h->records - r->nrec);
	return 0;
}

size_t trace_used(const void *region, size_t bytes)
{
	size_t fixed = sizeof(struct trace_head) + TRACE_NAMES, room;
	uint64_t n;

	if (bytes <= fixed)
		return bytes;
	room = (bytes - fixed) / sizeof(struct trace_rec);
	/* Once: its writer may live. */
	n = *(const volatile uint64_t *)((const char *)region +
		offsetof(struct trace_head, records));
	return n < room ? fixed + (size_t)n * sizeof(struct trace_rec) : bytes;
}

int trace_read(const void *region, size_t bytes, uint64_t from, uint64_t to,
	       uint64_t step, struct trace_table *t, struct err *e)
{
	struct reader r = {
		.t = t, .from = from, .to = to, .step = step ? step : 1,
	};
	int rc = -1;

	memset(t, 0, sizeof(*t));
	if (find_parts(&r, region, bytes, e) || collect_marks(&r, e))
		goto out;
	t->row = calloc(MAX_ROWS, sizeof(*t->row));
	if (!t->row) {
		err_set(e, CA_SOFTWARE, "out of memory");
		goto out;
	}
	for (size_t i = 0; i < r.nrec; i++) {
		uint32_t kind = r.rec[i].kind;

		if (kind >= TRACE_KERNEL && kind <= TRACE_FILL)
			count(&r, &r.rec[i]);
	}
	median(&r);
	qsort(t->row, t->n, sizeof(*t->row), rows_by_ns);
	rc = 0;
out:
	free(r.mark);
	return rc;
}

void trace_free(struct trace_table *t)
{
	free(t->row);
	memset(t, 0, sizeof(*t));
}
