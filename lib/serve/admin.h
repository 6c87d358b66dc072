/* SPDX-License-Identifier: Apache-2.0
 *
 * What a server says of itself, and orders to it.
 */
#ifndef CA_SERVE_ADMIN_H
#define CA_SERVE_ADMIN_H

#include "serve/core.h"

/* Whether there is something to GET at this path. */
int admin_is_page(const struct core *c, const char *path);

/* Answers a GET of a page: the status, the body and its type. */
int admin_get(struct core *c, const char *path, struct str *out,
	      const char **type);

/* Whether a POST to this path is an order. */
int admin_is_order(const char *path);

/* Carries it out, which takes a while: the status, and the body. */
int admin_order(struct core *c, const char *path, const char *body,
		size_t len, struct str *out);

/* A line for people: what is being done. */
void admin_status(struct core *c, struct str *out);

#endif
