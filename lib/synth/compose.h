/* SPDX-License-Identifier: Apache-2.0
 *
 * What combine.c, which draws, and compose.c, which lets a model write, have in
 * common.  Not for other modules.
 */
#ifndef CA_SYNTH_COMPOSE_H
#define CA_SYNTH_COMPOSE_H

#include "base/rand.h"
#include "judge/session.h"
#include "synth/combine.h"
#include "synth/harvest.h"

struct part {
	char *name;
	char *piece;		/* JSON; NULL: cannot be stacked */
	char *line;		/* the task's own record */
	char *code;
};

struct combine {
	struct combine_opts o;
	struct part *part;
	size_t n, alloc;
	size_t *pool[2];	/* of operators with pieces, of the others */
	size_t npool[2];
	uint64_t foreign;
	struct rng rng;
	struct judge *j;
	struct oracle oracle;
	int open;
	struct compose *llm;		/* NULL: by rule */
	struct crawl_opts limits;	/* of the harvest */
	struct harvest h;
};

/* n operators that may follow each other: 0; 1 when this draw has none. */
int combine_draw(struct combine *c, const struct part **p, size_t n);

/* Opens the device and starts the process that checks, unless both are. */
int combine_ready(struct combine *c, struct err *e);
/* Asks that process.  0 with *told; 1
 * when the answer is no, which is counted under `name` unless NULL; -1. */
int combine_ask(struct combine *c, struct str *req, const char *name,
		struct json **told, struct err *e);
/* Ends it, after foreign code has run in it. */
void combine_leave(struct combine *c);

/* Reads the prompt, and reaches for nobody yet. */
int compose_open(struct combine *c, struct err *e);
void compose_close(struct combine *c);

/* Lets the model write all stacks that are still wanted, and takes what it
 * makes off the quota.  0 when the answers are used up, too. */
int compose_all(struct combine *c, int64_t quota[MIX_STACK + 1],
		struct err *e);

#endif
