/* SPDX-License-Identifier: Apache-2.0
 *
 * What all requests of a server share: the model, threads that prepare
 * prompts, those that turn tokens into answers, counters.
 */
#ifndef CA_SERVE_CORE_H
#define CA_SERVE_CORE_H

#include <pthread.h>
#include <stdint.h>

#include "base/rand.h"
#include "nn/gen.h"
#include "nn/prompt.h"
#include "serve/recall.h"
#include "serve/want.h"

struct core_opts {
	const char *name;		/* of the model, for clients */
	int queue;			/* completions that wait, beyond those
					 * that run */
	double timeout_s;		/* of one request */
	struct want_defaults defaults;
};

/* Something to do on a thread where it may take its time. */
struct task {
	void (*run)(struct task *t);
	struct task *next;
};

/* Threads for tasks, in the order of these. */
struct lane {
	struct core *c;
	pthread_t thread[2];
	int threads;
	pthread_cond_t work;
	struct task *tasks, **last;	/* with the core's lock */
};

struct query;
struct choice;
struct words;

/* A thread that turns tokens into answers, always those of the same queries. */
struct teller {
	struct core *c;
	pthread_t thread;
	pthread_cond_t news;
	struct query *ready, **last;	/* there are news of them; with the
					 * core's lock */
};

/* Choices that got a token in this step of a replica, the engine's thread's:
 * what is to be said of them is said at once. */
struct burst {
	struct core *c;
	struct choice *first;
};

#define CORE_GENS 16		/* replicas of the model */
#define CORE_TELLERS 8		/* at most */

struct core {
	struct core_opts o;
	struct gen *gen[CORE_GENS];	/* alike but for their devices */
	int ngens;
	struct prompt *prompt;
	struct recall *recall;
	pthread_mutex_t wording;	/* of words, made when first needed */
	struct words *words;
	struct lane prompts, orders;	/* which may wait for a device */
	struct teller teller[CORE_TELLERS];
	int ntellers, telling;		/* of them started */
	struct burst burst[CORE_GENS];	/* of each replica */
	pthread_mutex_t lock;		/* of all that follows */
	struct query *live;		/* all of them */
	int closing, draining;
	int choices;			/* submitted and not ended */
	int load[CORE_GENS];		/* of them, each replica's */
	int asleep[CORE_GENS];
	struct rng seeds;
	uint64_t queries;		/* so far */
	uint64_t answered[6];		/* by the status' first digit */
	uint64_t refused;		/* 429 */
	double prepare_s;		/* from bodies to the engine */
	double mean_s;			/* of a completion, lately */
	/* Set once; and for admin_status alone. */
	int64_t started;		/* time(2) */
	int64_t shown_at;
	uint64_t shown_tokens;
};

/* Threads that tell, and that speak HTTP: as many as the machine has room for
 * beside the rest. */
int core_threads(void);

/* Takes over n replicas and prompt, which core_close closes. */
struct core *core_open(const struct core_opts *o, struct gen *const *g, int n,
		       struct prompt *p, struct err *e);
/* NULL is fine; all queries have to have been left. */
void core_close(struct core *c);

/* Runs a task on a thread for its kind. */
void core_do(struct core *c, struct lane *l, struct task *t);

/* No new queries from now on (503). */
void core_drain(struct core *c);

/* Queries that are not answered yet. */
int core_live(struct core *c);

/* Ends queries whose time is over; all of them, and orders that wait for the
 * device, with `now`. */
void core_expire(struct core *c, int now);

/* Sequences at once, of all replicas. */
int core_slots(const struct core *c);

/* What all replicas have done together, and how it is now. */
void core_stats(struct core *c, struct gen_stats *s);

/* The replica for the next completions: `home`, where there are pages of
 * theirs, or -1, unless others have clearly less to do or it sleeps while one
 * does not.  With the lock. */
int core_choose(const struct core *c, int home);

/* The vocabulary for serve/guide.h.  NULL: no memory. */
const struct words *core_words(struct core *c);

/* Counts an answer. */
void core_count(struct core *c, int status);

#endif
