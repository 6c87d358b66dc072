/* SPDX-License-Identifier: Apache-2.0
 *
 * From a record to what is judged, and the parts that result fields share.
 * Not for other modules.
 */
#ifndef CA_JUDGE_CHAIN_H
#define CA_JUDGE_CHAIN_H

#include "judge/session.h"

/* A candidate, taken out of its record. */
struct subject {
	const char *task;	/* model.py */
	size_t tasklen;
	char task_id[33];
	struct program program;	/* of the candidate; complete after build */
	char object[4096];
	struct str launchers;
	struct json *build;	/* the build field as it stands */
};

/* Reads the record; points into it.  CA_DATAERR when it is no candidate with
 * a task's code and files, or names unknown rules.  They become j's. */
int chain_subject(struct judge *j, const struct rec *r, struct subject *s,
		  struct err *e);
void chain_release(struct subject *s);

/*
 * Makes sure that `build` stands in r and its object is at hand; completes
 * s->program.  The build's status, ST_NONE with `e` when the tool failed.
 */
enum status chain_build(struct judge *j, struct rec *r, struct subject *s,
			struct err *e);

/* A field as it stands (set or original), parsed; NULL when absent.  The
 * caller frees. */
struct json *chain_field(const struct rec *r, const char *name);

/* Members device, model, torch, jail, version of a result field, and whether
 * a field has them as they are here (a stronger jail is fine). */
void chain_write_common(struct judge *j, const char *version, struct jw *w);
int chain_same_common(struct judge *j, const char *version,
		      const struct json *field);

/* Member prov {seconds, date}, unless --no-prov. */
void chain_write_prov(struct judge *j, int64_t began, struct jw *w);

/*
 * Makes an attempt, and others after a fault, when what broke has been made
 * whole: infra_error is never a refuge.  A second fault with the candidate's
 * code loaded is the candidate's, `crashed`; faults before that (a host that
 * was killed while it started, a task that ends its process) count for
 * nothing against it, and the third ends the judging as it is.  Where a GPU's
 * memory was short, once more without others' records beside it, which may
 * have had it; once more too where a slow machine would look the same.  `f`
 * is part of the result.  -1 when no attempt can help: no host starts here
 * (CA_UNAVAILABLE), the device is gone, or an interrupt came (CA_TEMPFAIL).
 */
typedef void chain_attempt(struct judge *j, const struct subject *s,
			   void *result);
int chain_twice(struct judge *j, chain_attempt *attempt,
		const struct subject *s, void *result, struct fail *f,
		struct err *e);

extern const char *const chain_uses_build[];	/* {"build", NULL} */
extern const char *const chain_uses_verify[];	/* {"build", "verify", NULL} */

#endif
