/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tools.  Names and parameters are those of Claude Code 1.0,
 * since models were trained on them; the words are ours.
 */
#include "agent/tool.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum ptype { P_STRING, P_INTEGER, P_BOOL, P_LIST };

struct param {
	const char *name;
	enum ptype type;
	int required;
	const char *text;
	const char *choices;		/* of a string: "a|b"; NULL: any */
	double lo, hi;			/* of an integer, when lo < hi */
	const struct param *item;	/* members of a list's objects */
};

struct tool {
	const char *name, *text;
	const struct param *params;
};

static const struct param bash_params[] = {
	{ "command", P_STRING, 1, "the command", NULL, 0, 0, NULL },
	{ "timeout", P_INTEGER, 0, "limit in milliseconds (default 120000, "
	  "at most 600000)", NULL, 1, 600000, NULL },
	{ "description", P_STRING, 0, "what it does, in a few words", NULL,
	  0, 0, NULL },
	{ "run_in_background", P_BOOL, 0, "return at once; read its output "
	  "with BashOutput", NULL, 0, 0, NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param output_params[] = {
	{ "bash_id", P_STRING, 1, "id of the background command", NULL, 0, 0,
	  NULL },
	{ "filter", P_STRING, 0, "regular expression: only lines that match "
	  "are returned, others are dropped", NULL, 0, 0, NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param kill_params[] = {
	{ "shell_id", P_STRING, 1, "id of the background command", NULL, 0, 0,
	  NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param read_params[] = {
	{ "file_path", P_STRING, 1, "the file", NULL, 0, 0, NULL },
	{ "offset", P_INTEGER, 0, "first line, counted from 1", NULL, 1, 1e9,
	  NULL },
	{ "limit", P_INTEGER, 0, "number of lines", NULL, 1, 1e9, NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param write_params[] = {
	{ "file_path", P_STRING, 1, "the file", NULL, 0, 0, NULL },
	{ "content", P_STRING, 1, "all of its new content", NULL, 0, 0,
	  NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param edit_params[] = {
	{ "file_path", P_STRING, 1, "the file", NULL, 0, 0, NULL },
	{ "old_string", P_STRING, 1, "the text to replace, exactly as it "
	  "stands in the file", NULL, 0, 0, NULL },
	{ "new_string", P_STRING, 1, "the text to put there", NULL, 0, 0,
	  NULL },
	{ "replace_all", P_BOOL, 0, "replace every occurrence", NULL, 0, 0,
	  NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param multi_params[] = {
	{ "file_path", P_STRING, 1, "the file", NULL, 0, 0, NULL },
	{ "edits", P_LIST, 1, "edits, made one after the other", NULL, 0, 0,
	  edit_params + 1 },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param glob_params[] = {
	{ "pattern", P_STRING, 1, "as **/*.cu; one without a slash matches at "
	  "any depth", NULL, 0, 0, NULL },
	{ "path", P_STRING, 0, "directory to search (default: the work "
	  "directory)", NULL, 0, 0, NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param grep_params[] = {
	{ "pattern", P_STRING, 1, "regular expression, as ripgrep takes it",
	  NULL, 0, 0, NULL },
	{ "path", P_STRING, 0, "file or directory (default: the work "
	  "directory)", NULL, 0, 0, NULL },
	{ "glob", P_STRING, 0, "only files that match, as *.cu", NULL, 0, 0,
	  NULL },
	{ "type", P_STRING, 0, "only files of a type, as py, cpp", NULL, 0, 0,
	  NULL },
	{ "output_mode", P_STRING, 0, "what to return (default: "
	  "files_with_matches)", "content|files_with_matches|count", 0, 0,
	  NULL },
	{ "-A", P_INTEGER, 0, "lines after each match", NULL, 0, 10000,
	  NULL },
	{ "-B", P_INTEGER, 0, "lines before each match", NULL, 0, 10000,
	  NULL },
	{ "-C", P_INTEGER, 0, "lines around each match", NULL, 0, 10000,
	  NULL },
	{ "-n", P_BOOL, 0, "show line numbers", NULL, 0, 0, NULL },
	{ "-i", P_BOOL, 0, "ignore case", NULL, 0, 0, NULL },
	{ "head_limit", P_INTEGER, 0, "at most so many lines or entries",
	  NULL, 1, 1e9, NULL },
	{ "multiline", P_BOOL, 0, "let matches span lines", NULL, 0, 0,
	  NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param notebook_params[] = {
	{ "notebook_path", P_STRING, 1, "the .ipynb file", NULL, 0, 0, NULL },
	{ "new_source", P_STRING, 1, "the cell's new source", NULL, 0, 0,
	  NULL },
	{ "cell_id", P_STRING, 0, "id of the cell; on insert the one to "
	  "insert behind (default: at the beginning)", NULL, 0, 0, NULL },
	{ "cell_type", P_STRING, 0, "needed for insert", "code|markdown", 0,
	  0, NULL },
	{ "edit_mode", P_STRING, 0, "default: replace",
	  "replace|insert|delete", 0, 0, NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param todo_item[] = {
	{ "content", P_STRING, 1, "what is to be done", NULL, 0, 0, NULL },
	{ "status", P_STRING, 1, "how far it is",
	  "pending|in_progress|completed", 0, 0, NULL },
	{ "activeForm", P_STRING, 1, "the same, as being done now", NULL, 0,
	  0, NULL },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct param todo_params[] = {
	{ "todos", P_LIST, 1, "the whole list; it replaces the old one", NULL,
	  0, 0, todo_item },
	{ NULL, 0, 0, NULL, NULL, 0, 0, NULL }
};

static const struct tool tools[TOOL_COUNT] = {
	{ "Bash", "Runs a command in bash, confined to the work directory "
	  "and without a network. The working directory stays from call to "
	  "call, variables do not, and /tmp is empty each time. What it "
	  "leaves running ends with it, unless run_in_background is set.",
	  bash_params },
	{ "BashOutput", "Returns what a background command has written since "
	  "it was last asked, and whether it still runs.", output_params },
	{ "KillBash", "Ends a background command.", kill_params },
	{ "Read", "Returns lines of a text file with their numbers, by "
	  "default the first 2000.", read_params },
	{ "Write", "Writes a file, replacing what was there.", write_params },
	{ "Edit", "Replaces text in a file. old_string has to occur exactly "
	  "once, unless replace_all is set. Read the file before.",
	  edit_params },
	{ "MultiEdit", "Makes several edits in one file, in order: all of "
	  "them or none.", multi_params },
	{ "Glob", "Finds files by name, the newest first.", glob_params },
	{ "Grep", "Searches files for a regular expression.", grep_params },
	{ "NotebookEdit", "Replaces, inserts or deletes a cell of a Jupyter "
	  "notebook.", notebook_params },
	{ "TodoWrite", "Keeps your list of what is to be done.",
	  todo_params },
};

enum tool_id tool_find(const char *name)
{
	int i;

	if (!strcmp(name, "KillShell") || !strcmp(name, "TaskStop"))
		return TOOL_KILL_BASH;
	for (i = 0; i < TOOL_COUNT; i++)
		if (!strcmp(name, tools[i].name))
			return (enum tool_id)i;
	return TOOL_NONE;
}

const char *tool_name(enum tool_id t)
{
	return tools[t].name;
}

void tool_names(struct str *out)
{
	int i;

	for (i = 0; i < TOOL_COUNT; i++)
		str_addf(out, "%s%s", i ? ", " : "", tools[i].name);
}

static void write_choices(struct jw *w, const char *c)
{
	jw_key(w, "enum");
	jw_arr(w);
	while (*c) {
		size_t n = strcspn(c, "|");

		jw_strn(w, c, n);
		c += n + (c[n] == '|');
	}
	jw_end_arr(w);
}

static void write_object(struct jw *w, const struct param *p);

static void write_param(struct jw *w, const struct param *p)
{
	static const char *const types[] = {
		"string", "integer", "boolean", "array"
	};

	jw_key(w, p->name);
	jw_obj(w);
	jw_kstr(w, "type", types[p->type]);
	jw_kstr(w, "description", p->text);
	if (p->choices)
		write_choices(w, p->choices);
	if (p->lo < p->hi) {
		jw_knum(w, "minimum", p->lo);
		jw_knum(w, "maximum", p->hi);
	}
	if (p->type == P_LIST) {
		jw_key(w, "items");
		write_object(w, p->item);
	}
	jw_end_obj(w);
}

static void write_object(struct jw *w, const struct param *params)
{
	const struct param *p;

	jw_obj(w);
	jw_kstr(w, "type", "object");
	jw_key(w, "properties");
	jw_obj(w);
	for (p = params; p->name; p++)
		write_param(w, p);
	jw_end_obj(w);
	jw_key(w, "required");
	jw_arr(w);
	for (p = params; p->name; p++)
		if (p->required)
			jw_str(w, p->name);
	jw_end_arr(w);
	jw_kbool(w, "additionalProperties", 0);
	jw_end_obj(w);
}

void tool_schemas(struct str *out)
{
	struct jw w;
	int i;

	jw_init(&w, out);
	jw_arr(&w);
	for (i = 0; i < TOOL_COUNT; i++) {
		jw_obj(&w);
		jw_kstr(&w, "type", "function");
		jw_key(&w, "function");
		jw_obj(&w);
		jw_kstr(&w, "name", tools[i].name);
		jw_kstr(&w, "description", tools[i].text);
		jw_key(&w, "parameters");
		write_object(&w, tools[i].params);
		jw_end_obj(&w);
		jw_end_obj(&w);
	}
	jw_end_arr(&w);
}

static const struct param *find_param(const struct param *p, const char *name)
{
	for (; p->name; p++)
		if (!strcmp(p->name, name))
			return p;
	return NULL;
}

int tool_param(enum tool_id t, const char *name)
{
	const struct param *p = find_param(tools[t].params, name);

	return p ? "sibl"[p->type] : 0;
}

static int in_choices(const char *c, const char *v)
{
	size_t len = strlen(v);

	while (*c) {
		size_t n = strcspn(c, "|");

		if (n == len && !memcmp(c, v, n))
			return 1;
		c += n + (c[n] == '|');
	}
	return 0;
}

static int check_object(const struct param *params, const struct json *o,
			const char *where, struct jw *w, struct err *e);

/* A value of another type than asked for, as a string: read as JSON. */
static struct json *unquote(const struct param *p, const struct json *v)
{
	const char *s = json_str(v, NULL);
	char low[8] = "";
	size_t i;

	if (!s || p->type == P_STRING)
		return NULL;
	for (i = 0; p->type == P_BOOL && s[i] && i < 7; i++)
		low[i] = (char)tolower((unsigned char)s[i]);
	return p->type == P_BOOL ?
		json_parse(low, strlen(low), 8, NULL, NULL) :
		json_parse(s, strlen(s), JSON_MAX_LINE, NULL, NULL);
}

static int check_list(const struct param *p, const struct json *v,
		      struct jw *w, struct err *e)
{
	const struct json *m;
	char where[64];
	int i = 0, rc, repaired = 0;

	jw_arr(w);
	for (m = json_first(v); m; m = json_next(m), i++) {
		snprintf(where, sizeof(where), "%s[%d]: ", p->name, i);
		if (json_type(m) != JSON_OBJECT)
			return err_set(e, CA_DATAERR, "%sis not an object",
				       where);
		rc = check_object(p->item, m, where, w, e);
		if (rc < 0)
			return -1;
		repaired |= rc;
	}
	jw_end_arr(w);
	return repaired;
}

static int check_type(const struct param *p, const struct json *v)
{
	enum json_type t = json_type(v);

	return p->type == P_STRING ? t == JSON_STRING :
	       p->type == P_BOOL ? t == JSON_BOOL :
	       p->type == P_LIST ? t == JSON_ARRAY :
	       t == JSON_NUMBER && json_int(v, INT64_MIN) != INT64_MIN;
}

static int bad_type(const struct param *p, const char *where, struct err *e)
{
	static const char *const types[] = {
		"a string", "an integer", "true or false", "an array"
	};

	return err_set(e, CA_DATAERR, "%sparameter '%s' has to be %s", where,
		       p->name, types[p->type]);
}

/* Checks a value and writes it as it should have been. */
static int check_value(const struct param *p, const struct json *v,
		       const char *where, struct jw *w, struct err *e)
{
	struct json *own = check_type(p, v) ? NULL : unquote(p, v);
	const struct json *use = own ? own : v;
	int rc = own != NULL;
	double n = json_num(use, 0);

	if (!check_type(p, use))
		rc = bad_type(p, where, e);
	else if (p->choices && !in_choices(p->choices, json_str(use, "")))
		rc = err_set(e, CA_DATAERR, "%sparameter '%s' has to be one of"
			     " %s", where, p->name, p->choices);
	else if (p->lo < p->hi && (n < p->lo || n > p->hi))
		rc = err_set(e, CA_DATAERR, "%sparameter '%s' has to be %.0f "
			     "to %.0f", where, p->name, p->lo, p->hi);
	if (rc >= 0) {
		jw_key(w, p->name);
		if (p->type == P_LIST) {
			int sub = check_list(p, use, w, e);

			rc = sub < 0 ? -1 : rc | sub;
		} else {
			jw_node(w, use);
		}
	}
	json_free(own);
	return rc;
}

static int check_object(const struct param *params, const struct json *o,
			const char *where, struct jw *w, struct err *e)
{
	const struct json *m;
	const struct param *p;
	int repaired = 0, rc;

	for (p = params; p->name; p++)
		if (p->required && !json_get(o, p->name))
			return err_set(e, CA_DATAERR, "%sparameter '%s' is "
				       "missing", where, p->name);
	jw_obj(w);
	for (m = json_first(o); m; m = json_next(m)) {
		p = find_param(params, json_key(m));
		if (!p)
			return err_set(e, CA_DATAERR, "%sthere is no parameter"
				       " '%.80s'", where, json_key(m));
		/* An optional one that is null is absent. */
		if (json_type(m) == JSON_NULL && !p->required) {
			repaired = 1;
			continue;
		}
		rc = check_value(p, m, where, w, e);
		if (rc < 0)
			return -1;
		repaired |= rc;
	}
	jw_end_obj(w);
	return repaired;
}

int tool_check(enum tool_id t, const struct json *args, struct str *out,
	       struct err *e)
{
	struct jw w;
	int rc;

	str_reset(out);
	jw_init(&w, out);
	if (json_type(args) != JSON_OBJECT)
		return err_set(e, CA_DATAERR, "the arguments are no object");
	rc = check_object(tools[t].params, args, "", &w, e);
	if (rc >= 0 && out->failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	return rc;
}
