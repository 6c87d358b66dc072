/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of a reference and a custom model, made candidate records.
 */
#include "build/pairs.h"

#include <stdio.h>
#include <string.h>

static int has_code(const char *code)
{
	return code && *code && strcmp(code, "None") != 0;
}

static void write_name(const struct json *row, const char *id, struct jw *w)
{
	int64_t level = json_get_int(row, "level_id", -1);
	int64_t task = json_get_int(row, "task_id", -1);
	char key[64];

	snprintf(key, sizeof(key), "L%lld-%lld", (long long)level,
		 (long long)task);
	jw_kstr(w, "name", level >= 0 && task >= 0 ? key :
		json_get_str(row, "name", id));
}

static void write_files(const char *custom, struct str *out)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w);
	if (has_code(custom))
		jw_kstr(&w, "model_new.py", custom);
	jw_end_obj(&w);
}

static void write_rest(const struct json *row, struct jw *w)
{
	const struct json *m;

	jw_key(w, "pair");
	jw_obj(w);
	for (m = json_first(row); m; m = json_next(m)) {
		if (strcmp(json_key(m), "ref_code") == 0 ||
		    strcmp(json_key(m), "custom_code") == 0)
			continue;
		jw_key(w, json_key(m));
		jw_node(w, m);
	}
	jw_end_obj(w);
}

static int write_record(const struct json *row, const char *ref,
			const char *custom, struct str *out, struct err *e)
{
	char task[REC_ID_LEN], id[REC_ID_LEN];
	struct str files = STR_INIT;
	struct json *tree;
	struct jw w;

	task_id(ref, strlen(ref), task);
	write_files(custom, &files);
	tree = files.failed ? NULL :
	       json_parse(files.buf, files.len, JSON_MAX_LINE, NULL, e);
	if (!tree || candidate_id(task, tree, id) < 0) {
		json_free(tree);
		str_release(&files);
		return err_set(e, CA_SOFTWARE, "out of memory");
	}
	jw_init(&w, out);
	jw_obj(&w);
	jw_kstr(&w, "kind", "candidate");
	jw_kint(&w, "v", REC_V);
	jw_kstr(&w, "id", id);
	write_name(row, id, &w);
	jw_key(&w, "task");
	jw_obj(&w);
	jw_kstr(&w, "id", task);
	jw_kstr(&w, "code", ref);
	jw_end_obj(&w);
	jw_key(&w, "files");
	jw_raw(&w, files.buf, files.len);
	jw_kstr(&w, "rules", "kernelbench");
	write_rest(row, &w);
	jw_end_obj(&w);
	json_free(tree);
	str_release(&files);
	return out->failed ? err_set(e, CA_SOFTWARE, "out of memory") : 0;
}

int pairs_adopt(const char *line, size_t len, struct rec *r, struct err *e)
{
	struct json *row = json_parse(line, len, JSON_MAX_LINE, NULL, NULL);
	const struct json *custom = json_get(row, "custom_code");
	const char *ref = json_get_str(row, "ref_code", NULL);
	struct str out = STR_INIT;
	size_t at;
	int rc = -1;

	if (!row)
		return -1;
	if (!ref || !custom || (json_type(custom) != JSON_STRING &&
				json_type(custom) != JSON_NULL)) {
		/* What is wrong with a record is known already. */
		if (!json_get(row, "kind"))
			err_set(e, CA_DATAERR, "neither a record nor a pair "
				"(ref_code, custom_code)");
	} else
		rc = write_record(row, ref, json_str(custom, NULL), &out, e);
	if (rc == 0)
		rc = rec_open(r, out.buf, out.len, &at, e);
	str_release(&out);
	json_free(row);
	return rc;
}
