/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks by id.
 */
#define _GNU_SOURCE
#include "build/tasks.h"

#include <stdlib.h>
#include <string.h>

#include "rec/reader.h"

struct task {
	char id[REC_ID_LEN];
	char *code;
};

struct tasks {
	struct task *v;
	size_t n, alloc;
};

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct task *)a)->id,
		      ((const struct task *)b)->id);
}

static int add(void *ctx, struct rec *r, struct err *e)
{
	const char *code = json_str(rec_get(r, "code"), NULL);
	struct tasks *t = ctx;
	struct task *k;

	if (r->kind != REC_TASK)
		return 0;
	if (!code)
		return err_set(e, CA_DATAERR, "the task has no code");
	if (t->n == t->alloc) {
		size_t n = t->alloc ? 2 * t->alloc : 64;
		struct task *v = reallocarray(t->v, n, sizeof(*v));

		if (!v)
			return err_set(e, CA_SOFTWARE, "out of memory");
		t->v = v;
		t->alloc = n;
	}
	k = &t->v[t->n];
	task_id(code, strlen(code), k->id);
	k->code = strdup(code);
	if (!k->code)
		return err_set(e, CA_SOFTWARE, "out of memory");
	t->n++;
	return 0;
}

struct tasks *tasks_read(const char *path, struct err *e)
{
	struct tasks *t = calloc(1, sizeof(*t));

	if (!t) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	if (reader_records(path, add, t, e)) {
		tasks_free(t);
		return NULL;
	}
	if (t->n)
		qsort(t->v, t->n, sizeof(*t->v), by_id);
	return t;
}

void tasks_free(struct tasks *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n; i++)
		free(t->v[i].code);
	free(t->v);
	free(t);
}

/* The task's text as it came, with the code at its end; it has an id, so the
 * code is not the first member. */
static int put_code(struct rec *r, const char *code, struct err *e)
{
	struct str text = STR_INIT;
	const char *was;
	size_t len;
	struct jw w;
	int rc;

	was = rec_text(r, "task", &len);
	str_add(&text, was, len - 1);
	str_adds(&text, ",\"code\":");
	jw_init(&w, &text);
	jw_str(&w, code);
	str_addc(&text, '}');
	rc = text.failed || rec_set(r, "task", text.buf, text.len) ?
	     err_set(e, CA_SOFTWARE, "out of memory") : rec_refresh(r, e);
	str_release(&text);
	return rc;
}

int tasks_complete(const struct tasks *t, struct rec *r, struct err *e)
{
	const struct json *task = rec_get(r, "task");
	const char *id = json_get_str(task, "id", NULL);
	struct task key, *found;

	if (!t || !t->n || !id || json_get(task, "code") ||
	    strlen(id) >= sizeof(key.id))
		return 0;
	strcpy(key.id, id);
	found = bsearch(&key, t->v, t->n, sizeof(*t->v), by_id);
	return found ? put_code(r, found->code, e) : 0;
}
