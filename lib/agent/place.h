/* SPDX-License-Identifier: Apache-2.0
 *
 * The work directory of a rollout, as the model sees it (/work) and as it
 * lies on disk.  No name leads out of it: every open goes through openat2,
 * beneath its root, whatever links a command has left there.
 */
#ifndef CA_AGENT_PLACE_H
#define CA_AGENT_PLACE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"

#define PLACE_SHOWN "/work"
#define PLACE_OUTPUT ".output"		/* where long outputs are kept */
#define PLACE_FIXED_MAX 33
#define PLACE_BEYOND (INT64_MAX / 2)	/* size of what cannot be counted */

struct place {
	char path[4096];	/* on disk, absolute and real */
	int fd;			/* its root */
	/* Top-level names that the model may not touch; PLACE_OUTPUT too. */
	char fixed[PLACE_FIXED_MAX][64];
	size_t nfixed;
};

/*
 * What is the same in all work directories of a run: utils/ with the commands
 * of the released workdir, and everything of the skill directory but
 * single-turn.md.  Lies in dir/.fixed-DIGEST, whose path goes to out; made
 * unless it is there, and then whole or not at all.
 */
int place_fixed(const char *dir, const char *skill, char out[4096],
		struct err *e);

/*
 * Fills a new directory `path` (its parent exists): model.py from `code`, what
 * is in `fixed` (as links, where that can be), kernels/ and PLACE_OUTPUT.  As
 * root what is fixed belongs to root, the rest to uid, and the root is sticky.
 */
int place_make(const char *path, const char *code, const char *fixed,
	       uid_t uid, struct err *e);

/* Opens one that is there; `fixed` as it was made with. */
int place_open(struct place *p, const char *path, const char *fixed,
	       struct err *e);
void place_close(struct place *p);

/* As root gives what does not belong to root to uid (after a restart). */
int place_give(const char *path, uid_t uid, struct err *e);

/* The name below the root of a path as the model gives it, absolute below
 * PLACE_SHOWN or relative to it; "." for the root.  NULL with `e` when it
 * lies elsewhere.  Points into path. */
const char *place_below(const char *path, struct err *e);

/* Opens a name beneath the root (openat2); -1 with `e` worded for the model.
 * FIFOs and devices are never waited for. */
int place_file(const struct place *p, const char *name, int flags,
	       unsigned mode, struct err *e);

/* The directory that a name lies in, made with those on the way if `make`;
 * *last is its last component.  Refuses names without one. */
int place_parent(const struct place *p, const char *name, int make,
		 const char **last, struct err *e);

/* Whether this is a top-level name that may not be touched. */
int place_is_fixed(const struct place *p, const char *name, size_t len);

/* -1 with `e` when `last` in the directory dir may not be changed. */
int place_writable(const struct place *p, int dir, const char *last,
		   struct err *e);

/* Replaces or makes a file, whole. */
int place_write(const struct place *p, const char *name, const void *data,
		size_t len, struct err *e);

/* Reads a regular file of at most cap bytes. */
int place_read(const struct place *p, const char *name, size_t cap,
	       struct str *out, struct err *e);

/*
 * A digest of what the model may change in the tree (names, kinds, sizes, and
 * the bytes of files up to 1 MiB; larger ones by time), without PLACE_OUTPUT,
 * and its size in bytes with it.  Either may be NULL.  Of more than 50,000
 * entries, directories in 32 others and those that cannot be read the size is
 * PLACE_BEYOND.
 */
int place_digest(const struct place *p, char hex_out[HASH_HEX],
		 int64_t *bytes, struct err *e);

#endif
