/* SPDX-License-Identifier: Apache-2.0
 *
 * One tool call is executed.
 */
#include "agent/rollout.h"

#include <stdio.h>

#include "agent/files.h"
#include "agent/notebook.h"
#include "agent/search.h"
#include "base/io.h"
#include "base/sig.h"

/* Of an answer; what makes it longer says so itself. */
#define TEXT_MAX ((size_t)512 << 10)
#define TEXT_FULL 4096		/* once the history is as long as may be */

static int todo_write(const struct json *args, struct str *out)
{
	str_addf(out, "The list has %zu items now",
		 json_len(json_get(args, "todos")));
	return 1;
}

static int run_tool(struct rollout *r, const struct call *c, struct str *out)
{
	const struct place *p = &r->place;

	switch (c->tool) {
	case TOOL_BASH:
		return shells_bash(r->shells, c->args, out);
	case TOOL_BASH_OUTPUT:
		return shells_output(r->shells, c->args, out);
	case TOOL_KILL_BASH:
		return shells_kill(r->shells, c->args, out);
	case TOOL_READ:
		return files_read(p, c->args, out);
	case TOOL_WRITE:
		return files_write(p, c->args, out);
	case TOOL_EDIT:
		return files_edit(p, c->args, out);
	case TOOL_MULTI_EDIT:
		return files_multi_edit(p, c->args, out);
	case TOOL_GLOB:
		return search_glob(p, c->args, out);
	case TOOL_GREP:
		return search_grep(p, c->args, out);
	case TOOL_NOTEBOOK_EDIT:
		return notebook_edit(p, c->args, out);
	default:
		return todo_write(c->args, out);
	}
}

/* The answer; `ok` says whether it is an error. */
static int answer(struct rollout *r, const struct call *c, struct str *out)
{
	int64_t bytes = 0;
	int ok;

	if (!c->args) {
		str_addf(out, "Error: %s", c->error ? c->error : "?");
		return 0;
	}
	if (c->tool == TOOL_WRITE && !place_digest(&r->place, NULL, &bytes,
						   NULL) &&
	    bytes > r->o->disk) {
		str_adds(out, "Error: the work directory is full, or holds "
			 "more than can be counted; remove what is not "
			 "needed");
		return 0;
	}
	shells_wake(r->shells);
	ok = run_tool(r, c, out);
	shells_rest(r->shells);
	return ok;
}

static int changes_files(enum tool_id t)
{
	return t == TOOL_BASH || t == TOOL_WRITE || t == TOOL_EDIT ||
	       t == TOOL_MULTI_EDIT || t == TOOL_NOTEBOOK_EDIT ||
	       t == TOOL_BASH_OUTPUT || t == TOOL_KILL_BASH;
}

static int log_result(struct rollout *r, const struct call *c,
		      const struct str *text, int ok, int64_t ns,
		      struct err *e)
{
	char digest[HASH_HEX] = "";
	struct jw *w;

	if (c->args && changes_files(c->tool) &&
	    place_digest(&r->place, digest, NULL, e))
		return -1;
	w = event_begin(r, "result");
	jw_kint(w, "turn", r->s.turn);
	jw_kint(w, "i", (int64_t)r->s.next);
	jw_key(w, "text");
	jw_strn(w, text->buf ? text->buf : "", text->len);
	jw_kbool(w, "ok", ok);
	if (*digest)
		jw_kstr(w, "digest", digest);
	jw_kstr(w, "cwd", shells_cwd(r->shells));
	jw_kint(w, "shells", shells_count(r->shells));
	jw_kint(w, "tries", tries_used(r->tries));
	jw_key(w, "prov");
	jw_obj(w);
	jw_knum(w, "seconds", (double)ns / 1e9);
	jw_end_obj(w);
	return event_end(r, e);
}

int act(struct rollout *r, struct err *e)
{
	struct call *c = &r->s.calls.c[r->s.next];
	struct str text = STR_INIT;
	int64_t began = now_ns();
	size_t most = r->s.messages.len + r->s.deferred.len < HISTORY_MAX ?
		      TEXT_MAX : TEXT_FULL;
	struct jw *w;
	int ok, rc;

	if (c->args && !r->s.begun) {
		w = event_begin(r, "call");
		jw_kint(w, "turn", r->s.turn);
		jw_kint(w, "i", (int64_t)r->s.next);
		if (event_end(r, e))
			return -1;
	}
	ok = answer(r, c, &text);
	if (text.len > most)
		text.len = text_cut(text.buf, most);
	if (sig_caught())
		rc = err_set(e, CA_TEMPFAIL, "interrupted");
	else
		rc = log_result(r, c, &text, ok, now_ns() - began, e);
	str_release(&text);
	return rc;
}
