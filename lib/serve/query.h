/* SPDX-License-Identifier: Apache-2.0
 *
 * One request for completions, from its body to its answer.  A thread of the
 * server's HTTP side adds the body and reads the answer; threads of the core
 * prepare the prompts and write the answer; the engine's thread only notes
 * that there is a token.
 */
#ifndef CA_SERVE_QUERY_H
#define CA_SERVE_QUERY_H

#include <pthread.h>
#include <sys/types.h>

#include "serve/core.h"
#include "serve/guide.h"
#include "serve/tools.h"

#define QUERY_SCORED 4096	/* tokens of a prompt with alternatives */

/* One completion. */
struct choice {
	struct query *q;
	struct gen_req r;
	int index;
	int home;			/* number of its replica */
	int lead;			/* tokens of the prompt in the answer */
	struct choice *burst_next;	/* the engine's thread's */
	int in_burst;
	/* What the engine has said, with the core's lock. */
	int avail, over;
	struct gen_weights weights_now;
	/* The teller's copy of it. */
	int got, ended;
	struct gen_weights weights;
	/* The answer so far, with the query's lock. */
	int seen;			/* tokens that are part of it */
	struct str text;
	size_t *end;			/* of each token's text in it */
	int stopped;			/* by a stop text, */
	size_t limit;			/* at this byte; else SIZE_MAX */
	size_t told;			/* bytes and tokens in the stream */
	int told_tokens, finished;
	size_t told_chars;		/* in these tokens */
	struct shape_at at;		/* the engine's thread's */
	struct tools_scan scan;		/* of calls in a stream; told of them */
	size_t told_calls, told_args;	/* and of the last one's arguments */
};

enum query_state {
	QUERY_BODY,			/* being read */
	QUERY_WORK,			/* nothing to be sent yet */
	QUERY_ANSWER,			/* `status` and all of `out` */
	QUERY_STREAM			/* `out` grows until `done` */
};

struct query {
	struct core *c;
	struct task task;
	char id[40];
	int64_t created, started, deadline;
	struct str body;
	struct want w;
	struct tok_ids *prompt;		/* of each of w.nprompts */
	struct recall_key key;		/* of a chat before its answer */
	struct shape *shape;		/* what the answer has to be, or NULL;
					 * and the engine's thread's: */
	struct guide *guide;
	struct choice *choice;
	int nchoices;
	uint64_t party;			/* if the request names none */
	int home;			/* where it was, or -1; then that of
					 * the first choice */
	/* With the core's lock. */
	struct query *before, *after;	/* of live ones */
	struct teller *teller;
	struct query *ready_next;
	struct query *told_next;	/* the teller's */
	int is_ready, is_live, submitted, aborted;
	int expired;			/* 1: its time is over; 2: ours is */
	/* The teller's copies: `submitted`, and whether nothing runs any
	 * more. */
	int late, runs, settled;
	struct str news;		/* what it writes */
	/* With its own. */
	pthread_mutex_t lock;
	int refs;
	enum query_state state;
	struct fault fault;
	struct str out;
	size_t sent;
	int done, gone;
	void (*wake)(void *ctx);	/* there is something to send */
	void *wake_ctx;
};

/* wake may be called from any thread until query_leave returns, and must not
 * call into the query.  `party` is for whom requests that do not say it are.
 * NULL: no memory. */
struct query *query_new(struct core *c, enum want_kind kind, uint64_t party,
			void (*wake)(void *ctx), void *ctx);

/* The body is said to have so many bytes; if it has others, that is fine. */
void query_expect(struct query *q, int64_t len);

/* Adds to the body; -1: no memory. */
int query_add(struct query *q, const char *p, size_t len);

/* The body is whole. */
void query_start(struct query *q);

/* Where it stands.  With QUERY_ANSWER, the status and the answer, which is
 * the caller's to free from then on. */
enum query_state query_state(struct query *q, int *status, int *retry_s,
			     char **body, size_t *len);

/* Up to max bytes of a stream; 0: none now; -1: none any more; -2: nor is it
 * whole, since it outgrew its memory. */
ssize_t query_read(struct query *q, char *buf, size_t max);

/* The client is gone or has its answer; what still runs is cancelled. */
void query_leave(struct query *q);

/* For the core, with its lock: has the teller look at q; copies what the
 * engine said. */
void query_has_news(struct query *q);
void query_take_news(struct query *q);

/* For the engine's thread, with a struct burst: there may be tokens, and
 * whether it sleeps. */
void query_burst(void *ctx, int asleep);

/* For the teller's thread: writes what is new. */
void query_tell(struct query *q);

#endif
