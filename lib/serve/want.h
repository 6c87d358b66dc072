/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request for a completion asks for.  Members that we do not know are
 * refused by name, and so are those that we know but do not do, unless their
 * value asks for nothing: an option that is ignored in silence is a wrong
 * answer.
 */
#ifndef CA_SERVE_WANT_H
#define CA_SERVE_WANT_H

#include <stdint.h>

#include "nn/tok.h"
#include "rec/json.h"
#include "serve/fault.h"

#define WANT_STOPS   16
#define WANT_CHOICES 128	/* n times the number of prompts */

enum want_kind { WANT_CHAT, WANT_TEXT };

/* What an answer has to be. */
enum want_form { WANT_FREE, WANT_OBJECT, WANT_SCHEMA, WANT_CALL };

/* What a request that says nothing about it gets. */
struct want_defaults {
	double temperature, top_p, min_p;
	int64_t top_k, max_tokens;	/* max_tokens 0: OpenAI's own */
};

struct want {
	enum want_kind kind;
	struct json *root;		/* owns all that is pointed to */
	const char *model;		/* NULL: not said */
	const struct json *messages;	/* chat */
	const struct json *tools;	/* NULL: none, or not to be used */
	enum want_form form;		/* chat */
	const struct json *schema;	/* for WANT_SCHEMA */
	const char *tool;		/* for WANT_CALL; NULL: any */
	const struct json *prompts;	/* text: see want_prompt; NULL with */
	struct tok_ids ids;		/* the tokens of a single one */
	int nprompts;
	int n, stream, stream_usage;
	int echo;			/* text */
	int64_t max_tokens;		/* -1: all that fit */
	double temperature, top_p, min_p;
	int64_t top_k;
	int seeded, ignore_eos, token_ids;
	uint64_t seed;
	int logprobs, top;		/* top: alternatives */
	const char *stop[WANT_STOPS];
	int nstops;
	uint64_t party;			/* 0: not said */
};

/* Reads a body.  -1 with a fault; `w` needs want_release either way. */
int want_parse(struct want *w, enum want_kind kind, const char *body,
	       size_t len, const struct want_defaults *d, struct fault *f);
void want_release(struct want *w);

/* Prompt number i of a text request, unless it is in `ids`: a text, or a list
 * of token ids. */
const struct json *want_prompt(const struct want *w, int i);

#endif
