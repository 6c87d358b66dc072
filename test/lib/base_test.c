/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/base: errors, arena, strings, UTF-8, hashes, seeds.
 */
#include "tests.h"

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/proc.h"
#include "base/rand.h"
#include "base/str.h"
#include "base/sum.h"
#include "base/utf8.h"

static void err_escapes_and_cuts(void **state)
{
	struct err e = ERR_INIT;
	char big[5000];

	(void)state;
	assert_int_equal(err_set(&e, CA_DATAERR, "a\nb\x1b[%s", "\x7f"), -1);
	assert_int_equal(e.code, CA_DATAERR);
	assert_string_equal(e.msg, "a\\x0ab\\x1b[\\x7f");
	err_set(&e, 1, "%s", "\xc3\xa9 \xc2\x9b");
	assert_string_equal(e.msg, "\xc3\xa9 \xc2\\x9b");
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	err_set(&e, 1, "%s", big);
	assert_true(strlen(e.msg) < sizeof e.msg);
	memset(big, '\n', sizeof big - 1);
	err_set(&e, 1, "%s", big);
	assert_string_equal(e.msg + strlen(e.msg) - 7, "\\x0a...");
	assert_int_equal(err_set(NULL, 1, "x"), -1);
}

static void err_carries_errno_and_context(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	errno = ENOENT;
	err_sys(&e, CA_NOINPUT, "cannot open '%s'", "f");
	assert_int_equal(errno, ENOENT);
	assert_string_equal(e.msg,
			    "cannot open 'f': No such file or directory");
	err_wrap(&e, "record %d", 3);
	assert_string_equal(e.msg, "record 3: cannot open 'f': "
			    "No such file or directory");
	assert_int_equal(e.code, CA_NOINPUT);
	err_clear(&e);
	assert_int_equal(e.code, 0);
	assert_string_equal(e.msg, "");
}

static void arena_gives_zeroed_aligned_memory(void **state)
{
	struct arena a = ARENA_INIT;
	int i;

	(void)state;
	for (i = 1; i < 2000; i++) {
		unsigned char *p = arena_alloc(&a, (size_t)i, 1);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 16, 0);
		assert_int_equal(p[0] | p[i - 1], 0);
		memset(p, 0xff, (size_t)i);
		if (i % 500 == 0)
			arena_reset(&a);
	}
	assert_string_equal(arena_strndup(&a, "abcdef", 3), "abc");
	assert_string_equal(arena_printf(&a, "%d-%s", 7, "x"), "7-x");
	arena_release(&a);
	assert_null(a.head);
}

static void arena_refuses_overflow_and_cap(void **state)
{
	struct arena a = { NULL, 0, 1000 };

	(void)state;
	assert_null(arena_alloc(&a, SIZE_MAX, 2));
	assert_null(arena_alloc(&a, SIZE_MAX, 1));
	assert_null(arena_alloc(&a, 1001, 1));
	assert_non_null(arena_alloc(&a, 900, 1));
	assert_null(arena_alloc(&a, 900, 1));
	arena_reset(&a);
	assert_non_null(arena_alloc(&a, 900, 1));
	arena_release(&a);
}

static void str_grows_and_keeps_its_cap(void **state)
{
	struct str s = { NULL, 0, 0, 10, 0 };
	char *p;

	(void)state;
	assert_int_equal(str_adds(&s, "12345"), 0);
	assert_int_equal(str_addf(&s, "%d", 67890), 0);
	assert_string_equal(s.buf, "1234567890");
	assert_int_equal(str_addc(&s, 'x'), -1);
	assert_int_equal(s.failed, 1);
	str_reset(&s);
	assert_int_equal(str_addc(&s, 'y'), 0);
	p = str_detach(&s);
	assert_string_equal(p, "y");
	free(p);
	str_addf(&s, "%s", "12345678901");
	assert_int_equal(s.failed, 1);
	assert_null(str_detach(&s));
	str_release(&s);
}

static void str_makes_child_output_safe(void **state)
{
	static const char in[] =
		"ok\n\ttab \x1b[0m \xff \xc3\xa9 \xc2\x9b \0 \x7f";
	struct str s = STR_INIT;

	(void)state;
	assert_int_equal(str_add_safe(&s, in, sizeof in - 1), 0);
	assert_string_equal(s.buf, "ok\n\ttab \\x1b[0m \\xff \xc3\xa9 "
			    "\\xc2\\x9b \\x00 \\x7f");
	str_reset(&s);
	assert_int_equal(str_add_name(&s, "a\n\tb \xe2\x80\xae\xe2\x82\xac "
				      "\xe2\x81\xa6\xf0\x9f\x98\x80"), 0);
	assert_string_equal(s.buf, "a\\x0a\\x09b \\xe2\\x80\\xae\xe2\x82\xac "
			    "\\xe2\\x81\\xa6\xf0\x9f\x98\x80");
	str_release(&s);
	assert_true(starts_with("model.py", "mod"));
	assert_false(starts_with("mo", "mod"));
	assert_true(ends_with("model.py", ".py"));
	assert_false(ends_with("y", ".py"));
}

static void utf8_knows_its_edges(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} t[] = {
		{ "a", 1 }, { "\xc2\x80", 2 }, { "\xdf\xbf", 2 },
		{ "\xe0\xa0\x80", 3 }, { "\xed\x9f\xbf", 3 },
		{ "\xef\xbf\xbf", 3 }, { "\xf0\x90\x80\x80", 4 },
		{ "\xf4\x8f\xbf\xbf", 4 },
		{ "\x80", 0 }, { "\xc0\x80", 0 }, { "\xc1\xbf", 0 },
		{ "\xe0\x9f\xbf", 0 }, { "\xed\xa0\x80", 0 },
		{ "\xf0\x8f\xbf\xbf", 0 }, { "\xf4\x90\x80\x80", 0 },
		{ "\xf5\x80\x80\x80", 0 }, { "\xc3", 0 }, { "\xe2\x82", 0 },
		{ "\xe2\x82x", 0 }, { "\xff", 0 },
	};
	static const unsigned long cp[] = { 0x41, 0x80, 0x7ff, 0x800, 0xffff,
					    0x10000, 0x10ffff };
	size_t i;
	char out[4];

	(void)state;
	for (i = 0; i < sizeof t / sizeof *t; i++)
		assert_int_equal(utf8_len(t[i].text, strlen(t[i].text)),
				 t[i].len);
	assert_int_equal(utf8_len("", 0), 0);
	for (i = 0; i < sizeof cp / sizeof *cp; i++) {
		size_t n = utf8_put(cp[i], out);

		assert_int_equal(utf8_len(out, n), n);
	}
}

/* FIPS 180-2 and RFC 4231. */
static void hashes_match_published_values(void **state)
{
	uint8_t key[131], out[HASH_LEN], again[HASH_LEN];
	char text[HASH_HEX];
	struct hash *h = hash_new();

	(void)state;
	sha256_hex("abc", 3, text);
	assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223"
			    "b00361a396177a9cb410ff61f20015ad");
	memset(key, 0xaa, sizeof key);
	hmac_sha256(key, sizeof key, "Test Using Larger Than Block-Size Key - "
		    "Hash Key First", 54, out);
	hex(out, sizeof out, text);
	assert_string_equal(text, "60e431591ee0b67f0d8a26aacbf5b77f"
			    "8e0bc6213728c5140546040f0ee37f54");
	hash_add(h, "a", 1);
	hash_add(h, "bc", 2);
	hash_end(h, out);
	sha256("abc", 3, again);
	assert_true(hash_equal(out, again, HASH_LEN));
	again[31] ^= 1;
	assert_false(hash_equal(out, again, HASH_LEN));
}

static void hash_parts_do_not_run_together(void **state)
{
	uint8_t a[HASH_LEN], b[HASH_LEN];
	struct hash *h = hash_new();

	(void)state;
	hash_part(h, "ab", 2);
	hash_part(h, "c", 1);
	hash_end(h, a);
	h = hash_new();
	hash_part(h, "a", 1);
	hash_part(h, "bc", 2);
	hash_end(h, b);
	assert_false(hash_equal(a, b, HASH_LEN));
}

/* splitmix64's published first values for seed 1234567. */
static void proc_reads_lines_and_fields(void **state)
{
	char text[64], path[] = "/tmp/base_test.XXXXXX";
	int fd = mkstemp(path), ppid = 0;
	const char *p;
	FILE *f = NULL;

	(void)state;
	assert_true(fd >= 0 && (f = fdopen(fd, "w")));
	fputs("Names:\tone\nName \t: two words\nRss:  12 kB\nBad: 12 MB\n"
	      "Name:\tthree\nNeg: -1 kB\nNo: kB\n", f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(proc_line(text, sizeof text, "Name", "%s", path), 0);
	assert_string_equal(text, "two words");
	assert_int_equal(proc_line(text, 4, "Name", "%s", path), 0);
	assert_string_equal(text, "two");
	assert_int_equal(proc_line(text, sizeof text, "Nam", "%s", path), -1);
	assert_string_equal(text, "");
	assert_int_equal(proc_bytes("Rss", "%s", path), 12 * 1024);
	assert_int_equal(proc_bytes("Bad", "%s", path), -1);
	assert_int_equal(proc_bytes("Neg", "%s", path), -1);
	assert_int_equal(proc_bytes("No", "%s", path), -1);
	assert_true(proc_bytes("MemAvailable", "/proc/meminfo") > 0);
	assert_int_equal(proc_bytes("Rss", "%s/none", path), -1);

	f = fopen(path, "w");
	assert_non_null(f);
	fputs("12 (a) Z 1 (b) R 34 5", f);
	assert_int_equal(fclose(f), 0);
	p = proc_stat(text, sizeof text, "%s", path);
	assert_non_null(p);
	assert_string_equal(p, "R 34 5");
	assert_null(proc_stat(text, sizeof text, "%s/none", path));
	assert_int_equal(unlink(path), 0);
	p = proc_stat(text, sizeof text, "/proc/%d/stat", (int)getpid());
	assert_true(p && sscanf(p, "%*c %d", &ppid) == 1);
	assert_int_equal(ppid, getppid());
}

/* Pieces of any size, every single bit, zeros at the end. */
static void sums_tell_bytes_apart(void **state)
{
	unsigned char x[100];
	uint64_t whole, other;
	struct sum s;

	(void)state;
	for (size_t i = 0; i < sizeof x; i++)
		x[i] = (unsigned char)(i * 37);
	sum_begin(&s, 0);
	sum_add(&s, x, sizeof x);
	whole = sum_end(&s);
	for (size_t step = 1; step < sizeof x; step++) {
		sum_begin(&s, 0);
		for (size_t i = 0; i < sizeof x; i += step)
			sum_add(&s, x + i, step < sizeof x - i ? step :
				sizeof x - i);
		assert_true(sum_end(&s) == whole);
	}
	for (size_t bit = 0; bit < 8 * sizeof x; bit++) {
		x[bit / 8] ^= (unsigned char)(1 << bit % 8);
		sum_begin(&s, 0);
		sum_add(&s, x, sizeof x);
		assert_true(sum_end(&s) != whole);
		x[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	memset(x, 0, sizeof x);
	sum_begin(&s, 0);
	whole = sum_end(&s);
	for (size_t n = 1; n < 40; n++) {
		sum_begin(&s, 0);
		sum_add(&s, x, n);
		other = sum_end(&s);
		assert_true(other != whole);
		whole = other;
	}
}

/* What becomes of the top bit of a word can't be undone by the word that comes
 * behind it in its lane. */
static void sums_spread_top_bits(void **state)
{
	uint64_t word[8] = { 0 }, was, is;
	struct sum s;

	(void)state;
	sum_begin(&s, 0);
	sum_add(&s, word, sizeof word);
	was = sum_end(&s);
	word[1] ^= UINT64_C(1) << 63;
	for (int low = 0; low < 63; low++) {
		word[5] = UINT64_C(1) << 63 | UINT64_C(1) << low;
		sum_begin(&s, 0);
		sum_add(&s, word, sizeof word);
		is = sum_end(&s);
		assert_true(is != was);
	}
}

static void seeds_replay(void **state)
{
	struct rng a, b;
	uint8_t x[13], y[13];
	int i, seen[6] = { 0 };

	(void)state;
	rng_seeded(&a, 1234567);
	assert_true(rng_u64(&a) == 6457827717110365317u);
	assert_true(rng_u64(&a) == 3203168211198807973u);
	rng_seeded(&a, 5);
	rng_seeded(&b, 5);
	rng_fill(&a, x, sizeof x);
	rng_fill(&b, y, sizeof y);
	assert_memory_equal(x, y, sizeof x);
	for (i = 0; i < 1000; i++) {
		double u = rng_unit(&a);

		assert_true(u >= 0 && u < 1);
		seen[rng_below(&a, 6)]++;
	}
	for (i = 0; i < 6; i++)
		assert_in_range(seen[i], 100, 240);
	rng_fresh(&a);
	rng_fresh(&b);
	assert_true(rng_u64(&a) != rng_u64(&b));
}

static void wait_for_ever(void)
{
	while (pause())
		;
}

/* Ends with `status`, or not at all; its last words go to fd. */
static int child_that_dies(int status, int fd, unsigned seconds)
{
	struct err e = ERR_INIT;
	int got = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(fd, STDERR_FILENO);
		atexit(wait_for_ever);
		err_set(&e, CA_UNAVAILABLE, "gone");
		die_within(seconds, &e);
		err_set(&e, CA_CONFIG, "later");
		die_within(seconds, &e);
		if (status < 0)
			wait_for_ever();
		exit(status);
	}
	assert_int_equal(waitpid(pid, &got, 0), pid);
	return WIFEXITED(got) ? WEXITSTATUS(got) : -1;
}

static void dies_wherever_it_is(void **state)
{
	char said[80] = "";
	int fd[2];

	(void)state;
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(child_that_dies(5, fd[1], 1000), 5);
	assert_int_equal(child_that_dies(-1, fd[1], 1), CA_UNAVAILABLE);
	close(fd[1]);
	assert_in_range(read(fd[0], said, sizeof said - 1), 7, 60);
	assert_string_equal(said + strlen(said) - 7, ": gone\n");
	assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
	close(fd[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(err_escapes_and_cuts),
		cmocka_unit_test(err_carries_errno_and_context),
		cmocka_unit_test(arena_gives_zeroed_aligned_memory),
		cmocka_unit_test(arena_refuses_overflow_and_cap),
		cmocka_unit_test(str_grows_and_keeps_its_cap),
		cmocka_unit_test(str_makes_child_output_safe),
		cmocka_unit_test(utf8_knows_its_edges),
		cmocka_unit_test(hashes_match_published_values),
		cmocka_unit_test(hash_parts_do_not_run_together),
		cmocka_unit_test(proc_reads_lines_and_fields),
		cmocka_unit_test(sums_tell_bytes_apart),
		cmocka_unit_test(sums_spread_top_bits),
		cmocka_unit_test(seeds_replay),
		cmocka_unit_test(dies_wherever_it_is),
	};

	return RUN_TESTS(tests);
}
