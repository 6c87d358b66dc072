/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/net against a server that misbehaves as told: one canned answer for
 * each connection.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "net/chat.h"

enum act { SAY, RESET, STALL, DRIP };

struct canned {
	enum act act;
	const char *bytes;
};

struct server {
	pid_t pid;
	char url[64];
};

#define HEAD(status, more) "HTTP/1.1 " status "\r\nConnection: close\r\n" more
#define JSON(status, text) HEAD(status, "\r\n") text
#define GOOD "{\"choices\":[{\"message\":{\"role\":\"assistant\"," \
	"\"content\":\"hi\"},\"finish_reason\":\"stop\"}]," \
	"\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}"

/* Reads headers and body, as Content-Length has it.  Whether the client asks to
 * be told "100 Continue". */
static int read_request(int fd)
{
	static char buf[4 << 20];
	size_t n = 0;
	ssize_t got;

	while (n < sizeof(buf) - 1) {
		char *end, *len;

		got = read(fd, buf + n, sizeof(buf) - 1 - n);
		if (got <= 0)
			break;
		n += (size_t)got;
		buf[n] = '\0';
		end = strstr(buf, "\r\n\r\n");
		len = strcasestr(buf, "content-length:");
		if (end && n >= (size_t)(end + 4 - buf) +
				(len ? strtoul(len + 15, NULL, 10) : 0))
			break;
	}
	return strcasestr(buf, "\r\nexpect:") != NULL;
}

static void act(int fd, const struct canned *c)
{
	const struct linger l = { 1, 0 };
	const char *p = c->bytes;

	if (read_request(fd))
		p = JSON("400 Bad Request", "{}");
	if (c->act == RESET)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	for (; *p; p++) {
		if (write(fd, p, c->act == DRIP ? 1 : strlen(p)) < 0)
			break;
		if (c->act != DRIP)
			break;
		usleep(5000);
	}
	if (c->act == STALL)
		sleep(20);
	close(fd);
}

static struct server serve(const struct canned *c, size_t n)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	struct server s = { 0 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t i;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 8), 0);
	getsockname(fd, (struct sockaddr *)&a, &len);
	snprintf(s.url, sizeof(s.url), "http://127.0.0.1:%d/v1",
		 ntohs(a.sin_port));
	s.pid = fork();
	if (!s.pid) {
		signal(SIGPIPE, SIG_IGN);
		for (i = 0; i < n; i++)
			act(accept(fd, NULL, NULL), &c[i]);
		_exit(0);
	}
	close(fd);
	return s;
}

static void stop(struct server *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
}

static void remember(void *ctx, const struct net_reply *r, double wait)
{
	struct str *s = ctx;

	str_addf(s, "%d/%d after %s; ", (int)r->how, r->status,
		 wait >= 0.3 ? "long" : "short");
}

/* One question to a server of these canned answers. */
static struct chat_answer ask(const struct canned *c, size_t n,
			      struct chat_opts o, struct str *notes)
{
	struct server s = serve(c, n);
	struct err e = ERR_INIT;
	struct chat_answer a;
	struct chat *chat;

	o.endpoint = s.url;
	o.attempts = o.attempts ? o.attempts : (int)n;
	o.base_s = o.cap_s = 0.01;
	o.note = remember;
	o.ctx = notes;
	chat = chat_open(&o, &e);
	assert_non_null(chat);
	assert_int_equal(chat_ask(chat, "{}", 2, deadline_in(30), &a, &e), 0);
	chat_close(chat);
	stop(&s);
	return a;
}

static void an_answer_is_read(void **state)
{
	static const struct canned c[] = { { SAY, JSON("200 OK", GOOD) } };
	struct str notes = STR_INIT;
	struct chat_answer a = ask(c, 1, (struct chat_opts){ .key = "k" },
				   &notes);

	(void)state;
	assert_int_equal(a.how, CHAT_OK);
	assert_string_equal(json_get_str(a.message, "content", ""), "hi");
	assert_string_equal(a.finish, "stop");
	assert_int_equal(a.prompt_tokens, 7);
	assert_int_equal(a.completion_tokens, 3);
	assert_int_equal(a.attempts, 1);
	assert_null(notes.buf);
	chat_answer_release(&a);
}

/* The server's "100 Continue" would count as the answer's first byte. */
static void a_long_request_goes_without_asking(void **state)
{
	static const struct canned c[] = { { SAY, JSON("200 OK", GOOD) } };
	size_t len = 2 << 20;
	struct server s = serve(c, 1);
	struct chat_opts o = { .endpoint = s.url, .attempts = 1 };
	struct err e = ERR_INIT;
	struct chat *chat = chat_open(&o, &e);
	char *body = malloc(len);
	struct chat_answer a;

	(void)state;
	memset(body, ' ', len);
	assert_int_equal(chat_ask(chat, body, len, deadline_in(30), &a, &e),
			 0);
	assert_int_equal(a.how, CHAT_OK);
	chat_answer_release(&a);
	chat_close(chat);
	stop(&s);
	free(body);
}

static void faults_are_retried(void **state)
{
	static const struct canned c[] = {
		{ RESET, HEAD("200 OK", "Content-Length: 999\r\n\r\n") "{" },
		{ SAY, JSON("429 Slow", "{}") },
		{ SAY, HEAD("429 Slow", "Retry-After: 0.4\r\n\r\n") "{}" },
		{ SAY, JSON("503 Busy", "{}") },
		{ SAY, JSON("503 Busy", "{}") },
		{ SAY, JSON("408 Timeout", "{}") },
		{ SAY, JSON("200 OK", "{\"choices\":[{\"message\":{}}]}") },
		{ SAY, JSON("200 OK", "<html>") },
		{ SAY, "no HTTP at all" },
		{ SAY, JSON("200 OK", GOOD) },
	};
	struct str notes = STR_INIT;
	struct chat_answer a = ask(c, 10, (struct chat_opts){ 0 }, &notes);

	(void)state;
	assert_int_equal(a.how, CHAT_OK);
	assert_int_equal(a.attempts, 10);
	assert_string_equal(notes.buf, "3/0 after short; 0/429 after short; "
		"0/429 after long; 0/503 after short; 0/503 after short; "
		"0/408 after short; 3/200 after short; 3/200 after short; "
		"3/0 after short; ");
	str_release(&notes);
	chat_answer_release(&a);
}

static void some_statuses_are_final(void **state)
{
	static const char *const heads[] = {
		"400 Bad", "401 No", "403 No", "404 No", "422 Odd", "301 Moved"
	};
	struct str notes = STR_INIT;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		char text[256];
		struct canned c = { SAY, text };
		struct chat_answer a;

		snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nConnection: "
			 "close\r\n\r\n{\"error\":{\"message\":\"because\"}}",
			 heads[i]);
		a = ask(&c, 1, (struct chat_opts){ .attempts = 5 }, &notes);
		assert_int_equal(a.how, CHAT_REFUSED);
		assert_non_null(strstr(a.text, "because"));
	}
	assert_null(notes.buf);
}

static void the_same_500_twice_is_final(void **state)
{
	static const struct canned c[] = {
		{ SAY, JSON("500 Oops", "{\"error\":\"first\"}") },
		{ SAY, JSON("500 Oops", "{\"error\":\"second\"}") },
	};
	struct str notes = STR_INIT;
	struct chat_answer a = ask(c, 2, (struct chat_opts){ .attempts = 9 },
				   &notes);

	(void)state;
	assert_int_equal(a.how, CHAT_FAULT);
	assert_int_equal(a.attempts, 2);
	assert_string_equal(a.text, "status 500: second");
	str_release(&notes);
}

static void a_full_context_is_told_apart(void **state)
{
	static const struct canned c[] = {
		{ SAY, JSON("400 Bad", "{\"error\":{\"message\":\"This model's "
		  "maximum context length is 32768 tokens\"}}") },
	};
	struct str notes = STR_INIT;
	struct chat_answer a = ask(c, 1, (struct chat_opts){ 0 }, &notes);

	(void)state;
	assert_int_equal(a.how, CHAT_CONTEXT);
}

static void each_wait_has_its_limit(void **state)
{
	static const struct canned first[] = { { STALL, "" } };
	static const struct canned idle[] = {
		{ STALL, "HTTP/1.1 200 OK\r\n" }
	};
	static const struct canned slow[] = {
		{ DRIP, JSON("200 OK", GOOD) }
	};
	struct chat_opts o = { .attempts = 1, .limits = {
		.connect_s = 5, .first_s = 0.2, .idle_s = 5 } };
	struct str notes = STR_INIT;
	struct chat_answer a = ask(first, 1, o, &notes);

	(void)state;
	assert_int_equal(a.how, CHAT_FAULT);
	assert_string_equal(a.text, "no answer in time");
	o.limits = (struct net_limits){ 5, 5, 0.2, 0 };
	a = ask(idle, 1, o, &notes);
	assert_string_equal(a.text, "the answer stopped coming");
	/* Slower than both limits in all, but never silent for long. */
	a = ask(slow, 1, (struct chat_opts){ .limits = { 5, 2, 2, 0 } },
		&notes);
	assert_int_equal(a.how, CHAT_OK);
	chat_answer_release(&a);
}

#define NONE "\xef\xbf\xbd"

/* What a model says is no fault of the way. */
static void what_no_record_holds_is_replaced(void **state)
{
	static const char *const row[][2] = {
		{ "a\\u0000b", "a" NONE "b" },
		{ "\\u0000\\ud83d\\ude00", NONE "\xf0\x9f\x98\x80" },
		{ "\\ud83d\\u0041", NONE "A" },
		{ "\\ude00\\ud83d", NONE NONE },
		{ "\\\\u0000\\u0000", "\\u0000" NONE },
		{ "\xc3(\xe4\xb8", NONE "(" NONE NONE },
	};
	char body[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct chat_answer a = { .how = CHAT_FAULT };

		snprintf(body, sizeof(body), "{\"choices\":[{\"message\":"
			 "{\"content\":\"%s\"}}]}", row[i][0]);
		chat_read(body, strlen(body), 200, &a);
		assert_int_equal(a.how, CHAT_OK);
		assert_string_equal(json_get_str(a.message, "content", NULL),
				    row[i][1]);
		chat_answer_release(&a);
	}
}

static void parts_are_one_text(void **state)
{
	static const char body[] = "{\"choices\":[{\"message\":{\"content\":["
		"{\"type\":\"text\",\"text\":\"a \\\"b\"},{\"type\":\"image\"},"
		"{\"type\":\"text\",\"text\":\"c\"}],\"x\":[1,null]},"
		"\"token_ids\":[5,6]}],\"n\":0.25}";
	static const char empty[] = "{\"choices\":[{\"message\":{\"content\":"
		"[{\"type\":\"text\",\"text\":\"\"}]}}]}";
	struct chat_answer a = { .how = CHAT_FAULT };

	(void)state;
	chat_read(body, strlen(body), 200, &a);
	assert_int_equal(a.how, CHAT_OK);
	assert_string_equal(json_get_str(a.message, "content", ""), "a \"bc");
	assert_int_equal(json_len(json_get(a.message, "x")), 2);
	assert_int_equal(json_len(json_get(json_first(json_get(a.root,
					"choices")), "token_ids")), 2);
	assert_true(json_get_num(a.root, "n", 0) > 0.2);
	chat_read(empty, strlen(empty), 200, &a);
	assert_int_equal(a.how, CHAT_FAULT);
	assert_string_equal(a.text, "the answer is empty");
	chat_answer_release(&a);
}

static void an_error_is_told(void **state)
{
	static const char body[] = "{\"error\": \"no GPU\"}";
	struct chat_answer a = { .how = CHAT_OK };

	(void)state;
	chat_read(body, strlen(body), 200, &a);
	assert_int_equal(a.how, CHAT_FAULT);
	assert_string_equal(a.text, "the answer has no message: no GPU");
}

static void too_much_is_refused_at_once(void **state)
{
	static const struct canned c[] = {
		{ SAY, JSON("200 OK", GOOD GOOD GOOD GOOD GOOD GOOD GOOD) }
	};
	struct str notes = STR_INIT;
	struct chat_answer a = ask(c, 1, (struct chat_opts){ .attempts = 3,
		.limits = { .cap = 200 } }, &notes);

	(void)state;
	assert_int_equal(a.how, CHAT_FAULT);
	assert_int_equal(a.attempts, 1);
	assert_string_equal(a.text, "the answer is too long");
}

static void nobody_there_is_a_fault(void **state)
{
	struct chat_opts o = { .endpoint = "http://127.0.0.1:1/v1/",
			       .attempts = 2, .base_s = 0.01, .cap_s = 0.01 };
	struct err e = ERR_INIT;
	struct chat *c = chat_open(&o, &e);
	struct chat_answer a;

	(void)state;
	assert_int_equal(chat_ask(c, "{}", 2, 0, &a, &e), 0);
	assert_int_equal(a.how, CHAT_FAULT);
	assert_int_equal(a.attempts, 2);
	chat_close(c);
	o.endpoint = "ftp://x";
	assert_null(chat_open(&o, &e));
	assert_int_equal(e.code, CA_USAGE);
	o.endpoint = "http://x";
	o.key = "a\nX-Evil: 1";
	assert_null(chat_open(&o, &e));
	assert_int_equal(e.code, CA_CONFIG);
}

static void a_deadline_ends_the_retries(void **state)
{
	struct chat_opts o = { .endpoint = "http://127.0.0.1:1/v1",
			       .attempts = 1000, .base_s = 5, .cap_s = 5 };
	struct err e = ERR_INIT;
	struct chat *c = chat_open(&o, &e);
	struct chat_answer a;

	(void)state;
	assert_int_equal(chat_ask(c, "{}", 2, deadline_in(0.2), &a, &e), 0);
	assert_int_equal(a.how, CHAT_DEADLINE);
	chat_close(c);
}

static size_t watched(void *ctx, struct pollfd *p, size_t max)
{
	assert_true(max > 0);
	p[0] = (struct pollfd){ ((int *)ctx)[0], POLLIN, 0 };
	return 1;
}

static void count(void *ctx)
{
	int *fd = ctx;
	char c;

	if (wait_readable(fd[0], now_ns(), NULL) == 1 &&
	    read(fd[0], &c, 1) == 1)
		fd[1]++;
}

static void others_are_served_meanwhile(void **state)
{
	static const struct canned c[] = { { STALL, "" } };
	struct server s = serve(c, 1);
	int fd[2], ctx[2] = { 0, 0 };
	struct net_idle idle = { watched, count, ctx };
	struct chat_opts o = { .endpoint = s.url, .attempts = 1,
			       .idle = &idle, .limits = { .first_s = 0.3 } };
	struct err e = ERR_INIT;
	struct chat *chat = chat_open(&o, &e);
	struct chat_answer a;

	(void)state;
	assert_int_equal(pipe(fd), 0);
	ctx[0] = fd[0];
	assert_int_equal(write(fd[1], "ab", 2), 2);
	assert_int_equal(chat_ask(chat, "{}", 2, 0, &a, &e), 0);
	assert_int_equal(ctx[1], 2);
	chat_close(chat);
	stop(&s);
	close(fd[0]);
	close(fd[1]);
}

static void retry_after_is_a_number_or_a_date(void **state)
{
	(void)state;
	assert_true(net_retry_after(" 7\r\n", 4) == 7);
	assert_true(net_retry_after("0.5", 3) == 0.5);
	assert_true(net_retry_after("-3", 2) < 0);
	assert_true(net_retry_after("soon", 4) < 0);
	assert_true(net_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 29) == 0);
	assert_true(net_retry_after("Sun, 06 Nov 2094 08:49:37 GMT", 29) > 1e6);
}

static void backoff_grows_to_its_cap(void **state)
{
	struct rng rng;
	struct net_policy p = { .base_s = 2, .cap_s = 60, .rng = &rng };
	double most[12] = { 0 };
	int n, i;

	(void)state;
	rng_seeded(&rng, 1);
	for (n = 2; n < 12; n++)
		for (i = 0; i < 1000; i++) {
			double w = net_backoff(&p, n, -1);

			assert_true(w >= 0 && w <= 60);
			most[n] = w > most[n] ? w : most[n];
		}
	assert_true(most[2] > 1.9 && most[2] <= 2);
	assert_true(most[4] > 7 && most[4] <= 8);
	assert_true(most[11] > 55);
	assert_true(net_backoff(&p, 2, 100) == 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_read),
		cmocka_unit_test(a_long_request_goes_without_asking),
		cmocka_unit_test(faults_are_retried),
		cmocka_unit_test(some_statuses_are_final),
		cmocka_unit_test(the_same_500_twice_is_final),
		cmocka_unit_test(a_full_context_is_told_apart),
		cmocka_unit_test(each_wait_has_its_limit),
		cmocka_unit_test(what_no_record_holds_is_replaced),
		cmocka_unit_test(parts_are_one_text),
		cmocka_unit_test(an_error_is_told),
		cmocka_unit_test(too_much_is_refused_at_once),
		cmocka_unit_test(nobody_there_is_a_fault),
		cmocka_unit_test(a_deadline_ends_the_retries),
		cmocka_unit_test(others_are_served_meanwhile),
		cmocka_unit_test(retry_after_is_a_number_or_a_date),
		cmocka_unit_test(backoff_grows_to_its_cap),
	};
	struct err e = ERR_INIT;
	int failed;

	signal(SIGPIPE, SIG_IGN);
	setenv("no_proxy", "127.0.0.1", 1);
	if (net_start(&e))
		return 1;
	failed = RUN_TESTS(tests);
	net_stop();
	return failed;
}
