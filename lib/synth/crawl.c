/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources and their harvest.
 */
#define _GNU_SOURCE
#include "synth/crawl.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "judge/ahead.h"
#include "synth/harvest.h"
#include "synth/task.h"

void crawl_defaults(struct crawl_opts *o)
{
	memset(o, 0, sizeof(*o));
	o->ms = 3;
	o->limit = -1;
	o->min_yield = 1;
	o->lease_s = 600;
}

const char *harvest_short(char *text)
{
	size_t n = strlen(text);
	char *lf;

	while (n && text[n - 1] == '\n')
		text[--n] = '\0';
	lf = strrchr(text, '\n');
	return lf ? lf + 1 : text;
}

void harvest_skip(struct harvest *h, const char *name, const char *why)
{
	size_t i = 0;

	h->skipped++;
	if (h->o->verbose)
		warn("skipped '%s': %s", name, why);
	/* Numbers that differ make no reason of their own. */
	while (i < h->nreason && strncmp(h->reason[i].why, why, 12))
		i++;
	if (i == REASONS)
		i--;
	if (i == h->nreason) {
		snprintf(h->reason[i].why, sizeof(h->reason[i].why), "%s",
			 why);
		h->nreason++;
	}
	h->reason[i].n++;
}

int harvest_full(const struct harvest *h)
{
	return !h->o->limit;
}

int harvest_process(struct judge *j, struct oracle *o, const char *role,
		    struct err *e)
{
	struct fail f;

	for (int i = 0; i < 2; i++) {
		memset(&f, 0, sizeof(f));
		if (!oracle_open(j, o, role, 0, &f))
			return 0;
		oracle_stop(j, o);
		if (!host_alive(j))
			ahead_leave(j);
	}
	return err_set(e, CA_UNAVAILABLE, "%s", f.text);
}

static int set_source(struct rec *r, const struct harvest_item *t)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &s);
	jw_obj(&w);
	jw_kstr(&w, "name", t->name);
	jw_kstr(&w, "ref", t->ref);
	jw_kstr(&w, "version", t->version);
	if (t->model)
		jw_kstr(&w, "model", t->model);
	jw_end_obj(&w);
	rc = s.failed ? -1 : rec_set(r, "source", s.buf, s.len);
	str_release(&s);
	return rc;
}

static int set_node(struct rec *r, const char *key, const struct json *node,
		    int listed)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &s);
	if (listed)
		jw_arr(&w);
	jw_node(&w, node);
	if (listed)
		jw_end_arr(&w);
	rc = s.failed ? -1 : rec_set(r, key, s.buf, s.len);
	str_release(&s);
	return rc;
}

static int make_record(struct rec *r, const struct harvest_item *t,
		       struct str *line)
{
	if (task_new(r, t->code, t->len) || set_source(r, t))
		return -1;
	if (t->parts && rec_set(r, "parts", t->parts, strlen(t->parts)))
		return -1;
	if ((t->ops && set_node(r, "ops", t->ops, 0)) ||
	    (t->piece && set_node(r, "pieces", t->piece, 1)))
		return -1;
	return rec_write(r, line) || str_addc(line, '\n') ? -1 : 0;
}

int harvest_task(struct harvest *h, const struct harvest_item *t,
		 struct err *e)
{
	struct str line = STR_INIT;
	struct rec r;
	int rc = -1;

	if (seen_find(&h->codes, t->code, t->len)) {
		harvest_skip(h, t->ref, "repeats another, byte for byte");
		return 0;
	}
	rec_init(&r);
	if (seen_add(&h->codes, t->code, t->len, t->ref) ||
	    make_record(&r, t, &line))
		err_set(e, CA_SOFTWARE, "cannot make the record of '%s'",
			t->ref);
	else
		rc = output_write(h->out, line.buf, line.len, e);
	rec_release(&r);
	str_release(&line);
	h->made += !rc;
	h->o->limit -= !rc && h->o->limit > 0;
	return rc;
}

static void tell_people(const struct harvest *h, const char *head)
{
	struct str s = STR_INIT;

	str_adds(&s, head);
	for (size_t i = 0; i < h->nreason; i++)
		str_addf(&s, "%s %llu %s", i ? "," : ":",
			 (unsigned long long)h->reason[i].n,
			 h->reason[i].why);
	if (!s.failed)
		warn("%s", s.buf);
	str_release(&s);
}

static int add_line(const char *path, const struct str *line, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	int rc;

	if (fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot write '%s'", path);
	rc = write_full(fd, line->buf, line->len, e);
	return close(fd) ? err_sys(e, CA_IOERR, "cannot write '%s'", path) :
	       rc;
}

int harvest_can_tell(const struct harvest *h, struct err *e)
{
	const struct str nothing = STR_INIT;
	const char *path = h->o->summary;
	struct stat st;

	/* A pipe's reader takes an end for the end. */
	if (!path || (!stat(path, &st) && !S_ISREG(st.st_mode)))
		return 0;
	return add_line(path, &nothing, e);
}

static void write_seconds(const struct harvest *h, struct jw *w)
{
	static const char *const name[CRAWL_TIMES] = {
		"prepare", "alone", "shared", "wait", "idle",
	};

	jw_key(w, "seconds");
	jw_obj(w);
	for (int i = 0; i < CRAWL_TIMES; i++)
		jw_knum(w, name[i], floor(h->seconds[i] * 1e3) / 1e3);
	jw_end_obj(w);
}

int harvest_tell(const struct harvest *h, const char *head, struct err *e)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	tell_people(h, head);
	if (!h->o->summary)
		return 0;
	jw_init(&w, &s);
	jw_obj(&w);
	jw_kstr(&w, "source", h->source);
	jw_kint(&w, "made", (int64_t)h->made);
	jw_kint(&w, "skipped", (int64_t)h->skipped);
	jw_key(&w, "reasons");
	jw_arr(&w);
	for (size_t i = 0; i < h->nreason; i++) {
		jw_obj(&w);
		jw_kstr(&w, "why", h->reason[i].why);
		jw_kint(&w, "n", (int64_t)h->reason[i].n);
		jw_end_obj(&w);
	}
	jw_end_arr(&w);
	if (h->timed)
		write_seconds(h, &w);
	jw_end_obj(&w);
	str_addc(&s, '\n');
	rc = s.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     add_line(h->o->summary, &s, e);
	str_release(&s);
	return rc;
}

int crawl_part(struct crawl_opts *o, const char *text, struct err *e)
{
	char *end;

	o->part = strtoll(text, &end, 10);
	o->parts = *end == '/' ? strtoll(end + 1, &end, 10) : 0;
	if (*end || o->part < 1 || o->part > o->parts || o->parts > 100000)
		return err_set(e, CA_USAGE, "'%.40s' is no part as 1/8",
			       text);
	return 0;
}

int crawl_source(struct crawl_opts *o, const char *source,
		 struct output *out, struct err *e)
{
	struct harvest h = { .o = o, .source = source, .out = out };
	char head[512];
	int full, rc;

	if (harvest_can_tell(&h, e))
		return -1;
	rc = !strcmp(source, "torch") ? crawl_torch(&h, "crawl", e) :
	     !strcmp(source, "transformers") ? crawl_torch(&h, "hf", e) :
	     crawl_path(&h, source, e);
	full = harvest_full(&h);
	seen_release(&h.codes);
	snprintf(head, sizeof(head), "%.400s: %llu tasks, %llu skipped",
		 source, (unsigned long long)h.made,
		 (unsigned long long)h.skipped);
	/* What ended it may have let much be made. */
	if (harvest_tell(&h, head, rc ? NULL : e) || rc)
		return -1;
	if (!full && h.made < (uint64_t)o->min_yield)
		return err_set(e, CA_DATAERR, "'%s' yields %llu tasks, fewer "
			       "than %lld", source,
			       (unsigned long long)h.made,
			       (long long)o->min_yield);
	return 0;
}
