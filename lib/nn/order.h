/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders to replicas of nn/gen.h: other weights, sleep, wake.  What gen.c lets
 * order.c do; for others gen.h is enough.
 */
#ifndef CA_NN_ORDER_H
#define CA_NN_ORDER_H

#include <pthread.h>

#include "base/path.h"
#include "nn/gen.h"
#include "nn/safetensors.h"

enum order_kind { ORDER_LOAD, ORDER_SLEEP, ORDER_WAKE };

/* What is to be done between two steps. */
struct order {
	enum order_kind kind;
	const struct st *st;
	struct gen_weights weights;	/* st's */
	int done, rc;
	struct err err;
};

/* Where a replica's weights come from; `ordering` is held by whoever gives it
 * orders or looks at dir. */
struct gen_folder {
	pthread_mutex_t ordering;
	char dir[CA_PATH_MAX];
};
struct gen_folder *gen_folder(struct gen *g);
struct engine *gen_engine(struct gen *g);

/* Gives an order, one at a time; waits until it has been obeyed, with its
 * error; or for one that sleeps only notes the weights, and it is done. */
void gen_give(struct gen *g, struct order *o);
int gen_await(struct gen *g, struct order *o, struct err *e);
void gen_note(struct gen *g, struct order *o);

#endif
