/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/build without compilers: names, workdirs, compilers' texts, the cache,
 * devices, the queue.
 */
#define _GNU_SOURCE
#include "tests.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "build/cache.h"
#include "build/device.h"
#include "build/limits.h"
#include "build/log.h"
#include "build/source.h"
#include "build/workdir.h"

static char dir[4000];
static struct arena arena;

static int setup(void **state)
{
	(void)state;
	return make_temp_dir("build-test", dir, sizeof(dir), NULL) ||
	       setenv("CA_CACHE", dir, 1);
}

static int teardown(void **state)
{
	(void)state;
	arena_release(&arena);
	return remove_tree(dir, NULL);
}

static void names(void **state)
{
	static const char *const good[] = {
		"model_new.py", "binding.cpp", "binding_registry.h",
		"kernels/a.cu", "kernels/a-b_c.1+x.cuh", "kernels/d/e/a.hpp",
		"kernels/_x.c", "kernels/1.cc", "kernels/a.h",
	};
	static const char *const bad[] = {
		"model.py", "kernels", "kernels/", "kernels/a.so",
		"kernels/a.o", "kernels/a", "kernels/.cu", "kernels/.a.cu",
		"kernels/../a.cu", "kernels//a.cu", "/kernels/a.cu",
		"./kernels/a.cu", "kernels/a b.cu", "kernels/a\n.cu",
		"kernels/-o.cu", "kernels/a.cu/", "kernels/a.py",
		"kernels/1/2/3/4/5/a.cu", "kernels/\xc3\xa9.cu", "a.cu", "",
		"kernels/d/../a.cu", "kernels/$(x).cu", "kernels/'.cu",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (!source_allowed(good[i]))
			fail_msg("'%s' is refused", good[i]);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (source_allowed(bad[i]))
			fail_msg("'%s' is allowed", bad[i]);
	assert_true(source_compiled("kernels/a.cu"));
	assert_true(source_compiled("binding.cpp"));
	assert_false(source_compiled("kernels/d/a.cu"));
	assert_false(source_compiled("kernels/a.cuh"));
	assert_false(source_compiled("model_new.py"));
}

static void includes(void **state)
{
	static const char line[] = "{\"kind\":\"candidate\",\"v\":1,\"files\":{"
		"\"kernels/b.cu\":\"#include \\\"a.cu\\\"\\n"
		"#  include \\\"./c.cu\\\"\\n/*\\n#include \\\"e.cu\\\"\\n*/\","
		"\"kernels/a.cu\":\"#include <cblas.h>\","
		"\"kernels/c.cu\":\"\",\"kernels/e.cu\":\"#include "
		"\\\"e.cu\\\"\",\"x.cu\":\"\",\"model_new.py\":\"#include "
		"\\\"e.cu\\\"\"}}";
	struct source_tree t;
	struct err e = ERR_INIT;
	struct rec r;

	(void)state;
	rec_init(&r);
	assert_int_equal(rec_parse(&r, line, strlen(line), NULL, &e), 0);
	assert_int_equal(source_read(&r, &arena, &t, &e), 0);
	assert_int_equal(t.n, 5);
	assert_string_equal(t.file[0].path, "kernels/a.cu");
	assert_true(source_find(&t, "kernels/a.cu")->included);
	assert_false(source_find(&t, "kernels/b.cu")->included);
	assert_true(source_find(&t, "kernels/c.cu")->included);
	assert_false(source_find(&t, "kernels/e.cu")->included);
	assert_null(source_find(&t, "x.cu"));
	assert_true(source_includes(&t, "cblas.h"));
	assert_false(source_includes(&t, "cudnn.h"));
	rec_release(&r);
}

static void put(const char *name, const char *text)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(write_file_atomic(path, text, strlen(text), 0644,
					   NULL), 0);
}

static char noted[512];

static void note(void *ctx, const char *path, const char *why, int source)
{
	(void)ctx;
	snprintf(noted + strlen(noted), sizeof(noted) - strlen(noted),
		 "%s: %s%s\n", path, why, source ? ", a source" : "");
}

static void workdir_there_and_back(void **state)
{
	char path[4096];
	struct err e = ERR_INIT;
	struct rec r, s;

	(void)state;
	snprintf(path, sizeof(path), "%s/kernels", dir);
	assert_int_equal(mkdir_p(path, 0755, NULL), 0);
	put("model.py", "class Model: \"\xc3\xa9\"\n");
	put("kernels/b.cu", "// \"\\\t\n");
	put("kernels/a.c", "");
	put("notes.txt", "x");
	snprintf(path, sizeof(path), "%s/kernels/link.c", dir);
	assert_int_equal(symlink("a.c", path), 0);
	rec_init(&r);
	rec_init(&s);
	noted[0] = '\0';
	assert_int_equal(workdir_read_note(dir, &r, note, NULL, &e), 0);
	assert_non_null(strstr(noted, "notes.txt: not a source file\n"));
	assert_non_null(strstr(noted, "kernels/link.c: symbolic link, a "
			       "source\n"));
	assert_int_equal(r.kind, REC_CANDIDATE);
	assert_int_equal(json_len(rec_get(&r, "files")), 2);
	assert_string_equal(json_str(rec_get(&r, "rules"), ""), "paper");
	assert_string_equal(json_str(rec_get(&r, "name"), ""),
			    strrchr(dir, '/') + 1);
	snprintf(path, sizeof(path), "%s/copy", dir);
	assert_int_equal(workdir_write(workdir_code(&r), rec_get(&r, "files"),
				       path, &e), 0);
	assert_int_equal(workdir_read(path, &s, &e), 0);
	assert_string_equal(json_str(rec_get(&r, "id"), "r"),
			    json_str(rec_get(&s, "id"), "s"));
	assert_int_equal(workdir_write("x", NULL, path, &e), -1);
	assert_int_equal(e.code, CA_CANTCREAT);
	assert_int_equal(workdir_write(NULL, NULL, path, &e), -1);
	assert_int_equal(e.code, CA_DATAERR);
	rec_release(&r);
	rec_release(&s);
}

static void first_error_is(const char *text, const char *file, long line,
			   const char *message)
{
	struct first_error e;

	log_first_error(text, strlen(text), &arena, &e);
	assert_string_equal(e.message, message);
	assert_int_equal(e.line, line);
	if (file)
		assert_string_equal(e.file, file);
	else
		assert_null(e.file);
}

static void first_errors(void **state)
{
	(void)state;
	first_error_is("In file included from kernels/a.c:1:\n"
		       "kernels/a.h:3:7: error: unknown type name 'x'\n"
		       "kernels/a.c:9:1: error: second\n",
		       "kernels/a.h", 3, "unknown type name 'x'");
	first_error_is("kernels/a.cu(12): error: identifier \"q\" is "
		       "undefined\n", "kernels/a.cu", 12,
		       "identifier \"q\" is undefined");
	first_error_is("kernels/a.c:1:10: fatal error: no.h: No such file\n",
		       "kernels/a.c", 1, "no.h: No such file");
	first_error_is("{standard input}: Assembler messages:\n"
		       "{standard input}:5: Error: file not found: x\n",
		       "{standard input}", 5, "file not found: x");
	first_error_is("/usr/bin/ld: ../obj/0.o: in function `f':\n"
		       "x.cpp:(.text+0x1): undefined reference to `g()'\n"
		       "collect2: error: ld returned 1 exit status\n", NULL, 0,
		       "x.cpp:(.text+0x1): undefined reference to `g()'");
	first_error_is("ptxas fatal   : Unresolved extern function 'z'\n",
		       NULL, 0,
		       "ptxas fatal   : Unresolved extern function 'z'");
	first_error_is("note\nnvcc fatal   : Unsupported gpu architecture\n",
		       NULL, 0,
		       "nvcc fatal   : Unsupported gpu architecture");
	first_error_is("\nsomething else\n", NULL, 0, "something else");
	first_error_is("", NULL, 0, "the compiler failed without a message");
	first_error_is("a:7: error: \x01\xff\n", "a", 7, "\\x01\\xff");
	first_error_is("a:99999999999999999999: error: x", NULL, 0,
		       "a:99999999999999999999: error: x");
	first_error_is(": error: x", NULL, 0, ": error: x");
	first_error_is("12: error: x\n(3): error: y", NULL, 0,
		       "12: error: x");
}

static void made_up_names_settle(void **state)
{
	struct str s = STR_INIT;

	(void)state;
	str_adds(&s, "/tmp/ccAbC123.o x /tmp/ccAbC123.res /tmp/ccnot "
		 "/tmp/tmpxft_0000002a_00000000-6_deed.ptx /tmp/other /tmp/");
	log_settle(&s);
	assert_string_equal(s.buf, "/tmp/cc.o x /tmp/cc.res /tmp/ccnot "
			    "/tmp/deed.ptx /tmp/other /tmp/");
	str_release(&s);
	log_settle(&s);
}

static void logs_are_cut(void **state)
{
	struct str in = STR_INIT, out = STR_INIT;
	size_t i;

	(void)state;
	log_add(&out, "a\x01\n", 3);
	assert_string_equal(out.buf, "a\\x01\n");
	str_reset(&out);
	for (i = 0; i < 4000; i++)
		str_adds(&in, "line of text\n");
	log_add(&out, in.buf, in.len);
	assert_true(out.len <= LOG_MAX);
	assert_true(ends_with(out.buf, "text\n(log cut here)\n"));
	str_reset(&out);
	str_reset(&in);
	for (i = 0; i < 20000; i++)
		str_adds(&in, "\xc3\xa9");
	log_add(&out, in.buf, in.len);
	assert_true(out.len <= LOG_MAX);
	assert_int_equal(strlen(out.buf), out.len);
	assert_int_equal((unsigned char)out.buf[out.len -
			 strlen("\n(log cut here)\n") - 1], 0xa9);
	str_release(&in);
	str_release(&out);
}

static void cache_keeps_and_drops(void **state)
{
	char key[CACHE_KEY], path[CA_PATH_MAX], first[CA_PATH_MAX];
	struct err e = ERR_INIT;
	struct str meta = STR_INIT;
	FILE *f;
	long long limit;
	int i;

	(void)state;
	memset(key, 'a', sizeof(key) - 1);
	key[CACHE_KEY - 1] = '\0';
	assert_int_equal(cache_get(key, path, NULL, &e), 0);
	assert_int_equal(cache_put(key, "object", 6, "\"form\":\"light\"",
				   first, &e), 0);
	assert_int_equal(cache_get(key, path, &meta, &e), 1);
	assert_string_equal(path, first);
	assert_non_null(strstr(meta.buf, "\"form\":\"light\""));
	assert_true(cache_have(key));
	f = fopen(path, "r+");
	fputc('O', f);
	fclose(f);
	assert_true(cache_have(key));	/* as long as before */
	assert_int_equal(cache_get(key, path, NULL, &e), 0);
	assert_false(cache_have(key));
	assert_int_not_equal(access(path, F_OK), 0);
	setenv("CA_OBJ_MAX", "1K", 1);
	assert_int_equal(cache_limit(&limit, &e), 0);
	assert_int_equal(limit, 1024);
	for (i = 0; i < 6; i++) {
		static const char *const wrong[] = { "1K2", "x", "-1", "1 G",
						     "9999999999", "1KG" };

		setenv("CA_OBJ_MAX", wrong[i], 1);
		assert_int_equal(cache_limit(NULL, &e), -1);
		assert_int_equal(e.code, CA_CONFIG);
		err_clear(&e);
	}
	setenv("CA_OBJ_MAX", "1K", 1);
	for (i = 0; i < 8; i++) {
		key[0] = (char)('0' + i);
		assert_int_equal(cache_put(key, dir, 300, "\"x\":1", path,
					   &e), 0);
	}
	assert_true(cache_have(key));
	key[0] = '0';
	assert_false(cache_have(key));
	unsetenv("CA_OBJ_MAX");
	str_release(&meta);
}

static void large_entries_are_read_once(void **state)
{
	char key[CACHE_KEY], path[CA_PATH_MAX];
	struct err e = ERR_INIT;
	FILE *f;

	(void)state;
	memset(key, 'c', sizeof(key) - 1);
	key[CACHE_KEY - 1] = '\0';
	assert_int_equal(cache_get_large(key, path, &e), 0);
	assert_int_equal(cache_put(key, "object", 6, "\"x\":1", path, &e), 0);
	assert_int_equal(cache_get_large(key, path, &e), 1);
	assert_int_equal(cache_get_large(key, path, &e), 1);
	/* Of the same length, at another time by the file system's clock. */
	usleep(50000);
	f = fopen(path, "r+");
	assert_non_null(f);
	fputs("x", f);
	fclose(f);
	assert_int_equal(cache_get_large(key, path, &e), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(e.code, 0);
}

static void a_cache_that_cannot_be_written(void **state)
{
	char key[CACHE_KEY], path[CA_PATH_MAX], blocked[4096];
	struct err e = ERR_INIT;

	(void)state;
	memset(key, 'b', sizeof(key) - 1);
	key[CACHE_KEY - 1] = '\0';
	put("file", "x");
	snprintf(blocked, sizeof(blocked), "%s/file", dir);
	setenv("CA_CACHE", blocked, 1);
	assert_int_equal(cache_put(key, "o", 1, "\"x\":1", path, &e), -1);
	assert_int_not_equal(e.code, 0);
	setenv("CA_CACHE", dir, 1);
}

static void devices(void **state)
{
	static const char *const good[] = { "cpu", "cuda", "cuda:0",
					    "cuda:12" };
	static const char *const bad[] = { "", "gpu", "cuda:", "cuda:x",
					   "cuda:-1", "cuda:1234", "cpu:0" };
	static const char *const bad_arch[] = { "", "sm_", "sm_9", "90",
						"sm_90x", "sm_90aa", "sm_a90",
						"compute_90", "sm_90;x" };
	char arch[16];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(device_check(good[i], NULL), 0);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(device_check(bad[i], NULL), -1);
	for (i = 0; i < sizeof(bad_arch) / sizeof(*bad_arch); i++)
		assert_int_equal(device_check_arch(bad_arch[i], NULL), -1);
	assert_int_equal(device_check_arch("sm_90", NULL), 0);
	assert_int_equal(device_check_arch("sm_100f", NULL), 0);
	device_arch("cuda:63", arch);
	assert_int_equal(device_check_arch(arch, NULL), 0);
}

static _Atomic int together, most, alone_beside;

static void *compiler(void *arg)
{
	int64_t memory = arg ? LIMITS_ALONE : 1 << 20;
	int now;

	if (limits_enter(memory, 3, deadline_in(60)) < 0)
		return arg;
	now = ++together;
	if (now > most)
		most = now;
	if (arg && now > 1)
		alone_beside = 1;
	usleep(2000);
	together--;
	limits_leave(memory);
	return NULL;
}

static void gpus_are_noted(void **state)
{
	static const char text[] =
		"sm_90a GPU-0a1b2c3d-0000-1111-2222-333344445555\n"
		"sm_80 MIG-0a1b2c3d-0000-1111-2222-333344445555\n";
	static const char *const bad[] = {
		"", "\n", "sm_90a\n", "sm_90a GPU-1", "sm_90a GPU-1 x\n",
		"sm_9 GPU-1\n", "sm_90a GPU-1\nsm_90a\n", "sm_90a GPU/1\n",
		"sm_90a GPU-0a1b2c3d-0000-1111-2222-3333444455556\n",
	};
	struct str out = STR_INIT;
	struct gpus g;

	(void)state;
	assert_int_equal(gpus_read(text, &g), 0);
	assert_int_equal(g.n, 2);
	assert_string_equal(g.gpu[1].arch, "sm_80");
	gpus_write(&g, &out);
	assert_string_equal(out.buf, text);
	str_release(&out);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(gpus_read(bad[i], &g), -1);
}

static void the_queue_keeps_its_limits(void **state)
{
	pthread_t t[24];
	struct limits l;
	size_t i;

	(void)state;
	limits_read(&l);
	assert_true(l.cores >= 1);
	for (i = 0; i < 24; i++)
		pthread_create(&t[i], NULL, compiler, i % 8 == 3 ? t : NULL);
	for (i = 0; i < 24; i++)
		pthread_join(t[i], NULL);
	assert_true(most <= 3 && most <= (l.cores > 1 ? l.cores : 1));
	assert_int_equal(alone_beside, 0);
	/* one may always run, a second one waits until the deadline */
	assert_int_equal(limits_enter(INT64_MAX / 2, 1, 0), 0);
	assert_int_equal(limits_enter(1, 1, 0), -1);
	limits_leave(INT64_MAX / 2);
	assert_int_equal(limits_enter(1, 1, 0), 0);
	limits_leave(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(includes),
		cmocka_unit_test(workdir_there_and_back),
		cmocka_unit_test(first_errors),
		cmocka_unit_test(made_up_names_settle),
		cmocka_unit_test(logs_are_cut),
		cmocka_unit_test(cache_keeps_and_drops),
		cmocka_unit_test(large_entries_are_read_once),
		cmocka_unit_test(a_cache_that_cannot_be_written),
		cmocka_unit_test(devices),
		cmocka_unit_test(gpus_are_noted),
		cmocka_unit_test(the_queue_keeps_its_limits),
	};

	return cmocka_run_group_tests_name("build", tests, setup, teardown);
}
