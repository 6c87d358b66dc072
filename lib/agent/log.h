/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of a rollout: events, one JSON object a line, appended before and
 * after whatever has an effect.  A rollout's state is what its events say.
 */
#ifndef CA_AGENT_LOG_H
#define CA_AGENT_LOG_H

#include "base/err.h"
#include "rec/json.h"

struct log {
	int fd, dirty;		/* dirty: not all of it is on the disk */
	struct str line;	/* of the event that is being written */
	struct jw w;
};

/* Opens or makes it, and locks it: two processes on one rollout are
 * CA_UNAVAILABLE. */
int log_open(struct log *l, const char *path, struct err *e);
void log_close(struct log *l);

/* Calls `each` for every event that is there; a last line that is torn is cut
 * off.  The number of events, or -1. */
int log_replay(struct log *l, int (*each)(void *ctx, const struct json *ev,
					  struct err *e),
	       void *ctx, struct err *e);

/* Begins an event: w is in an object with member "e".  log_commit writes the
 * line and hands the event to `each`, as replaying it would. */
struct jw *log_event(struct log *l, const char *name);
int log_commit(struct log *l, int (*each)(void *ctx, const struct json *ev,
					  struct err *e),
	       void *ctx, struct err *e);

/* To the disk, what is not there yet. */
int log_sync(struct log *l, struct err *e);

#endif
