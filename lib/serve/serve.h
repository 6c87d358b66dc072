/* SPDX-License-Identifier: Apache-2.0
 *
 * The model server: from its start to its end.
 */
#ifndef CA_SERVE_SERVE_H
#define CA_SERVE_SERVE_H

#include "serve/core.h"
#include "serve/http.h"

struct serve_opts {
	struct engine_opts engine;
	struct core_opts core;
	struct http_opts http;
	int replicas;			/* of the model; more than one on CUDA
					 * are on the first devices */
	double drain_s;			/* for what runs when it is to end */
	int quiet;			/* no line for people */
	/* Called once it answers; may be NULL. */
	int (*ready)(void *ctx, int port, struct err *e);
	void *ctx;
};

/*
 * Serves until a signal (sig.h) comes, then takes nothing new, finishes what
 * runs and returns 0; what is not finished in time is cut short.  `table` as in
 * gen_open.  -1 when it could not begin.
 */
int serve_run(const struct serve_opts *o, struct str *table, struct err *e);

#endif
