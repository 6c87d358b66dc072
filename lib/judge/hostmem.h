/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that is shared with a child: a memfd, allocated at once and
 * sealed, so that its other holder cannot shrink it under the judge.
 */
#ifndef CA_JUDGE_HOSTMEM_H
#define CA_JUDGE_HOSTMEM_H

#include "judge/device.h"

/*
 * 0 when n more bytes may be filled, -1 and CA_UNAVAILABLE when not: what the
 * judge takes is nobody's whom the kernel could kill for it.
 */
int hostmem_room(size_t n, struct err *e);

int hostmem_new(size_t bytes, struct mem *m, struct err *e);
/* The same, but pages come when they are touched: for room that is hardly
 * ever used up.  Where there is no page left, whoever touches one is killed. */
int hostmem_sparse(size_t bytes, struct mem *m, struct err *e);
/* Maps memory that another process made by one of these; the descriptor is m's
 * then.  On failure it stays the caller's. */
int hostmem_adopt(int fd, size_t bytes, struct mem *m, struct err *e);
void hostmem_free(struct mem *m);

#endif
