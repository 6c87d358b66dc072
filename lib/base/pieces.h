/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that falls into numbered parts, done by as many threads as there are
 * processors.
 */
#ifndef CA_BASE_PIECES_H
#define CA_BASE_PIECES_H

#include <stdint.h>

/*
 * Calls part(ctx, i) once for every i below n, in any order and several at a
 * time, and returns when all are done.  At most `threads` at once (0: one for
 * each processor that this process may use); where threads cannot be had it
 * takes longer, no more.
 */
void pieces_run(void (*part)(void *ctx, uint64_t i), void *ctx, uint64_t n,
		unsigned threads);

#endif
