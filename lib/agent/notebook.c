/* SPDX-License-Identifier: Apache-2.0
 *
 * Cells of Jupyter notebooks (nbformat 4): found by their ids, and where they
 * have none by position, as "cell-0".
 */
#include "agent/notebook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files.h"

struct change {
	const char *mode, *type, *source, *id;
	int64_t at;		/* cell that is meant; -1: before the first */
};

/* The cell of an id: a real one before a position. */
static int64_t find_cell(const struct json *cells, const char *id)
{
	const struct json *m;
	char *end;
	int64_t i = 0;

	for (m = json_first(cells); m; m = json_next(m), i++)
		if (!strcmp(json_get_str(m, "id", ""), id))
			return i;
	if (strncmp(id, "cell-", 5) || !id[5])
		return -1;
	i = strtoll(id + 5, &end, 10);
	return *end || i < 0 || i >= (int64_t)json_len(cells) ? -1 : i;
}

/* What a replaced cell keeps. */
static void copy_members(struct jw *w, const struct json *cell)
{
	static const char *const drop[] = {
		"cell_type", "source", "outputs", "execution_count"
	};
	const struct json *m;
	size_t i;

	for (m = json_first(cell); m; m = json_next(m)) {
		for (i = 0; i < sizeof(drop) / sizeof(*drop); i++)
			if (!strcmp(json_key(m), drop[i]))
				break;
		if (i < sizeof(drop) / sizeof(*drop))
			continue;
		jw_key(w, json_key(m));
		jw_node(w, m);
	}
}

static void write_body(struct jw *w, const char *type, const char *source)
{
	jw_kstr(w, "cell_type", type);
	jw_kstr(w, "source", source);
	if (strcmp(type, "code"))
		return;
	jw_key(w, "execution_count");
	jw_null(w);
	jw_key(w, "outputs");
	jw_arr(w);
	jw_end_arr(w);
}

/* The cell with its new source; what it printed before is gone. */
static void write_replaced(struct jw *w, const struct json *cell,
			   const struct change *c)
{
	const char *type = c->type ? c->type :
		json_get_str(cell, "cell_type", "code");

	jw_obj(w);
	copy_members(w, cell);
	write_body(w, type, c->source);
	jw_end_obj(w);
}

static void write_new(struct jw *w, const struct change *c,
		      const struct json *cells)
{
	size_t number = json_len(cells);
	char id[32];

	do
		snprintf(id, sizeof(id), "new-%zu", number++);
	while (find_cell(cells, id) >= 0);
	jw_obj(w);
	jw_kstr(w, "id", id);
	jw_key(w, "metadata");
	jw_obj(w);
	jw_end_obj(w);
	write_body(w, c->type, c->source);
	jw_end_obj(w);
}

static void write_cells(struct jw *w, const struct json *cells,
			const struct change *c)
{
	int insert = c->mode[0] == 'i', delete = c->mode[0] == 'd';
	const struct json *m;
	int64_t i = 0;

	jw_arr(w);
	if (insert && c->at < 0)
		write_new(w, c, cells);
	for (m = json_first(cells); m; m = json_next(m), i++) {
		if (i != c->at || insert)
			jw_node(w, m);
		else if (!delete)
			write_replaced(w, m, c);
		if (i == c->at && insert)
			write_new(w, c, cells);
	}
	jw_end_arr(w);
}

static int check(const struct json *cells, struct change *c, struct err *e)
{
	const struct json *m = json_first(cells);
	int insert = c->mode[0] == 'i';

	while (m && json_type(m) == JSON_OBJECT)
		m = json_next(m);
	if (json_type(cells) != JSON_ARRAY || m)
		return err_set(e, CA_DATAERR, "the file is no notebook");
	c->at = c->id ? find_cell(cells, c->id) : -1;
	if (c->id && c->at < 0)
		return err_set(e, CA_DATAERR, "there is no cell '%.80s'",
			       c->id);
	if (!insert && !c->id)
		return err_set(e, CA_DATAERR, "cell_id is missing");
	if (insert && !c->type)
		return err_set(e, CA_DATAERR, "cell_type is missing");
	return 0;
}

static int rewrite(const struct json *book, const struct change *c,
		   struct str *out)
{
	const struct json *m;
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w);
	for (m = json_first(book); m; m = json_next(m)) {
		jw_key(&w, json_key(m));
		if (!strcmp(json_key(m), "cells"))
			write_cells(&w, m, c);
		else
			jw_node(&w, m);
	}
	jw_end_obj(&w);
	return str_addc(out, '\n');
}

static int edit(const struct place *p, const char *name, struct change *c,
		struct err *e)
{
	struct str text = STR_INIT, changed = STR_INIT;
	struct json *book = NULL;
	const char *last;
	int dir = place_parent(p, name, 0, &last, e);
	int rc = dir < 0 || place_writable(p, dir, last, e) ||
		 place_read(p, name, EDIT_MAX, &text, e) ? -1 : 0;

	if (dir >= 0)
		close(dir);
	if (!rc) {
		book = json_parse(text.buf, text.len, EDIT_MAX, NULL, e);
		rc = book ? check(json_get(book, "cells"), c, e) : -1;
	}
	if (!rc && rewrite(book, c, &changed))
		rc = err_set(e, CA_SOFTWARE, "out of memory");
	if (!rc)
		rc = place_write(p, name, changed.buf, changed.len, e);
	json_free(book);
	str_release(&text);
	str_release(&changed);
	return rc;
}

int notebook_edit(const struct place *p, const struct json *args,
		  struct str *out)
{
	struct change c = {
		.mode = json_get_str(args, "edit_mode", "replace"),
		.type = json_get_str(args, "cell_type", NULL),
		.source = json_get_str(args, "new_source", ""),
		.id = json_get_str(args, "cell_id", NULL)
	};
	struct err e = ERR_INIT;
	const char *name = place_below(json_get_str(args, "notebook_path", ""),
				      &e);

	if (!name || edit(p, name, &c, &e)) {
		str_addf(out, "Error: %s", e.msg);
		return 0;
	}
	str_addf(out, "%s a cell of %s", c.mode[0] == 'i' ? "Inserted" :
		 c.mode[0] == 'd' ? "Deleted" : "Replaced", name);
	return 1;
}
