/* SPDX-License-Identifier: Apache-2.0
 *
 * The tools that a model is offered: one table, from which come the JSON
 * schemas that the model is sent and the checks of what it answers.
 */
#ifndef CA_AGENT_TOOL_H
#define CA_AGENT_TOOL_H

#include "base/err.h"
#include "base/str.h"
#include "rec/json.h"

enum tool_id {
	TOOL_BASH, TOOL_BASH_OUTPUT, TOOL_KILL_BASH, TOOL_READ, TOOL_WRITE,
	TOOL_EDIT, TOOL_MULTI_EDIT, TOOL_GLOB, TOOL_GREP, TOOL_NOTEBOOK_EDIT,
	TOOL_TODO_WRITE, TOOL_COUNT, TOOL_NONE = -1
};

/* The tool of a name or alias (KillShell, TaskStop); TOOL_NONE. */
enum tool_id tool_find(const char *name);
const char *tool_name(enum tool_id t);

/* Appends the array `tools` of a request. */
void tool_schemas(struct str *out);

/* Appends "Bash, BashOutput, ...". */
void tool_names(struct str *out);

/*
 * Checks arguments against the schema of t.  0 when they fit, 1 when they fit
 * once numbers, booleans and lists that came as strings are read as such (out
 * then holds the arguments so repaired), -1 with `e`, worded for the model.
 */
int tool_check(enum tool_id t, const struct json *args, struct str *out,
	       struct err *e);

/* The type of a parameter: 's', 'i', 'b', 'l' (list); 0: no such one. */
int tool_param(enum tool_id t, const char *name);

#endif
