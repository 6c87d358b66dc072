/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts that a judge has given, one file a candidate and way of judging in a
 * folder of the user's: models say the same again and again.  What is kept is a
 * signed record, and is offered to the judge as one that comes with results is:
 * whether they are believed is his to say.
 */
#ifndef CA_AGENT_VERDICTS_H
#define CA_AGENT_VERDICTS_H

#include "rec/rec.h"

/* Gives r the fields that were kept of its candidate, if any.  `how`: a word
 * for the way of judging.  dir may be NULL: nothing is kept. */
int verdicts_offer(const char *dir, const char *how, struct rec *r,
		   struct err *e);

/* Keeps what r got, unless that says nothing of the candidate. */
int verdicts_keep(const char *dir, const char *how, struct rec *r,
		  struct err *e);

#endif
