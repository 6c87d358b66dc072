/* SPDX-License-Identifier: Apache-2.0
 *
 * Task records.
 */
#include "synth/task.h"

#include <string.h>

void task_read(const struct rec *r, struct task *t)
{
	t->code = json_str(rec_get(r, "code"), NULL);
	t->len = t->code ? strlen(t->code) : 0;
	t->id[0] = '\0';
	if (t->code)
		task_id(t->code, t->len, t->id);
}

int task_wants(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_TASK;
}

int task_kept(const struct rec *r)
{
	size_t len;
	const char *text = rec_text(r, "keep", &len);

	return !text || len != 5 || memcmp(text, "false", 5);
}

int task_keep(struct rec *r, int keep)
{
	keep = keep && task_kept(r);
	return rec_set(r, "keep", keep ? "true" : "false", keep ? 4 : 5);
}

static int set_text(struct rec *r, const char *key, const char *text,
		    size_t len)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &s);
	jw_strn(&w, text, len);
	rc = s.failed ? -1 : rec_set(r, key, s.buf, s.len);
	str_release(&s);
	return rc;
}

int task_new(struct rec *r, const char *code, size_t len)
{
	char id[REC_ID_LEN];

	task_id(code, len, id);
	r->kind = REC_TASK;
	return set_text(r, "kind", "task", 4) || rec_set(r, "v", "1", 1) ||
		set_text(r, "id", id, strlen(id)) ||
		set_text(r, "code", code, len) ? -1 : 0;
}
