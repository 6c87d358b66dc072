/* SPDX-License-Identifier: Apache-2.0
 *
 * The tool calls of a message, wherever the model or its server put them.
 */
#ifndef CA_AGENT_CALL_H
#define CA_AGENT_CALL_H

#include "agent/tool.h"

#define CALLS_MAX 64		/* of one message; more are refused */

enum call_flag {
	CALL_REPAIRED = 1,	/* arguments were mended, or the name */
	CALL_INVALID = 2,	/* against the schema, or no such tool */
	CALL_TEXT = 4,		/* found in the message's text */
	CALL_BROKEN = 8		/* arguments are no JSON, or the name is none:
				 * not to be sent back as a tool call */
};

struct call {
	char *id;		/* the server's, else made; never empty */
	char *name;		/* as it was called */
	char *raw;		/* arguments as they came */
	enum tool_id tool;
	struct json *args;	/* checked; NULL: not to be executed */
	char *error;		/* then: what the model is told */
	unsigned flags;
};

struct calls {
	struct call c[CALLS_MAX];
	size_t n;
	size_t dropped;		/* beyond CALLS_MAX */
};

/*
 * Finds the calls of an assistant message: its tool_calls, and where there
 * are none those in its content: <tool_call>{"name", "arguments"}</tool_call>
 * and <function=NAME><parameter=KEY>…</parameter></function>.  `turn` makes
 * ids for calls that have none.  Raw control characters in strings, text
 * behind the arguments' end and lists, numbers and booleans in quotes are
 * mended and flagged; arguments that end before their object does are not.
 * -1 only without memory.
 */
int calls_find(const struct json *message, int turn, struct calls *out,
	       struct err *e);
void calls_release(struct calls *c);

/* Nothing of this message is to be executed, for the reason given. */
void calls_refuse(struct calls *c, const char *why);

/*
 * Makes JSON that is almost right parse: escapes raw control characters
 * inside strings, and cuts what stands behind the end of the first value.
 * 1 repaired (out), 0 was right already (out is a copy), -1 beyond repair or
 * ending early.
 */
int call_mend(const char *text, size_t len, struct str *out);

#endif
