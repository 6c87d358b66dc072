/* SPDX-License-Identifier: Apache-2.0
 *
 * A second process with a CUDA context of its own, for tests of the judge's
 * device without PyTorch: the calling program again, as "PROGRAM peer FD".
 * It copies its input to the start of the pool as often as idle_us says.
 */
#ifndef CA_TEST_GPU_PEER_H
#define CA_TEST_GPU_PEER_H

#include "judge/device.h"

enum peer_mode {
	PEER_HONEST,
	PEER_BEHIND,		/* goes on for 5 ms after its answer */
	PEER_EARLY,		/* answers before it copies */
	PEER_OUTSIDE,		/* says its result lies beyond the pool */
	PEER_UNWRITTEN,		/* answers without doing anything */
	PEER_GONE,		/* leaves when it reads go */
	PEER_SPIN,		/* idle_us of work besides one copy */
	PEER_READ,		/* reads memory of its own, which it read in
				 * the iteration before */
	PEER_PERSIST		/* the same, set aside in the L2 cache */
};

/* Starts one; r->in, r->pool are made for `bytes`.  0 or -1. */
int peer_start(struct device *d, struct runner *r, enum peer_mode mode,
	       size_t bytes, struct err *e);
void peer_stop(struct device *d, struct runner *r);

/* To be called first in main(): runs the peer, or a stranger that holds a
 * context until its second descriptor closes, when argv asks for it. */
int peer_main(int argc, char **argv);

#endif
