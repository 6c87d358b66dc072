/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that waits for its answer is suspended and resumed when there
 * are news.  libmicrohttpd looks at no socket meanwhile, so http_sweep does.
 */
#define _GNU_SOURCE
#include "serve/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "serve/admin.h"
#include "serve/fault.h"
#include "serve/query.h"

#define STREAM_BLOCK 16384
#define POOL_BYTES ((size_t)128 << 10)	/* a connection's, half of it to read
					 * into; touched as far as needed */

struct visit;

struct peer {				/* a connection */
	struct http *h;
	int fd;
	int64_t since;			/* it opened, or had its last answer */
	struct visit *visit;		/* its request, if there is one */
	struct peer *before, *after;
};

struct http {
	struct http_opts o;
	struct core *c;
	struct MHD_Daemon *daemon;
	int port;
	atomic_int quiet;
	pthread_mutex_t lock;		/* of what follows */
	struct peer *peers;
	int orders;
};

/* A request. */
struct visit {
	struct http *h;
	struct MHD_Connection *conn;
	struct peer *peer;
	struct query *query;		/* for completions */
	struct task order;		/* or an order: */
	char path[32];
	struct str body, answer;
	int status;			/* not 0: the answer is there */
	int is_order, too_long;
	int started;			/* with the lock of h */
	const char *allow;		/* methods, where they are a fault */
	int64_t since;
	pthread_mutex_t lock;		/* of what follows */
	int suspended, news, lost;
};

/* From any thread: there is something to send. */
static void wake(void *ctx)
{
	struct visit *v = ctx;

	pthread_mutex_lock(&v->lock);
	v->news = 1;
	if (v->suspended) {
		v->suspended = 0;
		MHD_resume_connection(v->conn);
	}
	pthread_mutex_unlock(&v->lock);
}

/* Waits for news, unless there are some since `news` was cleared: then -1. */
static int suspend(struct visit *v)
{
	int news;

	pthread_mutex_lock(&v->lock);
	news = v->news;
	if (!news) {
		v->suspended = 1;
		MHD_suspend_connection(v->conn);
	}
	pthread_mutex_unlock(&v->lock);
	return news ? -1 : 0;
}

/* Whether the client is known to be gone. */
static int clear_news(struct visit *v)
{
	int lost;

	pthread_mutex_lock(&v->lock);
	v->news = 0;
	lost = v->lost;
	pthread_mutex_unlock(&v->lock);
	return lost;
}

static enum MHD_Result send_response(struct visit *v, int status,
				     struct MHD_Response *r,
				     const char *type, int retry_s)
{
	enum MHD_Result rc;
	char text[16];

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (retry_s) {
		snprintf(text, sizeof text, "%d", retry_s);
		MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, text);
	}
	if (status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
					"Bearer");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, v->allow);
	if (v->h->quiet)
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION,
					"close");
	rc = MHD_queue_response(v->conn, (unsigned)status, r);
	MHD_destroy_response(r);
	core_count(v->h->c, status);
	return rc;
}

/* Sends a malloc'd body. */
static enum MHD_Result send_body(struct visit *v, int status, char *body,
				 size_t len, const char *type, int retry_s)
{
	struct MHD_Response *r;

	if (!body)
		return MHD_NO;
	r = MHD_create_response_from_buffer(len, body,
					    MHD_RESPMEM_MUST_FREE);
	if (!r)
		free(body);
	return send_response(v, status, r, type, retry_s);
}

static enum MHD_Result send_fault(struct visit *v, const struct fault *f)
{
	struct str s = STR_INIT;
	size_t len;

	fault_write(f, &s);
	len = s.len;
	return send_body(v, f->status, str_detach(&s), len,
			 "application/json", f->retry_s);
}

static const char *header(const struct visit *v, const char *name)
{
	return MHD_lookup_connection_value(v->conn, MHD_HEADER_KIND, name);
}

/* In the same time wherever they differ. */
static int equal(const char *given, const char *key)
{
	size_t len = strlen(given), n = strlen(key);
	unsigned d = len != n;

	for (size_t i = 0; i < n; i++)
		d |= (unsigned char)given[i < len ? i : 0] ^
		     (unsigned char)key[i];
	return !d;
}

static int may_enter(const struct visit *v, const char *url)
{
	const char *given;

	if (!v->h->o.key || !strcmp(url, "/health"))
		return 1;
	given = header(v, MHD_HTTP_HEADER_AUTHORIZATION);
	return given && !strncasecmp(given, "Bearer ", 7) &&
	       equal(given + 7, v->h->o.key);
}

static int64_t stated_length(const struct visit *v)
{
	const char *s = header(v, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return s ? strtoll(s, NULL, 10) : 0;
}

/* What the headers say of where a body ends. */
struct ends {
	const char *len;	/* the first one's */
	int lens, chunked, other;	/* lens that differ count as two */
};

static enum MHD_Result look_at_end(void *ctx, enum MHD_ValueKind kind,
				   const char *name, const char *value)
{
	struct ends *x = ctx;

	(void)kind;
	if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
		x->lens += !x->lens || !value || strcmp(x->len, value);
		x->len = x->len ? x->len : value ? value : "";
	} else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
		if (value && !strcasecmp(value, "chunked"))
			x->chunked++;
		else
			x->other++;
	}
	return MHD_YES;
}

/* Whoever passes requests on may see the end of such a body elsewhere than we
 * do, and then take what one client says for another's request; and a body
 * that is packed is not read here. */
static int is_unclear(const struct visit *v, struct fault *f)
{
	const char *packed = header(v, MHD_HTTP_HEADER_CONTENT_ENCODING);
	struct ends x = { 0 };

	MHD_get_connection_values(v->conn, MHD_HEADER_KIND, look_at_end, &x);
	if (x.other)
		return fault_set(f, 400, "invalid_encoding", NULL, "a body of "
				 "another Transfer-Encoding than 'chunked' is "
				 "not read here");
	if (x.lens + x.chunked > 1)
		return fault_set(f, 400, "invalid_length", NULL, "the length "
				 "of the body is said in two ways");
	if (packed && strcasecmp(packed, "identity"))
		return fault_set(f, 415, "unsupported_encoding", NULL, "a "
				 "body of Content-Encoding '%.64s' is not "
				 "read here", packed);
	return 0;
}

/* Without a key only a browser's own rules would keep any page that somebody
 * looks at from giving orders; programs send no origin. */
static int from_a_page(const struct visit *v, const char *url)
{
	return !v->h->o.key && strcmp(url, "/health") &&
	       header(v, MHD_HTTP_HEADER_ORIGIN);
}

static int too_long(const struct visit *v, struct fault *f)
{
	return fault_set(f, 413, "request_too_large", NULL, "the body is "
			 "longer than %lld bytes", (long long)v->h->o.body);
}

/* What a path is for; -1 with a fault when the request is refused. */
static int route(struct visit *v, const char *url, const char *method,
		 struct fault *f)
{
	int chat = !strcmp(url, "/v1/chat/completions");
	int text = !strcmp(url, "/v1/completions");
	int order = admin_is_order(url), page = admin_is_page(v->h->c, url);
	int post = !strcmp(method, MHD_HTTP_METHOD_POST);
	int get = !strcmp(method, MHD_HTTP_METHOD_GET) ||
		  !strcmp(method, MHD_HTTP_METHOD_HEAD);

	if (!may_enter(v, url))
		return fault_set(f, 401, "invalid_api_key", NULL, "this "
				 "server wants its API key as a bearer token");
	if (from_a_page(v, url))
		return fault_set(f, 403, "origin_not_allowed", NULL, "web "
				 "pages may ask nothing of a server without a "
				 "key");
	if (is_unclear(v, f))
		return -1;
	if (stated_length(v) > v->h->o.body)
		return too_long(v, f);
	if (!chat && !text && !order && !page)
		return fault_set(f, 404, "not_found", NULL, "there is nothing "
				 "at '%.200s'", url);
	v->allow = page ? "GET, HEAD" : "POST";
	if (page ? !get : !post)
		return fault_set(f, 405, "method_not_allowed", NULL,
				 "'%.200s' wants %s", url, v->allow);
	if (order)
		strcpy(v->path, url);
	v->is_order = order;
	if (order || page)
		return 0;
	v->query = query_new(v->h->c, chat ? WANT_CHAT : WANT_TEXT,
			     (uint64_t)(uintptr_t)v->peer, wake, v);
	if (!v->query)
		return fault_set(f, 500, NULL, NULL, "no memory");
	query_expect(v->query, stated_length(v));
	return 0;
}

static struct visit *new_visit(struct http *h, struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn,
				MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct visit *v = calloc(1, sizeof *v);

	if (!v || !info || !info->socket_context) {
		free(v);
		return NULL;
	}
	pthread_mutex_init(&v->lock, NULL);
	v->h = h;
	v->conn = conn;
	v->body.cap = JSON_MAX_LINE;
	v->since = now_ns();
	v->peer = info->socket_context;
	pthread_mutex_lock(&h->lock);
	v->peer->visit = v;
	pthread_mutex_unlock(&h->lock);
	return v;
}

static enum MHD_Result take_body(struct visit *v, const char *p, size_t len)
{
	int64_t have = (int64_t)(v->query ? v->query->body.len : v->body.len);
	int rc;

	/* Its length was not said: nothing can be answered before its end. */
	v->too_long |= have + (int64_t)len > v->h->o.body;
	if (v->too_long)
		return MHD_YES;
	rc = v->query ? query_add(v->query, p, len) :
	     str_add(&v->body, p, len);
	return rc ? MHD_NO : MHD_YES;
}

static enum MHD_Result answer_get(struct visit *v, const char *url)
{
	struct str s = STR_INIT;
	const char *type;
	int status = admin_get(v->h->c, url, &s, &type);
	size_t len = s.len;

	return send_body(v, status, str_detach(&s), len, type, 0);
}

static void run_order(struct task *t)
{
	struct visit *v = (struct visit *)(void *)
		((char *)t - offsetof(struct visit, order));
	struct http *h = v->h;
	int status = admin_order(h->c, v->path, v->body.buf ?
				 v->body.buf : "", v->body.len, &v->answer);

	/* It cannot end, and be freed, before the lock of h is left. */
	pthread_mutex_lock(&h->lock);
	h->orders--;
	pthread_mutex_lock(&v->lock);
	v->status = status;
	pthread_mutex_unlock(&v->lock);
	wake(v);
	pthread_mutex_unlock(&h->lock);
}

static void start_order(struct visit *v)
{
	struct http *h = v->h;
	struct fault f;
	int quiet;

	v->order.run = run_order;
	pthread_mutex_lock(&h->lock);
	quiet = h->quiet;
	h->orders += !quiet;
	pthread_mutex_unlock(&h->lock);
	if (!quiet) {
		core_do(h->c, &h->c->orders, &v->order);
		return;
	}
	fault_shutdown(&f);
	fault_write(&f, &v->answer);
	v->status = f.status;
}

static void start(struct visit *v)
{
	pthread_mutex_lock(&v->h->lock);
	v->started = 1;
	pthread_mutex_unlock(&v->h->lock);
	if (v->query)
		query_start(v->query);
	else
		start_order(v);
}

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct visit *v = cls;
	ssize_t n;

	(void)pos;
	do {
		if (clear_news(v))
			return MHD_CONTENT_READER_END_WITH_ERROR;
		n = query_read(v->query, buf, max);
		if (n < 0)
			return n < -1 ? MHD_CONTENT_READER_END_WITH_ERROR :
			       MHD_CONTENT_READER_END_OF_STREAM;
	} while (n == 0 && suspend(v));
	return n;
}

static enum MHD_Result open_stream(struct visit *v)
{
	return send_response(v, 200, MHD_create_response_from_callback(
			MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, v, NULL),
			"text/event-stream; charset=utf-8", 0);
}

/* The state of an order: its answer, or 0 when there is none yet. */
static int order_status(struct visit *v)
{
	int status;

	pthread_mutex_lock(&v->lock);
	status = v->status;
	pthread_mutex_unlock(&v->lock);
	return status;
}

static enum MHD_Result send_order(struct visit *v, int status)
{
	size_t len = v->answer.len;

	return send_body(v, status, str_detach(&v->answer), len,
			 "application/json", 0);
}

/* The request is whole, or there are news: sends what there is, or waits. */
static enum MHD_Result go_on(struct visit *v)
{
	int status, retry_s;
	size_t len;
	char *body;

	do {
		if (clear_news(v) && v->query)
			return MHD_NO;
		if (v->is_order) {
			status = order_status(v);
			if (status)
				return send_order(v, status);
			continue;
		}
		switch (query_state(v->query, &status, &retry_s, &body,
				    &len)) {
		case QUERY_ANSWER:
			return send_body(v, status, body, len,
					 "application/json", retry_s);
		case QUERY_STREAM:
			return open_stream(v);
		case QUERY_BODY:
		case QUERY_WORK:
			break;
		}
	} while (suspend(v));
	return MHD_YES;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *conn,
			      const char *url, const char *method,
			      const char *version, const char *data,
			      size_t *len, void **ctx)
{
	struct visit *v = *ctx;
	struct fault f = { 0 };
	enum MHD_Result rc;

	(void)version;
	if (!v) {
		v = new_visit(cls, conn);
		*ctx = v;
		if (!v)
			return MHD_NO;
		return route(v, url, method, &f) ? send_fault(v, &f) :
		       MHD_YES;
	}
	if (*len) {
		rc = take_body(v, data, *len);
		*len = 0;
		return rc;
	}
	if (v->too_long) {
		too_long(v, &f);
		return send_fault(v, &f);
	}
	if (!v->query && !v->is_order)
		return answer_get(v, url);
	if (!v->started)
		start(v);
	return go_on(v);
}

static void completed(void *cls, struct MHD_Connection *conn, void **ctx,
		      enum MHD_RequestTerminationCode why)
{
	struct http *h = cls;
	struct visit *v = *ctx;

	(void)conn;
	(void)why;
	if (!v)
		return;
	pthread_mutex_lock(&h->lock);
	v->peer->visit = NULL;
	v->peer->since = now_ns();
	pthread_mutex_unlock(&h->lock);
	if (v->query)
		query_leave(v->query);
	str_release(&v->body);
	str_release(&v->answer);
	pthread_mutex_destroy(&v->lock);
	free(v);
	*ctx = NULL;
}

static void peer_opens(struct http *h, struct MHD_Connection *conn,
		       void **socket_context)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn,
				MHD_CONNECTION_INFO_CONNECTION_FD);
	struct peer *p = calloc(1, sizeof *p);

	*socket_context = p;
	if (!p)
		return;
	p->h = h;
	p->fd = info ? info->connect_fd : -1;
	p->since = now_ns();
	pthread_mutex_lock(&h->lock);
	p->after = h->peers;
	if (h->peers)
		h->peers->before = p;
	h->peers = p;
	pthread_mutex_unlock(&h->lock);
}

static void peer_closes(struct http *h, struct peer *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&h->lock);
	*(p->before ? &p->before->after : &h->peers) = p->after;
	if (p->after)
		p->after->before = p->before;
	pthread_mutex_unlock(&h->lock);
	free(p);
}

static void notify(void *cls, struct MHD_Connection *conn,
		   void **socket_context,
		   enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		peer_opens(cls, conn, socket_context);
	else
		peer_closes(cls, *socket_context);
}

/* Whether the other side has closed. */
static int hung_up(int fd)
{
	char c;
	ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* With the lock of h, so that its visit does not end meanwhile. */
static void look_at(struct peer *p, int64_t latest)
{
	struct visit *v = p->visit;

	if (!v || !v->started) {
		/* Idle, or its request comes in drops. */
		if ((v ? v->since : p->since) < latest)
			shutdown(p->fd, SHUT_RDWR);
		return;
	}
	pthread_mutex_lock(&v->lock);
	if (v->suspended && v->query && hung_up(p->fd)) {
		v->lost = 1;
		v->suspended = 0;
		MHD_resume_connection(v->conn);
	}
	pthread_mutex_unlock(&v->lock);
}

void http_sweep(struct http *h)
{
	int64_t latest = deadline_in(0) - (int64_t)(h->o.patience_s * 1e9);

	pthread_mutex_lock(&h->lock);
	for (struct peer *p = h->peers; p; p = p->after)
		look_at(p, latest);
	pthread_mutex_unlock(&h->lock);
}

int http_busy(struct http *h)
{
	int busy = 0;

	pthread_mutex_lock(&h->lock);
	for (const struct peer *p = h->peers; p; p = p->after)
		busy |= p->visit != NULL;
	pthread_mutex_unlock(&h->lock);
	return busy;
}

int http_orders(struct http *h)
{
	int n;

	pthread_mutex_lock(&h->lock);
	n = h->orders;
	pthread_mutex_unlock(&h->lock);
	return n;
}

/* A socket that listens at the address; -1 on failure. */
static int listen_at(const struct http_opts *o, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE };
	struct addrinfo *list = NULL, *a;
	int fd = -1, one = 1, rc;
	char port[16];

	snprintf(port, sizeof port, "%d", o->port);
	rc = getaddrinfo(o->host, port, &hints, &list);
	if (rc)
		return err_set(e, CA_USAGE, "no such address: '%s' (%s)",
			       o->host, gai_strerror(rc));
	for (a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(fd, a->ai_addr, a->ai_addrlen) ||
		    listen(fd, SOMAXCONN)) {
			rc = errno;
			close(fd);
			errno = rc;
			fd = -1;
		}
	}
	if (fd < 0)
		err_sys(e, CA_UNAVAILABLE, "cannot listen at %s port %d",
			o->host, o->port);
	freeaddrinfo(list);
	return fd;
}

static int port_of(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof a;

	if (getsockname(fd, (struct sockaddr *)&a, &len))
		return 0;
	if (a.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)(void *)&a)->sin6_port);
	return ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
}

struct http *http_open(const struct http_opts *o, struct core *c,
		       struct err *e)
{
	struct http *h = calloc(1, sizeof *h);
	int fd = h ? listen_at(o, e) : err_set(e, CA_SOFTWARE, "no memory");
	unsigned threads = (unsigned)core_threads();

	if (fd < 0) {
		free(h);
		return NULL;
	}
	h->o = *o;
	h->c = c;
	h->port = port_of(fd);
	pthread_mutex_init(&h->lock, NULL);
	h->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD |
		MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC, 0, NULL, NULL,
		handle, h, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_NOTIFY_COMPLETED, completed, h,
		MHD_OPTION_NOTIFY_CONNECTION, notify, h,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->connections,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, POOL_BYTES,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(o->patience_s + 1),
		threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END,
		threads, MHD_OPTION_END);
	if (h->daemon)
		return h;
	err_set(e, CA_SOFTWARE, "cannot start the HTTP server");
	close(fd);
	pthread_mutex_destroy(&h->lock);
	free(h);
	return NULL;
}

int http_port(const struct http *h)
{
	return h->port;
}

void http_quiesce(struct http *h)
{
	MHD_socket fd;

	if (h->quiet)
		return;
	pthread_mutex_lock(&h->lock);
	h->quiet = 1;
	pthread_mutex_unlock(&h->lock);
	fd = MHD_quiesce_daemon(h->daemon);
	if (fd != MHD_INVALID_SOCKET)
		close(fd);
}

void http_close(struct http *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->daemon);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
