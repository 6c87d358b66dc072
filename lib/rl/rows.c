/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/rows.h"

#include <stdlib.h>
#include <string.h>

void rows_release(struct rows *r)
{
	free(r->seq);
	free(r->row);
	free(r->target);
	free(r->agent);
	free(r->opens);
	free(r->logprob);
	free(r->first);
	memset(r, 0, sizeof *r);
}

/* Where the agent's tokens begin and end; 0 when there are none.  A first
 * token has nothing before it that would predict it. */
static int span(const struct traj_seg *s, size_t *from, size_t *to)
{
	*from = 1;
	*to = s->n;
	while (*from < s->n && !s->agent[*from])
		(*from)++;
	while (*to > *from && !s->agent[*to - 1])
		(*to)--;
	return *from < *to;
}

static void add_seg(struct rows *r, const struct traj_seg *s, size_t traj,
		    int all)
{
	struct rows_seq *q = &r->seq[r->nseq];
	size_t from, to;

	if (!span(s, &from, &to))
		return;
	*q = (struct rows_seq){ s->id, to - 1, r->n, 0, traj };
	r->opens[r->n] = 1;
	for (size_t i = from; i < to; i++) {
		if (!all && !s->agent[i])
			continue;
		r->row[r->n] = (int32_t)i - 1;
		r->target[r->n] = s->id[i];
		r->agent[r->n] = s->agent[i];
		r->logprob[r->n++] = s->logprob[i];
		q->nout++;
	}
	r->tokens += q->n;
	r->nseq++;
}

int rows_make(struct rows *r, const struct traj *t, size_t n, int all,
	      struct err *e)
{
	size_t segs = 0, tokens = 0;

	memset(r, 0, sizeof *r);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < t[i].nseg; k++, segs++)
			tokens += t[i].seg[k].n;
	r->seq = calloc(segs + 1, sizeof *r->seq);
	r->row = calloc(tokens + 1, sizeof *r->row);
	r->target = calloc(tokens + 1, sizeof *r->target);
	r->agent = calloc(tokens + 1, 1);
	r->opens = calloc(tokens + 1, 1);
	r->logprob = calloc(tokens + 1, sizeof *r->logprob);
	r->first = calloc(n + 1, sizeof *r->first);
	if (!r->seq || !r->row || !r->target || !r->agent || !r->opens ||
	    !r->logprob || !r->first) {
		rows_release(r);
		return err_set(e, CA_SOFTWARE, "no memory");
	}
	r->ntraj = n;
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < t[i].nseg; k++)
			add_seg(r, &t[i].seg[k], i, all);
		r->first[i + 1] = r->n;
	}
	return 0;
}

struct length {
	size_t seq, n;
};

static int longer(const void *a, const void *b)
{
	const struct length *x = a, *y = b;

	if (x->n != y->n)
		return x->n < y->n ? 1 : -1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

struct bin {
	size_t tokens, seqs;
};

/* First fit: where each sequence (the longest first) goes.  Number of
 * micro-batches. */
static size_t fill(struct bin *bin, size_t *where, const struct length *len,
		   size_t n, size_t tokens, size_t seqs)
{
	size_t bins = 0, b;

	for (size_t i = 0; i < n; i++) {
		for (b = 0; b < bins; b++)
			if (bin[b].seqs < seqs &&
			    bin[b].tokens + len[i].n <= tokens)
				break;
		bins += b == bins;
		bin[b].tokens += len[i].n;
		bin[b].seqs++;
		where[i] = b;
	}
	return bins;
}

/* Each micro-batch goes to the rank that has least so far. */
static void share(struct pack *p, const struct bin *bin, int ranks)
{
	size_t load[64] = { 0 };

	for (size_t b = 0; b < p->n; b++) {
		int least = 0;

		for (int k = 1; k < ranks; k++)
			if (load[k] < load[least])
				least = k;
		load[least] += bin[b].tokens;
		p->rank[b] = least;
	}
}

void pack_release(struct pack *p)
{
	free(p->seq);
	free(p->first);
	free(p->rank);
	memset(p, 0, sizeof *p);
}

static void arrange(struct pack *p, const struct length *len,
		    const size_t *where, size_t n)
{
	size_t at = 0;

	for (size_t b = 0; b < p->n; b++) {
		for (size_t i = 0; i < n; i++)
			if (where[i] == b)
				p->seq[at++] = len[i].seq;
		p->first[b + 1] = at;
	}
}

int pack_make(struct pack *p, const struct rows *r, size_t tokens,
	      size_t seqs, int ranks, struct err *e)
{
	size_t n = r->nseq, *where = calloc(n + 1, sizeof *where);
	struct length *len = calloc(n + 1, sizeof *len);
	struct bin *bin = calloc(n + 1, sizeof *bin);
	int rc = 0;

	p->seq = calloc(n + 1, sizeof *p->seq);
	p->first = calloc(n + 2, sizeof *p->first);
	p->rank = calloc(n + 1, sizeof *p->rank);
	p->n = 0;
	if (!where || !len || !bin || !p->seq || !p->first || !p->rank)
		rc = err_set(e, CA_SOFTWARE, "no memory");
	for (size_t i = 0; i < n && !rc; i++) {
		len[i] = (struct length){ i, r->seq[i].n };
		if (len[i].n > tokens)
			rc = err_set(e, CA_DATAERR, "a sequence of %zu "
				     "tokens does not fit in %zu", len[i].n,
				     tokens);
	}
	if (!rc) {
		qsort(len, n, sizeof *len, longer);
		p->n = fill(bin, where, len, n, tokens, seqs);
		arrange(p, len, where, n);
		share(p, bin, ranks);
	}
	free(where);
	free(len);
	free(bin);
	if (rc)
		pack_release(p);
	return rc;
}
