/* SPDX-License-Identifier: Apache-2.0
 *
 * Trajectories: what is accepted can be made into sequences and rows.
 */
#include <stdlib.h>

#include "rec/rec.h"
#include "rl/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(struct traj *t)
{
	struct rows r;

	if (rows_make(&r, t, 1, 0, NULL))
		return;
	if (r.n > t->agent)
		abort();
	for (size_t s = 0; s < r.nseq; s++)
		for (size_t i = 0; i < r.seq[s].nout; i++)
			if (r.row[r.seq[s].first + i] < 0 ||
			    (size_t)r.row[r.seq[s].first + i] >= r.seq[s].n)
				abort();
	rows_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct traj t;
	struct rec r;
	int drop;

	rec_init(&r);
	if (!rec_parse(&r, (const char *)data, size, NULL, &e)) {
		drop = traj_read(&t, r.root, 1, &e);
		if (drop > 0 && (e.code != CA_DATAERR || !*e.msg))
			abort();
		if (!drop)
			use(&t);
		traj_release(&t);
	}
	rec_release(&r);
	return 0;
}
