/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories to build in.  One that its owner did not live to remove is
 * removed by the next builder: a lock says whether the owner lives.
 */
#ifndef CA_BUILD_SCRATCH_H
#define CA_BUILD_SCRATCH_H

#include "base/err.h"
#include "base/path.h"

struct scratch {
	char dir[CA_PATH_MAX];	/* mode 0711, so that a jail's uid can reach
				 * what is given to it below */
	int lock;
};

#define SCRATCH_INIT { "", -1 }

int scratch_make(struct scratch *s, struct err *e);
void scratch_drop(struct scratch *s);	/* also of one that was not made */

#endif
