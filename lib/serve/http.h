/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP side, by libmicrohttpd.
 */
#ifndef CA_SERVE_HTTP_H
#define CA_SERVE_HTTP_H

#include "serve/core.h"

struct http_opts {
	const char *host;		/* an address, or a name of one */
	int port;			/* 0: any */
	const char *key;		/* API key; NULL: none is asked for */
	int64_t body;			/* largest body in bytes */
	double patience_s;		/* for a request to come in whole, and
					 * for a client to take its answer */
	int connections;		/* at once */
};

struct http;

struct http *http_open(const struct http_opts *o, struct core *c,
		       struct err *e);

/* The port that it listens at. */
int http_port(const struct http *h);

/* To be called a few times a second: lets go of clients that are slow or
 * gone. */
void http_sweep(struct http *h);

/* Takes no new connections and orders. */
void http_quiesce(struct http *h);

/* Whether any connection has a request that is not answered to its end. */
int http_busy(struct http *h);

/* Orders that are being carried out. */
int http_orders(struct http *h);

/* Ends all connections; nothing may be live or ordered.  NULL is fine. */
void http_close(struct http *h);

#endif
