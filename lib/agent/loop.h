/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling a rollout that goes round in circles from one that makes progress.
 */
#ifndef CA_AGENT_LOOP_H
#define CA_AGENT_LOOP_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define LOOP_SPAN 6

struct loop {
	uint64_t last[LOOP_SPAN];	/* newest first; 0: none */
};

/*
 * Takes one call with its result; 1 when it completes a circle: four equal
 * pairs of call and result in a row, or two that alternate over six.  Times
 * and addresses in the result do not make a difference.
 */
int loop_add(struct loop *l, const char *tool, const char *args,
	     const char *result);

/* Appends text with what is a time (3.4 s, 12ms, 10:03:59) or an address
 * (0x7f…) as '#'. */
void loop_mask(const char *text, struct str *out);

#endif
