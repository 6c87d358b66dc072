/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/rec when memory is short and when reads and writes are: this program's
 * malloc, read and write take the place of libc's, in cJSON too.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/syscall.h>

#include "base/io.h"
#include "rec/mac.h"
#include "rec/reader.h"
#include "rec/rec.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#define OWN_MALLOC !__has_feature(address_sanitizer)
#else
#define OWN_MALLOC 1
#endif

static long fail_at;		/* the allocation that fails; 0: none */
static long live;		/* blocks allocated minus freed */
static int counting;

#if OWN_MALLOC
void *__libc_malloc(size_t);
void *__libc_realloc(void *, size_t);
void *__libc_calloc(size_t, size_t);
void __libc_free(void *);

static int denied(void)
{
	return counting && fail_at && --fail_at == 0;
}

void *malloc(size_t n)
{
	void *p = denied() ? NULL : __libc_malloc(n);

	live += counting && p;
	return p;
}

void *calloc(size_t n, size_t size)
{
	void *p = denied() ? NULL : __libc_calloc(n, size);

	live += counting && p;
	return p;
}

void *realloc(void *old, size_t n)
{
	void *p = denied() ? NULL : __libc_realloc(old, n);

	live += counting && p && !old;
	return p;
}

void free(void *p)
{
	live -= counting && p;
	__libc_free(p);
}
#endif

static size_t short_io;		/* bytes a read or write moves; 0: all */
static int interrupt;		/* every second call fails with EINTR */
static int fail_io;		/* the call that fails with EIO; 0: none */

static size_t next_io(size_t n)
{
	static int calls;

	if (interrupt && ++calls % 2) {
		errno = EINTR;
		return 0;
	}
	if (fail_io && --fail_io == 0) {
		errno = EIO;
		return 0;
	}
	return short_io && n > short_io ? short_io : n;
}

ssize_t read(int fd, void *p, size_t n)
{
	n = n ? next_io(n) : 0;
	return n ? syscall(SYS_read, fd, p, n) : -1;
}

ssize_t write(int fd, const void *p, size_t n)
{
	n = n ? next_io(n) : 0;
	return n ? syscall(SYS_write, fd, p, n) : -1;
}

static const char line[] =
	"{\"kind\":\"candidate\",\"v\":1,\"task\":{\"id\":\"t\",\"code\":\"c\"}"
	",\"fil\\u0065s\":{\"a\":\"\\n\",\"b\\t\":\"2\"},\"build\":{\"x\":[1,2,"
	"{\"y\":null}]},\"long\":\"0123456789012345678901234567890123456789\"}";

/* Everything that a stage does with a record. */
static int life_of_a_record(struct str *out)
{
	static const char *const uses[] = { "build", NULL };
	struct mac_key k = { { 1 }, 1 };
	struct err e = ERR_INIT;
	struct rec r;
	int rc;

	rec_init(&r);
	rc = rec_parse(&r, line, sizeof line - 1, NULL, &e) ||
	     mac_set(&k, &r, "verify", "{\"status\":\"ok\"}", 15, uses, &e) ||
	     rec_refresh(&r, &e) || !mac_check(&k, &r, "verify", uses) ||
	     rec_set(&r, "reward", "{}", 2) || rec_drop(&r, "long") ||
	     rec_write(&r, out);
	rec_release(&r);
	return rc;
}

static void every_allocation_may_fail(void **state)
{
	struct str want = STR_INIT;
	long k;

	(void)state;
	if (!OWN_MALLOC)
		skip();
	assert_int_equal(life_of_a_record(&want), 0);
	for (k = 1; k < 10000; k++) {
		struct str out = STR_INIT;
		long used;
		int rc;

		counting = 1;
		fail_at = k;
		live = 0;
		rc = life_of_a_record(&out);
		used = fail_at;
		fail_at = 0;
		if (rc == 0)
			assert_string_equal(out.buf, want.buf);
		str_release(&out);
		counting = 0;
		assert_int_equal(live, 0);
		if (used)
			break;
		assert_int_not_equal(rc, 0);
	}
	/* The loop has seen each of them, and there are some. */
	assert_in_range(k, 50, 9999);
	str_release(&want);
}

static int pipe_with(const char *text)
{
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write_full(fd[1], text, strlen(text), NULL), 0);
	close(fd[1]);
	return fd[0];
}

static void expect_line(struct reader *r, enum line how, const char *want)
{
	struct err e = ERR_INIT;
	char *text;
	size_t len;

	assert_int_equal(reader_next(r, &text, &len, &e), how);
	assert_int_equal(len, strlen(want));
	assert_memory_equal(text, want, len);
}

static void lines_survive_short_reads(void **state)
{
	size_t n;

	(void)state;
	for (n = 1; n < 9; n++) {
		int fd = pipe_with("one\n\nthree 3\nlast");
		struct err e = ERR_INIT;
		struct reader r;
		char *text;
		size_t len;

		reader_init(&r, fd, -1);
		short_io = n;
		interrupt = n % 2;
		expect_line(&r, LINE_OK, "one");
		expect_line(&r, LINE_OK, "");
		expect_line(&r, LINE_OK, "three 3");
		expect_line(&r, LINE_TRUNCATED, "last");
		assert_int_equal(reader_next(&r, &text, &len, &e), LINE_END);
		short_io = 0;
		interrupt = 0;
		assert_int_equal(r.lineno, 4);
		reader_release(&r);
		close(fd);
	}
}

static void a_failed_read_is_an_error(void **state)
{
	int fd = pipe_with("one\ntwo\n");
	struct err e = ERR_INIT;
	struct reader r;
	char *text;
	size_t len;

	(void)state;
	reader_init(&r, fd, -1);
	short_io = 5;
	fail_io = 2;
	expect_line(&r, LINE_OK, "one");
	assert_int_equal(reader_next(&r, &text, &len, &e), LINE_ERROR);
	assert_int_equal(e.code, CA_IOERR);
	short_io = 0;
	reader_release(&r);
	close(fd);
}

static void output_survives_short_writes(void **state)
{
	char dir[256], path[300];
	struct output o;
	struct err e = ERR_INIT;
	struct str s = STR_INIT;

	(void)state;
	assert_int_equal(make_temp_dir("fault_test", dir, sizeof dir, &e), 0);
	snprintf(path, sizeof path, "%s/f", dir);
	short_io = 3;
	interrupt = 1;
	assert_int_equal(output_open(&o, path, &e), 0);
	assert_int_equal(output_write(&o, line, sizeof line - 1, &e), 0);
	assert_int_equal(output_close(&o, 1, &e), 0);
	assert_int_equal(read_file(path, 4096, &s, &e), 0);
	assert_string_equal(s.buf, line);
	interrupt = 0;
	fail_io = 4;
	assert_int_equal(write_file_atomic(path, "0123456789abcdef", 16, 0600,
					   &e), -1);
	assert_int_equal(e.code, CA_IOERR);
	short_io = 0;
	str_reset(&s);
	assert_int_equal(read_file(path, 4096, &s, &e), 0);
	assert_string_equal(s.buf, line);
	assert_int_equal(remove_tree(dir, &e), 0);
	str_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_may_fail),
		cmocka_unit_test(lines_survive_short_reads),
		cmocka_unit_test(a_failed_read_is_an_error),
		cmocka_unit_test(output_survives_short_writes),
	};

	return RUN_TESTS(tests);
}
