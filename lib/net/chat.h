/* SPDX-License-Identifier: Apache-2.0
 *
 * A model behind an OpenAI-compatible chat endpoint: one request body in, one
 * answer out, with every way in which that can fail sorted out.
 */
#ifndef CA_NET_CHAT_H
#define CA_NET_CHAT_H

#include "net/net.h"
#include "rec/json.h"

enum chat_end {
	CHAT_OK,
	CHAT_CONTEXT,		/* the prompt no longer fits */
	CHAT_REFUSED,		/* 4xx: this request never will */
	CHAT_FAULT,		/* retries are used up */
	CHAT_DEADLINE,
	CHAT_SIGNAL
};

struct chat_answer {
	enum chat_end how;
	struct json *root;	/* the whole body; NULL without CHAT_OK */
	const struct json *message;	/* of its first choice, an object */
	const char *finish;	/* finish_reason; NULL: the server gave none */
	int64_t prompt_tokens, completion_tokens; /* of usage; -1: not told */
	int attempts;
	int64_t wall_ns;	/* of the attempt that counted */
	char text[512];		/* for people, unless CHAT_OK */
};

struct chat_opts {
	const char *endpoint;	/* base, as http://host:8000/v1 */
	const char *key;	/* NULL: no Authorization header */
	struct net_limits limits;	/* zeros: defaults */
	int attempts;		/* 0: 8 */
	double base_s, cap_s;	/* of backoff; 0: 2 and 60 */
	const struct net_idle *idle;	/* NULL: none */
	/* As in struct net_policy; may be NULL. */
	void (*note)(void *ctx, const struct net_reply *r, double wait);
	void *ctx;
};

struct chat;

/* Copies what it needs; idle and ctx outlive it.  CA_USAGE for an endpoint
 * that is no URL.  Draws its backoff from kernel randomness. */
struct chat *chat_open(const struct chat_opts *o, struct err *e);
void chat_close(struct chat *c);

/*
 * POSTs body to ENDPOINT/chat/completions.  200 without content, reasoning,
 * tool call and tokens is a fault of the way, and repeated as one.  Returns 0
 * with a->how, -1 only as net_post does.  chat_answer_release afterwards.
 */
int chat_ask(struct chat *c, const char *body, size_t len, int64_t deadline,
	     struct chat_answer *a, struct err *e);

/* The same for an answer that came another way: status as HTTP's.  Faults
 * are CHAT_FAULT at once. */
void chat_read(const char *body, size_t len, int status,
	       struct chat_answer *a);

void chat_answer_release(struct chat_answer *a);

/* -1 with CA_CONFIG when no header can hold it. */
int chat_check_key(const char *key, struct err *e);

#endif
