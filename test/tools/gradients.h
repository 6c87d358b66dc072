/* SPDX-License-Identifier: Apache-2.0
 *
 * What nn.c and rl.c write for test/models to compare.
 */
#include <stdio.h>
#include <stdlib.h>

#include "nn/train.h"

/* The gradient of each tensor to stdout, fp32, in the order of their names on
 * stderr.  All ranks read them, and one writes. */
static void write_gradients(struct train *t, int writes)
{
	const struct nn_model *m = train_model(t);
	struct err e = ERR_INIT;

	for (size_t i = 0; i < m->nparams; i++) {
		const struct nn_param *p = &m->param[i];
		float *all = malloc(p->n * sizeof *all);

		if (!all || train_read(t, TRAIN_GRADIENT, p, all, &e))
			die_err(&e);
		for (int k = 0; k < p->parts && writes; k++)
			fprintf(stderr, "%s\n", p->name[k]);
		if (writes)
			fwrite(all, sizeof *all, p->n, stdout);
		free(all);
	}
}
