/* SPDX-License-Identifier: Apache-2.0
 *
 * One record: the line as it came, its tree, and the members that this
 * program sets.  Members that nobody sets leave with the bytes they came
 * with.  Schema: ca-record(5).
 */
#ifndef CA_REC_REC_H
#define CA_REC_REC_H

#include "base/arena.h"
#include "rec/json.h"
#include "rec/scan.h"

enum rec_kind { REC_OTHER, REC_TASK, REC_CANDIDATE, REC_TRAJECTORY,
		REC_METRIC, REC_PROMPT, REC_COMPLETION, REC_ERROR };

#define REC_V 1			/* schema version that we write */

struct rec_set;			/* a member to be written */

struct rec {
	struct arena arena;	/* lives as long as the record */
	const char *line;	/* in the arena, without LF; NULL: new */
	size_t len;
	struct json *root;	/* object; NULL for a new one */
	enum rec_kind kind;
	uint64_t lineno;	/* 0: not from a line */
	struct scan_top top;	/* members of the line */
	struct rec_set *sets;
};

void rec_init(struct rec *r);
void rec_release(struct rec *r);

/* Takes a copy of one line.  Fails (CA_DATAERR, *at the byte, the message
 * without it) when it is no JSON object with a string `kind` and integer
 * 1 <= `v` <= REC_V. */
int rec_parse(struct rec *r, const char *line, size_t len, size_t *at,
	      struct err *e);

/* The two halves of rec_parse, for records that may only pass through:
 * rec_open checks the line and sets `kind`, rec_tree builds `root`. */
int rec_open(struct rec *r, const char *line, size_t len, size_t *at,
	     struct err *e);
int rec_tree(struct rec *r, struct err *e);

/* Sets top-level member `key` to JSON text (checked and copied), replacing it
 * in place or appending it; rec_drop removes it.  rec_get sees only what came
 * in.  -1 when the text is no JSON or memory is short. */
int rec_set(struct rec *r, const char *key, const char *json, size_t len);
int rec_drop(struct rec *r, const char *key);
const struct json *rec_get(const struct rec *r, const char *key);

/* What people know it by: its name, else its id, else "?". */
const char *rec_name(const struct rec *r);
/* The text of a member as it will be written (set or original); NULL if
 * absent.  Not NUL-terminated; *len its length. */
const char *rec_text(const struct rec *r, const char *key, size_t *len);

/* Parses again from the text as it would be written, so that a next stage in
 * the same process sees what was set.  Nodes of the old tree are gone. */
int rec_refresh(struct rec *r, struct err *e);

/* Appends the line without LF.  -1 when memory is short or the line has become
 * longer than JSON_MAX_LINE, so that nobody could read it. */
int rec_write(const struct rec *r, struct str *out);

/* Frees the record and makes it as new, but keeps its arena's memory. */
void rec_reset(struct rec *r);

const char *rec_kind_name(enum rec_kind k);

/* Member prov {seconds, date} of a result field; began: now_ns() then. */
void rec_write_prov(struct jw *w, int64_t began);
/* The same, open for more members; the caller ends the object. */
void rec_begin_prov(struct jw *w, int64_t began);

/* Appends the error record that answers a line which is no record (without
 * LF); file may be NULL. */
void rec_error(struct str *out, const char *file, uint64_t line, size_t at,
	       const char *message);

/*
 * Identities (strings of lower-case hex; ca-record(5) says over what).
 * task: 32 hex digits of SHA-256 over the code; candidate: over the task's id
 * and the sorted (path, text) pairs.
 */
#define REC_ID_LEN 33
void task_id(const char *code, size_t len, char out[REC_ID_LEN]);
int candidate_id(const char *task, const struct json *files,
		 char out[REC_ID_LEN]);

/*
 * Puts right task.id and id of a candidate where they are there and are not
 * those of its code and files: readers go by them.  -1: no memory.
 */
int rec_true_ids(struct rec *r);

#endif
