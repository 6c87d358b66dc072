/* SPDX-License-Identifier: Apache-2.0
 *
 * From a prompt record to a completion record; see ca-record(5).
 */
#ifndef CA_NN_COMPLETE_H
#define CA_NN_COMPLETE_H

#include "nn/gen.h"
#include "rec/rec.h"

/* What a prompt that says nothing about it gets. */
struct complete_opts {
	double temperature, top_p, min_p;
	int64_t top_k, max_tokens;	/* max_tokens 0: up to the context */
	int seeded;			/* all seeds are derived from `seed` */
	uint64_t seed;
	int no_prov;
	int (*interrupted)(void);	/* cuts generation short; or NULL */
};

struct complete;

/* Loads model, tokenizer and chat template of gen->dir. */
struct complete *complete_open(const struct engine_opts *gen,
			       const struct complete_opts *o,
			       struct str *table, struct err *e);
void complete_close(struct complete *c);
void complete_stats(struct complete *c, struct gen_stats *s);

/* Completes a record of kind prompt in place.  CA_DATAERR when it is not one
 * that can be; it is then as it was.  Thread safe. */
int complete_record(struct complete *c, struct rec *r, struct err *e);

#endif
