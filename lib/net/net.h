/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP requests with a deadline on every wait (libcurl).  One attempt is
 * net_post; net_call repeats it as a policy says.
 */
#ifndef CA_NET_NET_H
#define CA_NET_NET_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rand.h"
#include "base/str.h"

struct net;			/* one connection, kept open between calls */

/* Other descriptors that a program serves while it waits for an answer. */
struct net_idle {
	/* Fills p with what to wait for; how many (at most max). */
	size_t (*fds)(void *ctx, struct pollfd *p, size_t max);
	/* Called when one of them is ready, and at least twice a second. */
	void (*ready)(void *ctx);
	void *ctx;
};

struct net_limits {		/* seconds; all > 0 */
	double connect_s;	/* until connected, TLS included */
	double first_s;		/* from then on until the first byte */
	double idle_s;		/* between two pieces of the answer */
	size_t cap;		/* bytes of the answer's body */
};

struct net_request {
	const char *url;	/* http or https */
	const char *const *headers;	/* "Name: value", NULL-terminated */
	const void *body;	/* NULL: GET */
	size_t len;
	struct net_limits limits;
	int64_t deadline;	/* of all attempts, now_ns() scale; 0: none */
};

enum net_end {
	NET_ANSWER,		/* a whole answer; see status */
	NET_CONNECT,		/* nobody there: refused, no such name, TLS */
	NET_TIMEOUT,		/* one of the limits; text says which */
	NET_BROKEN,		/* the connection broke off */
	NET_TOO_LONG,		/* more than `cap` bytes */
	NET_DEADLINE,		/* of the request */
	NET_SIGNAL		/* sig_caught */
};

struct net_reply {
	enum net_end how;
	int status;		/* HTTP's; 0 without NET_ANSWER */
	struct str body;	/* as it came; kept between calls */
	double retry_after;	/* seconds, as the server asked; < 0: not */
	int64_t wall_ns;	/* of the last attempt */
	int attempts;		/* set by net_call */
	char text[256];		/* for people, unless NET_ANSWER */
};

/*
 * What libcurl needs once a process, before threads or forks: children share
 * its pages.  0, or -1 with CA_UNAVAILABLE.
 */
int net_start(struct err *e);
void net_stop(void);

/* CA_USAGE unless it is a URL of http or https with a host. */
int net_check_url(const char *url, struct err *e);

/* idle may be NULL, else it outlives the net.  NULL only without memory. */
struct net *net_open(const struct net_idle *idle, struct err *e);
void net_close(struct net *n);

/*
 * One attempt: POST (GET without a body).  Redirects are not followed: a 3xx
 * is an answer.  -1 only when the request itself is bad (CA_USAGE: the URL)
 * or memory is short; everything the network does is in r->how.
 */
int net_post(struct net *n, const struct net_request *q, struct net_reply *r,
	     struct err *e);

struct net_policy {
	int attempts;		/* at most, >= 1 */
	double base_s, cap_s;	/* of exponential backoff, full jitter */
	struct rng *rng;
	/* Looks at a whole 2xx answer: 0 good; -1 it is none, having put why
	 * into r->text, and is then NET_BROKEN.  NULL: all are good. */
	int (*accept)(void *ctx, struct net_reply *r);
	/* Hears of each failed attempt that will be repeated, and after how
	 * many seconds; may be NULL. */
	void (*note)(void *ctx, const struct net_reply *r, double wait);
	void *ctx;
};

/*
 * Whether the same request may do better later: a fault on the way (not
 * NET_TOO_LONG), 408, 425, 429 or 5xx.  `before` is the status of the attempt
 * before this one: 500, 501 and other 5xx that speak of the request and not
 * of the server's load (502, 503, 504, 529) are final the second time.
 */
int net_may_retry(const struct net_reply *r, int before);

/* Seconds to wait before attempt number n (2 for the first repetition). */
double net_backoff(const struct net_policy *p, int n, double retry_after);

/* Waits, serving `idle`: 0; -1 when a signal or the deadline came first. */
int net_wait(struct net *n, double seconds, int64_t deadline);

/*
 * Attempts until an answer is final, the policy is exhausted, or deadline or
 * signal come.  Returns as net_post.
 */
int net_call(struct net *n, const struct net_request *q,
	     const struct net_policy *p, struct net_reply *r, struct err *e);

void net_reply_release(struct net_reply *r);

/* The value of Retry-After in seconds: a number, or an HTTP date against the
 * clock; < 0 when it is neither. */
double net_retry_after(const char *value, size_t len);

#endif
