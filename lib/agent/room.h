/* SPDX-License-Identifier: Apache-2.0
 *
 * How much a work directory may hold, and holds.
 */
#ifndef CA_AGENT_ROOM_H
#define CA_AGENT_ROOM_H

#include "agent/place.h"

struct room {
	const struct place *place;
	int64_t limit;		/* bytes */
	dev_t dev;		/* where it lies */
	int64_t checked, bytes;	/* when they were counted last; how many */
	int64_t left;		/* on the file system then */
	int64_t before;		/* bytes that the last command began with */
	int beyond;		/* commands in a row that made no room */
};

/* Nothing is counted yet.  The place outlives it. */
void room_init(struct room *r, const struct place *place, int64_t limit);

/* Whether it is time to count: once a second, and sooner where the file
 * system lost as much as may still be used. */
int room_due(const struct room *r);

/* Counts: the bytes of the tree, and `held` beside it. */
int64_t room_count(struct room *r, int64_t held);

/* Whether a command may begin with so many bytes there: beyond the limit three
 * may, in a row, and who makes room goes on. */
int room_begin(struct room *r, int64_t bytes);

/* "[PREFIXthe work directory has grown ...]". */
void room_text(const struct room *r, const char *prefix, struct str *out);

#endif
