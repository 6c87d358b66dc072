/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether what a judge writes is a verdict, and on what it was asked about: a
 * judge may be any command.
 */
#ifndef CA_AGENT_ANSWER_H
#define CA_AGENT_ANSWER_H

#include "agent/wire.h"
#include "rec/rec.h"

/* What was asked. */
struct question {
	enum ask stage;
	char id[REC_ID_LEN + 2];	/* the candidate's, in quotes; or "" */
	const char *rules;		/* NULL: none */
};

/* As it stands in the record; "" when it is no candidate's. */
void answer_id(const struct rec *r, char id[REC_ID_LEN + 2]);

/*
 * NULL when r, as it was parsed, is a verdict on the question: kind, id, task,
 * rules and files are those that were sent, the field that was asked for has
 * a status, and the reward is one of its scheme that this status allows.
 * Otherwise why it is none; that may point into r.
 */
const char *answer_fault(const struct question *q, struct rec *r);

/* Whether a graded candidate has no reward because somebody else used the
 * device, or because the judge itself failed. */
int answer_contended(const struct rec *r);
int answer_infra(const struct rec *r);

#endif
