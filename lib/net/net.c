/* SPDX-License-Identifier: Apache-2.0
 *
 * One attempt over libcurl's multi interface, which lets us wait for other
 * descriptors as well and keep limits of our own: curl's low-speed limit
 * counts whole seconds and cannot tell a slow model from a dead one.
 */
#include "net/net.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <curl/curl.h>

#include "base/io.h"
#include "base/sig.h"

#define IDLE_MAX 64
#define TICK_MS 500

struct net {
	CURL *easy;
	CURLM *multi;
	const struct net_idle *idle;
};

/* What one attempt has seen so far. */
struct attempt {
	struct net_reply *r;
	size_t cap;
	int connected, first;	/* a byte of the answer has come */
	int overflow;
	int64_t start, moved;	/* when something came last */
};

int net_start(struct err *e)
{
	if (curl_global_init(CURL_GLOBAL_ALL))
		return err_set(e, CA_UNAVAILABLE, "cannot start libcurl");
	return 0;
}

void net_stop(void)
{
	curl_global_cleanup();
}

int net_check_url(const char *url, struct err *e)
{
	CURLU *u = curl_url();
	int good = u && !curl_url_set(u, CURLUPART_URL, url, 0) &&
		   (starts_with(url, "http://") ||
		    starts_with(url, "https://"));

	curl_url_cleanup(u);
	return good ? 0 : err_set(e, CA_USAGE, "'%s' is no http or https URL",
				  url);
}

struct net *net_open(const struct net_idle *idle, struct err *e)
{
	struct net *n = calloc(1, sizeof(*n));

	if (n) {
		n->easy = curl_easy_init();
		n->multi = curl_multi_init();
		n->idle = idle;
	}
	if (n && n->easy && n->multi)
		return n;
	net_close(n);
	err_set(e, CA_SOFTWARE, "out of memory");
	return NULL;
}

void net_close(struct net *n)
{
	if (!n)
		return;
	curl_easy_cleanup(n->easy);
	curl_multi_cleanup(n->multi);
	free(n);
}

void net_reply_release(struct net_reply *r)
{
	str_release(&r->body);
}

static size_t take_body(char *p, size_t size, size_t count, void *ctx)
{
	struct attempt *a = ctx;
	size_t len = size * count;

	a->moved = now_ns();
	a->first = 1;
	if (len > a->cap - a->r->body.len) {
		a->overflow = 1;
		return 0;
	}
	return str_add(&a->r->body, p, len) ? 0 : len;
}

double net_retry_after(const char *value, size_t len)
{
	char text[64], *end;
	double s;
	time_t when;

	while (len && isspace((unsigned char)*value))
		value++, len--;
	snprintf(text, sizeof(text), "%.*s", (int)(len < 63 ? len : 63),
		 value);
	s = strtod(text, &end);
	while (isspace((unsigned char)*end))
		end++;
	if (end != text && !*end)
		return s >= 0 && s < 1e9 ? s : -1;
	when = curl_getdate(text, NULL);
	if (when == (time_t)-1)
		return -1;
	s = difftime(when, time(NULL));
	return s > 0 ? s : 0;
}

static size_t take_header(char *p, size_t size, size_t count, void *ctx)
{
	static const char name[] = "retry-after:";
	struct attempt *a = ctx;
	size_t len = size * count, i;

	a->moved = now_ns();
	a->first = 1;
	for (i = 0; i < sizeof(name) - 1 && i < len; i++)
		if (tolower((unsigned char)p[i]) != name[i])
			break;
	if (i == sizeof(name) - 1)
		a->r->retry_after = net_retry_after(p + i, len - i);
	return len;
}

static int set_options(CURL *c, const struct net_request *q,
		       struct curl_slist *headers, struct attempt *a)
{
	int bad = 0;

	curl_easy_reset(c);
	bad |= curl_easy_setopt(c, CURLOPT_URL, q->url) != CURLE_OK;
	bad |= curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") !=
	       CURLE_OK;
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
			 (long)(q->limits.connect_s * 1000));
	if (q->body) {
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body);
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)q->len);
	}
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, a);
	return bad ? -1 : 0;
}

static int give_up(struct net_reply *r, enum net_end how, const char *text)
{
	r->how = how;
	snprintf(r->text, sizeof(r->text), "%s", text);
	return 1;
}

/* The limit that has passed, if any.  Connecting has curl's; once that is
 * done the wait for the first byte begins. */
static int check_limits(CURL *c, const struct net_request *q,
			struct attempt *a)
{
	curl_off_t us = 0;
	double wait;

	curl_easy_getinfo(c, CURLINFO_PRETRANSFER_TIME_T, &us);
	if (us > 0 && !a->connected) {
		a->connected = 1;
		a->moved = now_ns();
	}
	wait = (double)(now_ns() - a->moved) / 1e9;

	if (sig_caught())
		return give_up(a->r, NET_SIGNAL, "interrupted");
	if (q->deadline && now_ns() >= q->deadline)
		return give_up(a->r, NET_DEADLINE, "out of time");
	if (a->first && wait > q->limits.idle_s)
		return give_up(a->r, NET_TIMEOUT, "the answer stopped coming");
	if (!a->first && a->connected && wait > q->limits.first_s)
		return give_up(a->r, NET_TIMEOUT, "no answer in time");
	return 0;
}

/* Milliseconds until a limit passes, at most a tick. */
static int tick(const struct net_request *q, const struct attempt *a)
{
	double limit = a->first ? q->limits.idle_s : q->limits.first_s;
	int64_t end = a->moved + (int64_t)(limit * 1e9);
	int ms;

	if (q->deadline && q->deadline < end)
		end = q->deadline;
	ms = deadline_ms(end);
	return ms > TICK_MS ? TICK_MS : ms;
}

/* One wait for curl's sockets, a signal and the others. */
static void wait_all(struct net *n, int ms)
{
	struct curl_waitfd w[IDLE_MAX + 1];
	struct pollfd p[IDLE_MAX];
	unsigned count = 0;
	size_t i, more = 0;

	if (sig_fd() >= 0)
		w[count++] = (struct curl_waitfd){ sig_fd(), CURL_WAIT_POLLIN,
						   0 };
	if (n->idle)
		more = n->idle->fds(n->idle->ctx, p, IDLE_MAX);
	for (i = 0; i < more; i++)
		w[count++] = (struct curl_waitfd){ p[i].fd,
			(short)((p[i].events & POLLIN ? CURL_WAIT_POLLIN : 0) |
				(p[i].events & POLLOUT ? CURL_WAIT_POLLOUT :
							 0)), 0 };
	curl_multi_poll(n->multi, w, count, ms, NULL);
	if (n->idle)
		n->idle->ready(n->idle->ctx);
}

static void conclude(CURL *c, CURLcode code, struct attempt *a)
{
	struct net_reply *r = a->r;
	long status = 0;

	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_OK) {
		r->how = NET_ANSWER;
		r->status = (int)status;
	} else if (a->overflow) {
		give_up(r, NET_TOO_LONG, "the answer is too long");
	} else if (code == CURLE_OPERATION_TIMEDOUT) {
		give_up(r, NET_CONNECT, "no connection in time");
	} else if (code == CURLE_COULDNT_CONNECT ||
		   code == CURLE_COULDNT_RESOLVE_HOST ||
		   code == CURLE_COULDNT_RESOLVE_PROXY ||
		   code == CURLE_SSL_CONNECT_ERROR ||
		   code == CURLE_PEER_FAILED_VERIFICATION) {
		give_up(r, NET_CONNECT, curl_easy_strerror(code));
	} else {
		give_up(r, NET_BROKEN, code == CURLE_UNSUPPORTED_PROTOCOL ?
			"the server does not speak HTTP" :
			curl_easy_strerror(code));
	}
}

/* A server that does not speak HTTP at all gives the same code as a URL of
 * another protocol; it was asked, though. */
static int is_no_url(CURL *easy, CURLcode code)
{
	long sent = 0;

	curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &sent);
	return code == CURLE_URL_MALFORMAT ||
	       (code == CURLE_UNSUPPORTED_PROTOCOL && !sent);
}

/* Until curl is done or a limit has passed. */
static int transfer(struct net *n, const struct net_request *q,
		    struct attempt *a, struct err *e)
{
	int running = 1, left;
	CURLMsg *m;

	for (;;) {
		if (curl_multi_perform(n->multi, &running))
			return err_set(e, CA_SOFTWARE, "libcurl failed");
		while ((m = curl_multi_info_read(n->multi, &left)))
			if (m->msg == CURLMSG_DONE) {
				CURLcode code = m->data.result;

				if (is_no_url(n->easy, code))
					return err_set(e, CA_USAGE, "'%s' is "
						       "no http or https URL",
						       q->url);
				conclude(n->easy, code, a);
				return 0;
			}
		if (check_limits(n->easy, q, a))
			return 0;
		wait_all(n, tick(q, a));
	}
}

int net_post(struct net *n, const struct net_request *q, struct net_reply *r,
	     struct err *e)
{
	struct attempt a = { .r = r, .cap = q->limits.cap };
	/* A large request asks for no "100 Continue", which would be taken for
	 * the answer's first byte. */
	struct curl_slist *list = curl_slist_append(NULL, "Expect:"), *more;
	const char *const *h;
	int rc = -1;

	str_reset(&r->body);
	r->body.cap = q->limits.cap;
	r->status = 0;
	r->retry_after = -1;
	r->text[0] = '\0';
	a.start = a.moved = now_ns();
	if (!list)
		goto out;
	for (h = q->headers; h && *h; h++) {
		more = curl_slist_append(list, *h);
		if (!more)
			goto out;
		list = more;
	}
	if (set_options(n->easy, q, list, &a) ||
	    curl_multi_add_handle(n->multi, n->easy))
		goto out;
	rc = transfer(n, q, &a, e);
	curl_multi_remove_handle(n->multi, n->easy);
	r->wall_ns = now_ns() - a.start;
out:
	if (rc && (!e || !e->code))
		err_set(e, CA_SOFTWARE, "cannot prepare a request");
	curl_slist_free_all(list);
	return rc;
}

int net_wait(struct net *n, double seconds, int64_t deadline)
{
	int64_t end = deadline_in(seconds);
	int ms;

	if (deadline && deadline < end)
		end = deadline;
	while ((ms = deadline_ms(end)) > 0 && !sig_caught())
		wait_all(n, ms > TICK_MS ? TICK_MS : ms);
	if (sig_caught() || (deadline && now_ns() >= deadline))
		return -1;
	return 0;
}
