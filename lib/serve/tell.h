/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens become text, and text an answer.
 */
#ifndef CA_SERVE_TELL_H
#define CA_SERVE_TELL_H

#include "serve/query.h"

/*
 * Writes what is new to q->news: of a stream what is certain, else the whole
 * answer when nothing runs any more.  For the teller's thread, without the
 * lock, since it may take a while and who sends answers has others to send.
 * -1: no memory.
 */
int tell_write(struct query *q);

#endif
