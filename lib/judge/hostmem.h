/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that is shared with a child: a memfd, allocated at once and
 * sealed, so that its other holder cannot shrink it under the judge.
 */
#ifndef CA_JUDGE_HOSTMEM_H
#define CA_JUDGE_HOSTMEM_H

#include "judge/device.h"

int hostmem_new(size_t bytes, struct mem *m, struct err *e);
void hostmem_free(struct mem *m);

#endif
