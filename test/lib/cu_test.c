/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/cu without a GPU: names, errors, NVRTC with its cache, the lease.  What
 * needs a GPU is in test/gpu.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/io.h"
#include "cu/cu.h"
#include "cu/lease.h"
#include "cu/nvml.h"
#include "cu/nvrtc.h"
#include "judge/cuda_source.h"

static char cache[4096];

static int setup(void **state)
{
	(void)state;
	if (make_temp_dir("cu-test", cache, sizeof(cache), NULL))
		return -1;
	return setenv("CA_CACHE", cache, 1);
}

static int teardown(void **state)
{
	(void)state;
	return remove_tree(cache, NULL);
}

static void device_names(void **state)
{
	static const char *const bad[] = {
		"cpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda0",
		"cuda:99999999999", "",
	};
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err_clear(&e);
		assert_int_equal(cu_find(bad[i], &e), -1);
		assert_int_equal(e.code, CA_USAGE);
	}
	err_clear(&e);
	assert_int_equal(cu_find("cuda:1000", &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
}

static void no_driver_is_an_error(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (cu_api(&e))
		skip();		/* there is one */
	assert_int_equal(e.code, CA_UNAVAILABLE);
	assert_int_equal(cu_count(NULL), -1);
	assert_null(cu_dev_open(0, NULL));
}

/* A library as a wheel brings it, found by the Python whose it is. */
static void wheels_are_looked_through(void **state)
{
	static const char *const place[] = {
		"site-packages/nvidia/nccl/lib/libca-one.so.2",
		"dist-packages/nvidia/cu13/lib/libca-two.so.13",
		"site-packages/nvidia/cuda_any/lib/libca-three.so.12",
	};
	static const char *const stem[] = { "libca-one.so", "libca-two.so",
					    "libca-three.so" };
	char path[4400], dir[4400], where[CA_PATH_MAX];
	void *some = dlopen("libm.so.6", RTLD_NOW);
	struct err e = ERR_INIT;
	Dl_info info;

	(void)state;
	assert_non_null(some);
	assert_int_not_equal(dladdr(dlsym(some, "cos"), &info), 0);
	snprintf(path, sizeof(path), "%s/bin", cache);
	assert_int_equal(mkdir_p(path, 0755, &e), 0);
	snprintf(path, sizeof(path), "%s/bin/python3", cache);
	assert_int_equal(symlink("/bin/true", path), 0);
	setenv("CA_PYTHON", path, 1);
	for (size_t i = 0; i < 3; i++) {
		assert_null(cu_open_lib(stem[i], where, NULL));
		snprintf(path, sizeof(path), "%s/lib/python3.99/%s", cache,
			 place[i]);
		strcpy(dir, path);
		*strrchr(dir, '/') = '\0';
		assert_int_equal(mkdir_p(dir, 0755, &e), 0);
		assert_int_equal(symlink(info.dli_fname, path), 0);
		assert_non_null(cu_open_lib(stem[i], where, &e));
		assert_string_equal(where, path);
	}
	unsetenv("CA_PYTHON");
}

static int entries(void)
{
	char dir[4200];
	struct dirent *d;
	DIR *f;
	int n = 0;

	snprintf(dir, sizeof(dir), "%s/cubin", cache);
	f = opendir(dir);
	while (f && (d = readdir(f)))
		n += d->d_name[0] != '.';
	if (f)
		closedir(f);
	return n;
}

/* Cuts the only entry of the cache short. */
static void damage(void)
{
	char path[4600];
	struct dirent *d;
	DIR *f;

	snprintf(path, sizeof(path), "%s/cubin", cache);
	f = opendir(path);
	assert_non_null(f);
	while ((d = readdir(f)))
		if (d->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/cubin/%s", cache,
				 d->d_name);
			assert_int_equal(truncate(path, 100), 0);
		}
	closedir(f);
}

static void nvrtc_and_its_cache(void **state)
{
	static const char text[] =
		"#include \"n.h\"\n"
		"extern \"C\" __global__ void k(int *p) { *p = N; }\n";
	const struct nvrtc_text header = { "n.h", "#define N 7\n" };
	struct nvrtc_job job = {
		.source = { "k.cu", text }, .headers = &header,
		.nheaders = 1, .major = 9, .minor = 0,
	};
	struct str a = STR_INIT, b = STR_INIT;
	struct err e = ERR_INIT;

	(void)state;
	if (!nvrtc_version(&e)) {
		assert_int_equal(e.code, CA_UNAVAILABLE);
		skip();
	}
	assert_int_equal(nvrtc_compile(&job, &a, &e), 0);
	assert_memory_equal(a.buf, "\177ELF", 4);
	assert_int_equal(entries(), 1);
	assert_int_equal(nvrtc_compile(&job, &b, &e), 0);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.buf, b.buf, a.len);
	assert_int_equal(entries(), 1);

	damage();
	str_reset(&b);
	assert_int_equal(nvrtc_compile(&job, &b, &e), 0);
	assert_int_equal(a.len, b.len);

	job.minor = 1;		/* no such architecture */
	assert_int_equal(nvrtc_compile(&job, &b, &e), -1);
	job.minor = 0;
	job.source.text = "extern \"C\" __global__ void k() { nonsense; }\n";
	assert_int_equal(nvrtc_compile(&job, &b, &e), -1);
	assert_int_equal(e.code, CA_DATAERR);
	assert_non_null(strstr(e.msg, "nonsense"));
	str_release(&a);
	str_release(&b);
}

static void judge_kernels_compile(void **state)
{
	static const int arch[][2] = { { 7, 5 }, { 8, 0 }, { 9, 0 } };
	struct str s = STR_INIT;
	struct err e = ERR_INIT;

	(void)state;
	if (!nvrtc_version(NULL))
		skip();
	for (size_t i = 0; i < sizeof(arch) / sizeof(arch[0]); i++) {
		str_reset(&s);
		if (cuda_source_compile(arch[i][0], arch[i][1], &s, &e))
			fail_msg("%s", e.msg);
		assert_memory_equal(s.buf, "\177ELF", 4);
	}
	str_release(&s);
}

static void lease_excludes(void **state)
{
	struct err e = ERR_INIT;
	int a, b;

	(void)state;
	a = lease_take("GPU-test", 1, 0, &e);
	assert_true(a >= 0);
	b = lease_take("GPU-test", 0, 0, &e);
	assert_int_equal(b, -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	close(a);
	a = lease_take("GPU-test", 0, 0, &e);
	b = lease_take("GPU-test", 0, 0, &e);
	assert_true(a >= 0 && b >= 0);
	close(a);
	close(b);
}

/* Shared holders that follow each other do not starve who wants it alone. */
static void an_exclusive_waiter_comes_first(void **state)
{
	struct err e = ERR_INIT;
	int64_t end = deadline_in(20);
	int a = lease_take("GPU-test", 0, 0, &e), b, status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		close(a);
		_exit(lease_take("GPU-test", 1, 30, &e) < 0);
	}
	assert_true(a >= 0 && pid > 0);
	while ((b = lease_take("GPU-test", 0, 0, &e)) >= 0) {
		close(b);
		assert_true(now_ns() < end);
	}
	close(a);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	b = lease_take("GPU-test", 0, 0, &e);
	assert_true(b >= 0);
	close(b);
}

/* A process is registered while it lives, and no longer. */
static void knows_who_keeps_to_the_lease(void **state)
{
	struct err e = ERR_INIT;
	int fd = lease_register("GPU-test", getpid(), &e), pipes[2], status;
	int again = lease_register("GPU-test", getpid(), &e);
	char ready;
	pid_t pid;

	(void)state;
	assert_true(fd >= 0);
	assert_true(lease_registered("GPU-test", getpid()));
	assert_false(lease_registered("GPU-other", getpid()));
	assert_false(lease_registered("GPU-test", getppid()));
	/* Said by two, it holds until both have left. */
	assert_true(again >= 0);
	lease_unregister("GPU-test", getpid(), fd);
	assert_true(lease_registered("GPU-test", getpid()));
	lease_unregister("GPU-test", getpid(), again);
	assert_false(lease_registered("GPU-test", getpid()));

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		ready = lease_register("GPU-test", getpid(), NULL) >= 0;
		(void)!write(pipes[1], &ready, 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipes[0], &ready, 1), 1);
	assert_true(ready && lease_registered("GPU-test", pid));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_false(lease_registered("GPU-test", pid));
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_names),
		cmocka_unit_test(no_driver_is_an_error),
		cmocka_unit_test(wheels_are_looked_through),
		cmocka_unit_test(nvrtc_and_its_cache),
		cmocka_unit_test(judge_kernels_compile),
		cmocka_unit_test(lease_excludes),
		cmocka_unit_test(an_exclusive_waiter_comes_first),
		cmocka_unit_test(knows_who_keeps_to_the_lease),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
