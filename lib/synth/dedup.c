/* SPDX-License-Identifier: Apache-2.0
 *
 * De-duplication of tasks.
 */
#include "synth/dedup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ast/match.h"
#include "ast/parser.h"
#include "base/io.h"
#include "rec/reader.h"
#include "synth/seen.h"
#include "synth/task.h"

#define DEDUP_VERSION "1"
#define BARS 20
#define BAR_WIDTH 50

/* One way of looking at trees. */
struct view_of {
	struct ast_doc *doc;	/* of references */
	struct ast_set set;
	uint64_t bar[BARS + 1];
};

enum { PAPER, NORMAL };

struct dedup {
	struct dedup_opts o;
	struct ast_store *store;
	struct ast_parser *parser;
	char **id;		/* of references */
	size_t n, alloc;
	size_t mark;
	struct view_of view[2];
	struct seen source, graph;	/* of the set */
	struct seen ops;		/* of the references */
	size_t with_ops;
};

/* What was found out about one task. */
struct finding {
	int parsed;
	char text[512];		/* why not */
	double sim[2];		/* -1: not known */
	size_t nearest[2];	/* SIZE_MAX: none */
	int exceeds;
	const char *by, *of;	/* a repeat; NULL: none */
	const char *twin;	/* a reference with the same ops */
	int has_ops;
	const char *reason;	/* NULL: kept */
};

static int no_memory(struct err *e)
{
	return err_set(e, CA_SOFTWARE, "out of memory");
}

/* The operators of a task as one text; 0 when it has none. */
static int ops_text(const struct rec *r, struct str *s)
{
	const struct json *ops = rec_get(r, "ops");

	for (const struct json *o = json_first(ops); o; o = json_next(o)) {
		str_adds(s, json_str(o, "?"));
		str_addc(s, '\n');
	}
	return s->len && !s->failed;
}

static int make_room(struct dedup *d, struct err *e)
{
	size_t n = d->alloc ? d->alloc * 2 : 256;
	void *p;

	if (d->n < d->alloc)
		return 0;
	p = realloc(d->id, n * sizeof(*d->id));
	if (!p)
		return no_memory(e);
	d->id = p;
	for (int i = 0; i < 2; i++) {
		p = realloc(d->view[i].doc, n * sizeof(struct ast_doc));
		if (!p)
			return no_memory(e);
		d->view[i].doc = p;
	}
	d->alloc = n;
	return 0;
}

static int add_reference(void *ctx, struct rec *r, struct err *e)
{
	struct dedup *d = ctx;
	struct str ops = STR_INIT;
	struct task t;
	int rc = 0;

	if (r->kind != REC_TASK)
		return 0;
	task_read(r, &t);
	if (!t.code)
		return err_set(e, CA_DATAERR, "a reference task has no code");
	if (make_room(d, e))
		return -1;
	rc = ast_parse(d->parser, t.code, t.len, &d->view[PAPER].doc[d->n],
		       &d->view[NORMAL].doc[d->n], e);
	if (rc > 0)
		return err_wrap(e, "cannot parse a reference task");
	if (rc)
		return rc;
	d->id[d->n] = strdup(t.id);
	if (!d->id[d->n])
		return no_memory(e);
	d->n++;
	if (ops_text(r, &ops)) {
		d->with_ops++;
		rc = seen_add(&d->ops, ops.buf, ops.len, t.id);
	}
	str_release(&ops);
	return rc ? no_memory(e) : 0;
}

static int open_set(struct dedup *d, struct err *e)
{
	for (size_t i = 0; i < d->o.nagainst; i++)
		if (reader_records(d->o.against[i], add_reference, d, e))
			return -1;
	if (d->o.nagainst && !d->n)
		return err_set(e, CA_DATAERR, "'%s' holds no task",
			       d->o.against[0]);
	for (int i = 0; i < 2; i++)
		if (ast_set_init(&d->view[i].set, d->view[i].doc, d->n, e))
			return -1;
	d->mark = ast_store_mark(d->store);
	return 0;
}

struct dedup *dedup_open(const struct dedup_opts *o, struct err *e)
{
	struct dedup *d = calloc(1, sizeof(*d));

	if (d) {
		d->o = *o;
		d->store = ast_store_new();
		d->parser = ast_parser_new(d->store);
	}
	if (!d || !d->store || !d->parser)
		no_memory(e);
	else if (!open_set(d, e))
		return d;
	dedup_close(d);
	return NULL;
}

void dedup_close(struct dedup *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++) {
		free(d->id[i]);
		ast_doc_release(&d->view[PAPER].doc[i]);
		ast_doc_release(&d->view[NORMAL].doc[i]);
	}
	for (int i = 0; i < 2; i++) {
		free(d->view[i].doc);
		ast_set_release(&d->view[i].set);
	}
	free(d->id);
	seen_release(&d->source);
	seen_release(&d->graph);
	seen_release(&d->ops);
	ast_parser_free(d->parser);
	ast_store_free(d->store);
	free(d);
}

/* Similarity to the references. */
static int measure(struct dedup *d, const struct ast_doc *doc,
		   struct finding *f)
{
	int by = d->o.normal ? NORMAL : PAPER;

	if (d->o.verdict_only) {
		f->exceeds = ast_exceeds(d->store, &d->view[by].set, &doc[by],
					 d->o.limit, &f->nearest[by]);
		return f->exceeds < 0 ? -1 : 0;
	}
	for (int i = 0; i < 2; i++) {
		f->sim[i] = ast_nearest(d->store, &d->view[i].set, &doc[i],
					&f->nearest[i]);
		if (f->sim[i] < 0)
			return -1;
		d->view[i].bar[(int)(f->sim[i] * BARS + 1e-9)]++;
	}
	f->exceeds = f->sim[by] > d->o.limit;
	return 0;
}

static int look(struct dedup *d, const struct task *t, struct finding *f,
		struct err *e)
{
	struct ast_doc doc[2];
	int rc = ast_parse(d->parser, t->code, t->len, &doc[PAPER],
			   &doc[NORMAL], e);

	if (rc < 0)
		return -1;
	if (!rc) {
		f->parsed = !d->n || !measure(d, doc, f);
		ast_doc_release(&doc[PAPER]);
		ast_doc_release(&doc[NORMAL]);
		ast_store_trim(d->store, d->mark);
		if (!f->parsed)
			err_set(e, CA_DATAERR, "too complex to compare");
	}
	if (!f->parsed)
		snprintf(f->text, sizeof(f->text), "%.500s", e->msg);
	err_clear(e);
	return 0;
}

/* Repeats inside the set; a task that is out already is nobody's first. */
static int look_back(struct dedup *d, const struct rec *r,
		     const struct task *t, struct finding *f)
{
	const char *graph = json_str(json_path(r->root,
					       "filter.checks.trace.graph"),
				     NULL);

	f->by = "source";
	f->of = seen_find(&d->source, t->code, t->len);
	if (f->of)
		return 0;
	if (graph) {
		f->by = "graph";
		f->of = seen_find(&d->graph, graph, strlen(graph));
		if (f->of)
			return 0;
	}
	f->by = NULL;
	if (!task_kept(r) || f->reason)
		return 0;
	if (graph && seen_add(&d->graph, graph, strlen(graph), t->id))
		return -1;
	return seen_add(&d->source, t->code, t->len, t->id);
}

static void write_near(const struct dedup *d, struct jw *w, int which,
		       const struct finding *f)
{
	static const char *const name[2][2] = { { "sim_paper", "nearest" },
		{ "sim_norm", "nearest_norm" } };
	size_t at = f->nearest[which];

	if (!d->o.verdict_only) {
		jw_key(w, name[which][0]);
		if (f->sim[which] >= 0)
			jw_num(w, f->sim[which]);
		else
			jw_null(w);
	}
	if (!d->o.verdict_only || which == (d->o.normal ? NORMAL : PAPER))
		jw_kstr(w, name[which][1], at < d->n ? d->id[at] : NULL);
}

static void write_field(const struct dedup *d, const struct finding *f,
			int64_t began, struct jw *w)
{
	jw_obj(w);
	jw_kstr(w, "status", f->parsed ? "ok" : "unparsable");
	if (!f->parsed)
		jw_kstr(w, "text", f->text);
	write_near(d, w, PAPER, f);
	write_near(d, w, NORMAL, f);
	if (d->o.verdict_only)
		jw_kbool(w, "exceeds", f->exceeds);
	jw_key(w, "ops_equal");
	if (f->has_ops && d->with_ops)
		jw_bool(w, f->twin != NULL);
	else
		jw_null(w);
	jw_kstr(w, "ops_twin", f->twin);
	jw_key(w, "duplicate");
	if (f->of) {
		jw_obj(w);
		jw_kstr(w, "by", f->by);
		jw_kstr(w, "of", f->of);
		jw_end_obj(w);
	} else {
		jw_null(w);
	}
	jw_kstr(w, "reason", f->reason);
	jw_kstr(w, "reject", d->o.normal ? "sim_norm" : "sim_paper");
	jw_knum(w, "limit", d->o.limit);
	jw_kint(w, "references", (int64_t)d->n);
	jw_kstr(w, "version", DEDUP_VERSION);
	if (!d->o.no_prov)
		rec_write_prov(w, began);
	jw_end_obj(w);
}

static int set_field(struct dedup *d, struct rec *r, const struct finding *f,
		     int64_t began, struct err *e)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc = -1;

	jw_init(&w, &s);
	write_field(d, f, began, &w);
	if (!s.failed && !rec_set(r, "dedup", s.buf, s.len) &&
	    !task_keep(r, !f->reason))
		rc = 0;
	str_release(&s);
	return rc ? no_memory(e) : 0;
}

int dedup_record(struct dedup *d, struct rec *r, struct err *e)
{
	struct finding f = { .sim = { -1, -1 },
			     .nearest = { SIZE_MAX, SIZE_MAX } };
	int64_t began = now_ns();
	struct str ops = STR_INIT;
	struct task t;
	int rc = 0;

	task_read(r, &t);
	if (t.code)
		rc = look(d, &t, &f, e);
	else
		strcpy(f.text, "the record has no code");
	if (rc)
		return -1;
	if (!f.parsed)
		f.reason = "unparsable";
	else if (f.exceeds)
		f.reason = d->o.normal ? "sim_norm" : "sim_paper";
	if (ops_text(r, &ops)) {
		f.has_ops = 1;
		f.twin = seen_find(&d->ops, ops.buf, ops.len);
	}
	str_release(&ops);
	if (t.code && look_back(d, r, &t, &f))
		return no_memory(e);
	if (f.of && !f.reason)
		f.reason = f.by;
	return set_field(d, r, &f, began, e);
}

const char *dedup_word(const struct rec *r)
{
	static const char *const words[] = { "unparsable", "sim_paper",
					     "sim_norm", "source", "graph" };
	const char *word = "kept";
	struct json *f;
	size_t len;
	const char *text = rec_text(r, "dedup", &len);

	if (!text)
		return NULL;
	f = json_parse(text, len, JSON_MAX_LINE, NULL, NULL);
	for (size_t i = 0; f && i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(json_get_str(f, "reason", ""), words[i]))
			word = words[i];
	json_free(f);
	return task_kept(r) || strcmp(word, "kept") ? word : "rejected before";
}

static void draw(const struct view_of *v, const char *name, struct str *out)
{
	uint64_t most = 1, sum = 0;

	for (int i = 0; i <= BARS; i++) {
		most = v->bar[i] > most ? v->bar[i] : most;
		sum += v->bar[i];
	}
	str_addf(out, "largest %s to a reference, %llu tasks\n", name,
		 (unsigned long long)sum);
	for (int i = 0; i <= BARS; i++) {
		int width = (int)(v->bar[i] * BAR_WIDTH / most);

		if (i < BARS)
			str_addf(out, "%.2f-%.2f", (double)i / BARS,
				 (double)(i + 1) / BARS);
		else
			str_adds(out, "     1.00");
		str_addf(out, " %8llu ", (unsigned long long)v->bar[i]);
		for (int k = 0; k < width; k++)
			str_addc(out, '#');
		str_addc(out, '\n');
	}
}

void dedup_histogram(const struct dedup *d, struct str *out)
{
	draw(&d->view[PAPER], "sim_paper", out);
	draw(&d->view[NORMAL], "sim_norm", out);
}
