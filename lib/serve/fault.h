/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a request got no answer, in OpenAI's words.
 */
#ifndef CA_SERVE_FAULT_H
#define CA_SERVE_FAULT_H

#include "base/err.h"
#include "base/str.h"

struct fault {
	int status;		/* of HTTP; 0: none */
	const char *code;	/* static, for programs; or NULL */
	char param[64];		/* the member it is about; "": none */
	int retry_s;		/* Retry-After; 0: none */
	char text[1024];
};

/* Always -1.  `param` may be NULL. */
int fault_set(struct fault *f, int status, const char *code,
	      const char *param, const char *fmt, ...) CA_PRINTF(5, 6);

/* What an error of the engine or of its readers is to a client. */
int fault_of(struct fault *f, const struct err *e, const char *param);

/* 503: the server ends. */
int fault_shutdown(struct fault *f);

/* {"error":{...}} */
void fault_write(const struct fault *f, struct str *out);

#endif
