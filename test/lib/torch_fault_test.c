/* SPDX-License-Identifier: Apache-2.0
 *
 * The tool's side of lib/torch when memory is short and when the socket
 * fails: this program's malloc, sendmsg, recvmsg and recv take the place of
 * libc's.  The host is real.
 */
#define _GNU_SOURCE
#include "torch_kit.h"

#include <dirent.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#define OWN_MALLOC !__has_feature(address_sanitizer)
#else
#define OWN_MALLOC 1
#endif

static long alloc_at, call_at;	/* the one that fails; 0: none */
static int call_errno;
static long allocs, calls;	/* seen */

#if OWN_MALLOC
void *__libc_malloc(size_t);
void *__libc_realloc(void *, size_t);
void *__libc_calloc(size_t, size_t);

static int denied(void)
{
	allocs++;
	return alloc_at && --alloc_at == 0;
}

void *malloc(size_t n)
{
	return denied() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return denied() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t n)
{
	return denied() ? NULL : __libc_realloc(old, n);
}
#endif

static int broken(void)
{
	calls++;
	if (!call_at || --call_at)
		return 0;
	errno = call_errno;
	return 1;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return broken() ? -1 : syscall(SYS_sendmsg, fd, m, flags);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	return broken() ? -1 : syscall(SYS_recvmsg, fd, m, flags);
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
	return broken() ? -1 : syscall(SYS_recvfrom, fd, p, n, flags, NULL,
				       NULL);
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* One child from birth to death.  0, or -1 with a message. */
static int cycle(struct torch_host *h, struct err *e)
{
	static const char req[] = "{\"op\":\"jail\"}";
	struct torch_spawn s = { .role = "calib", .device = "cpu",
				 .jail = level };
	struct torch_child c;
	struct ca_msg m;
	int rc;

	if (torch_spawn(h, &s, &c, e))
		return -1;
	rc = torch_send(&c, req, strlen(req), NULL, 0, e);
	if (!rc && torch_recv(&c, &m, deadline_in(SECONDS)) != WAIT_OK)
		rc = err_set(e, CA_SOFTWARE, "no answer");
	if (torch_kill(h, &c, e))
		rc = -1;
	return rc;
}

static void survives_short_memory(void **state)
{
	struct err e = ERR_INIT;
	int fds, rc = -1;
	long k;

	(void)state;
	NEED_HOST();
	if (!OWN_MALLOC)
		skip();
	assert_int_equal(cycle(host, &e), 0);
	fds = open_fds();
	for (k = 1; rc && k < 500; k++) {
		err_clear(&e);
		alloc_at = k;
		rc = cycle(host, &e);
		if (alloc_at > 0 && rc)
			fail_msg("failed by itself: %s", e.msg);
		alloc_at = 0;
		assert_true(!rc || e.msg[0]);
		if (torch_fd(host) < 0) {
			/* An unreadable packet: it was given up. */
			torch_close(host);
			host = torch_open(120, &e);
			assert_non_null(host);
		}
		assert_int_equal(open_fds(), fds);
	}
	assert_int_equal(rc, 0);
	assert_true(k > 5);
	assert_int_equal(cycle(host, &e), 0);
}

static void fails_to_open_cleanly(void **state)
{
	struct torch_host *h = NULL;
	struct err e = ERR_INIT;
	int fds = open_fds();
	long k, total;

	(void)state;
	NEED_HOST();
	if (!OWN_MALLOC)
		skip();
	allocs = 0;
	h = torch_open(120, &e);
	total = allocs;
	assert_non_null(h);
	torch_close(h);
	/* From the last ones back: those that follow the hello. */
	for (k = total; k > 0 && k > total - 12; k -= 3) {
		err_clear(&e);
		alloc_at = k;
		h = torch_open(120, &e);
		alloc_at = 0;
		if (!h)
			assert_true(e.msg[0]);
		torch_close(h);
		assert_int_equal(open_fds(), fds);
	}
	alloc_at = 1;
	assert_null(torch_open(120, &e));
	alloc_at = 0;
}

static void survives_interruptions(void **state)
{
	struct err e = ERR_INIT;
	long total;

	(void)state;
	NEED_HOST();
	calls = 0;
	assert_int_equal(cycle(host, &e), 0);
	total = calls;
	assert_true(total >= 5);
	for (long k = 1; k <= total; k++) {
		call_at = k;
		call_errno = EINTR;
		if (cycle(host, &e))
			fail_msg("interrupted call %ld: %s", k, e.msg);
	}
	call_at = 0;
}

static void reports_broken_sockets(void **state)
{
	struct err e = ERR_INIT;
	int fds;

	(void)state;
	NEED_HOST();
	fds = open_fds();
	for (long k = 1; k <= 3; k++) {
		err_clear(&e);
		call_at = k;
		call_errno = ECONNRESET;
		assert_int_equal(cycle(host, &e), -1);
		call_at = 0;
		assert_true(e.msg[0]);
		if (torch_fd(host) < 0) {
			assert_int_equal(cycle(host, &e), -1);
			assert_int_equal(e.code, CA_UNAVAILABLE);
			torch_close(host);
			host = torch_open(120, &e);
			assert_non_null(host);
		}
		assert_int_equal(open_fds(), fds);
	}
	assert_int_equal(cycle(host, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survives_short_memory),
		cmocka_unit_test(survives_interruptions),
		cmocka_unit_test(reports_broken_sockets),
		cmocka_unit_test(fails_to_open_cleanly),
	};

	return cmocka_run_group_tests_name("torch_fault", tests, open_host,
					   close_host);
}
