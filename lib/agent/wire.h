/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between a rollout and its parent over a stream socket: a length, the
 * number of the question, which its answer has too, then that many bytes.
 */
#ifndef CA_AGENT_WIRE_H
#define CA_AGENT_WIRE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define WIRE_MAX ((size_t)32 << 20)

/* What a rollout wants of a judge, as member `ask` of the candidate. */
enum ask { ASK_COMPILE, ASK_VERIFY, ASK_PROFILE, ASK_REFERENCE,
	     ASK_REWARD, ASK_COUNT, ASK_NONE = -1 };
const char *ask_name(enum ask s);
enum ask ask_parse(const char *name);	/* NULL: ASK_NONE */

/* Instead of a question: the rollout has begun to work. */
#define WIRE_BEGUN 0

struct wire_msg {
	uint32_t n;		/* of the question, from 1 */
	char *p;
	size_t len;
};

/* Sends all of it; blocks. */
int wire_send(int fd, uint32_t n, const void *p, size_t len, struct err *e);

/* Appends a message with its head to a buffer that is sent later. */
int wire_put(struct str *out, uint32_t n, const void *p, size_t len);

/*
 * Reads what is there (the socket may block or not) into `in`.  1 and the
 * message once one is complete, which wire_drop removes; 0 not yet; -1 end of
 * file, an error or a message that is too long.
 */
int wire_read(int fd, struct str *in, struct wire_msg *m);
/* A complete message that was read before, without reading more. */
int wire_next(struct str *in, struct wire_msg *m);
void wire_drop(struct str *in);

#endif
