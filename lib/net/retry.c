/* SPDX-License-Identifier: Apache-2.0
 *
 * When to ask again, and how long to wait before.
 */
#include "net/net.h"

#include "base/sig.h"

/* A gateway or a server that is overloaded or starting, whatever is asked. */
static int speaks_of_load(int status)
{
	return status == 502 || status == 503 || status == 504 ||
	       status == 529;
}

int net_may_retry(const struct net_reply *r, int before)
{
	int s = r->status;

	if (r->how == NET_CONNECT || r->how == NET_TIMEOUT ||
	    r->how == NET_BROKEN)
		return 1;
	if (r->how != NET_ANSWER)
		return 0;
	if (s == 408 || s == 425 || s == 429 || speaks_of_load(s))
		return 1;
	return s >= 500 && s != before;
}

double net_backoff(const struct net_policy *p, int n, double retry_after)
{
	double most = p->base_s, wait;
	int i;

	for (i = 2; i < n && most < p->cap_s; i++)
		most *= 2;
	if (most > p->cap_s)
		most = p->cap_s;
	wait = most * rng_unit(p->rng);
	return wait > retry_after ? wait : retry_after;
}

static int attempt(struct net *n, const struct net_request *q,
		   const struct net_policy *p, struct net_reply *r,
		   struct err *e)
{
	if (net_post(n, q, r, e))
		return -1;
	if (p->accept && r->how == NET_ANSWER && r->status / 100 == 2 &&
	    p->accept(p->ctx, r))
		r->how = NET_BROKEN;
	return 0;
}

int net_call(struct net *n, const struct net_request *q,
	     const struct net_policy *p, struct net_reply *r, struct err *e)
{
	int before = 0;
	double wait;

	for (r->attempts = 1;; r->attempts++) {
		if (attempt(n, q, p, r, e))
			return -1;
		if (r->attempts >= p->attempts || !net_may_retry(r, before))
			return 0;
		before = r->status;
		wait = net_backoff(p, r->attempts + 1, r->retry_after);
		if (p->note)
			p->note(p->ctx, r, wait);
		if (net_wait(n, wait, q->deadline)) {
			r->how = sig_caught() ? NET_SIGNAL : NET_DEADLINE;
			return 0;
		}
	}
}
