/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks of operators as tasks in given shares, drawn by rule or written by
 * a model.
 */
#ifndef CA_SYNTH_COMBINE_H
#define CA_SYNTH_COMBINE_H

#include "base/io.h"
#include "rec/rec.h"

#define MIX_STACK 5		/* x1 to x5 */
#define MIX_OTHER MIX_STACK	/* the share of transformers' modules */

/* A model that writes the stacks. */
struct compose_opts {
	const char *url;	/* OpenAI-compatible; NULL: there is none */
	const char *model, *key;
	const char *prompt;	/* a file; NULL: ours */
	const char *body;	/* further members of requests; NULL: none */
	double temperature;	/* < 0: the server's */
	int64_t max_tokens, answers;	/* answers: 0 is ten for each task */
	int64_t retries, jobs;
	double answer_s;	/* with all that is tried again */
};

struct combine_opts {
	const char *device;
	double mix[MIX_STACK + 1];	/* shares; their sum is no matter */
	int64_t count;
	int64_t max_bytes;		/* of any result; 0: room_bytes() */
	double task_s, lease_s;
	uint64_t seed;
	int verbose;
	struct compose_opts llm;
	const char *summary;	/* as in struct crawl_opts */
	const char *not_in;	/* a file of tasks whose codes are not made
				 * again; NULL: none */
};

struct combine;

/* The paper's mix. */
void combine_defaults(struct combine_opts *o);
/* "x1=3.4,x2=83.77,…,transformers=1.18"; what is not named is 0. */
int combine_mix(struct combine_opts *o, const char *text, struct err *e);

struct combine *combine_open(const struct combine_opts *o, struct err *e);
void combine_close(struct combine *c);

/* Takes a task's piece, or (of transformers) the task itself; others are
 * counted.  Rejected tasks are not taken. */
int combine_take(struct combine *c, const struct rec *r, struct err *e);

/* Draws o->count tasks and writes them; a summary goes to stderr.
 * CA_DATAERR when what was taken cannot make them. */
int combine_run(struct combine *c, struct output *out, struct err *e);

#endif
