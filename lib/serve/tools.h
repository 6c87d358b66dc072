/* SPDX-License-Identifier: Apache-2.0
 *
 * Tools: whether a request's are any, and which of them a model's text calls.
 */
#ifndef CA_SERVE_TOOLS_H
#define CA_SERVE_TOOLS_H

#include <stddef.h>

#include "base/str.h"
#include "rec/json.h"
#include "serve/fault.h"

#define TOOLS_NAME 64		/* bytes of a name, at most */

/* Whether this is a list of functions with schemas. */
int tools_check(const struct json *tools, struct fault *f);

/*
 * How much of a text is certainly content and not the beginning of a call:
 * up to a marker of calls or to what may become one.  Of a text that begins
 * with a brace nothing is certain before its end.
 */
size_t tools_content(const char *text, size_t len);

/*
 * Follows one choice's text as it grows, to tell a call's arguments before it
 * ends: of calls that begin with name and arguments, in this order, the latter
 * an object.  Any others are TOOLS_LOST, to be found at the end.
 */
enum tools_state { TOOLS_CONTENT, TOOLS_HEAD, TOOLS_ARGUMENTS, TOOLS_TAIL,
		   TOOLS_LOST };

struct tools_scan {
	enum tools_state state;
	size_t at;			/* read so far */
	size_t calls;			/* begun so far; of the last one: */
	size_t begin;			/* where it begins, with its marker */
	size_t name, name_len;
	size_t from, to;		/* its arguments so far */
	int depth, quoted, escaped;
};

/* Reads on to byte `len`, but not beyond the end of a call's arguments: 1,
 * and it is to be called again where something new is to be told. */
int tools_follow(struct tools_scan *s, const struct json *tools,
		 const char *text, size_t len);

#define TOOLS_CALLS 64

struct tools_call {
	char *name, *arguments;		/* arguments: as the model wrote them */
};

struct tools_calls {
	struct tools_call call[TOOLS_CALLS];
	size_t n;
	size_t content;			/* bytes of the text before them */
};

/*
 * Finds calls of these tools in the text of an answer:
 * <tool_call>{"name", "arguments"}</tool_call> (an object or a list of them),
 * and a text that is nothing but {"name", "parameters"}, with or without
 * <|python_tag|> in front.  What cannot be read, or calls no tool of the list,
 * is content.  -1: no memory.
 */
int tools_find(const struct json *tools, const char *text, size_t len,
	       struct tools_calls *out);
void tools_release(struct tools_calls *c);

#endif
