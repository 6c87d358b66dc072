/* SPDX-License-Identifier: Apache-2.0
 *
 * What an untrusted answer may claim, and the CPU's memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "judge/cuda.h"
#include "judge/device.h"
#include "judge/session.h"

static struct ca_msg one(uint32_t dtype, uint32_t ndim, uint64_t offset)
{
	struct ca_msg m;

	memset(&m, 0, sizeof(m));
	m.nleaf = 1;
	m.leaf[0].kind = LEAF_TENSOR;
	m.leaf[0].dtype = dtype;
	m.leaf[0].ndim = ndim;
	m.leaf[0].offset = offset;
	for (uint32_t i = 0; i < CA_NDIM; i++)
		m.leaf[0].shape[i] = 2;
	return m;
}

static void test_leaves_inside(void **state)
{
	struct extent ext[CA_LEAVES];
	struct ca_msg m = one(DT_F32, 2, 48);

	(void)state;
	assert_int_equal(leaves_check(&m, 64, ext), 0);
	assert_int_equal(ext[0].offset, 48);
	assert_int_equal(ext[0].bytes, 16);
	m.leaf[0].shape[0] = 0;
	assert_int_equal(leaves_check(&m, 64, ext), 0);
	assert_int_equal(ext[0].bytes, 0);
}

static void test_leaves_outside(void **state)
{
	struct extent ext[CA_LEAVES];
	struct ca_msg m = one(DT_F32, 2, 49);

	(void)state;
	assert_int_equal(leaves_check(&m, 64, ext), -1);
	m.leaf[0].offset = UINT64_MAX - 7;
	assert_int_equal(leaves_check(&m, 64, ext), -1);
	m = one(DT_F32, 2, 0);
	m.leaf[0].shape[0] = INT64_MAX;
	assert_int_equal(leaves_check(&m, SIZE_MAX, ext), -1);
	m.leaf[0].shape[0] = -1;
	assert_int_equal(leaves_check(&m, 64, ext), -1);
}

static void test_blocks(void **state)
{
	static const struct { uint64_t from, to; int rc; } row[] = {
		{ 0, 0, 0 }, { 0, 64, 0 }, { 63, 64, 0 }, { 64, 64, -1 },
		{ 8, 0, -1 }, { 9, 8, -1 }, { 0, 65, -1 },
		{ UINT64_MAX, 0, -1 }, { 0, UINT64_MAX, -1 },
	};
	struct extent ext[CA_LEAVES];
	struct ca_msg m = one(DT_F32, 2, 0);

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		m.leaf[0].from = row[i].from;
		m.leaf[0].to = row[i].to;
		assert_int_equal(leaves_check(&m, 64, ext), row[i].rc);
	}
}

static void test_leaves_absurd(void **state)
{
	struct extent ext[CA_LEAVES];
	struct ca_msg m = one(DT_F32, CA_NDIM + 1, 0);

	(void)state;
	assert_int_equal(leaves_check(&m, 1 << 20, ext), -1);
	m = one(DT_COUNT, 1, 0);
	assert_int_equal(leaves_check(&m, 64, ext), -1);
	m = one(DT_NONE, 1, 0);
	assert_int_equal(leaves_check(&m, 64, ext), -1);
	m = one(DT_F32, 1, 0);
	m.leaf[0].kind = 0;
	assert_int_equal(leaves_check(&m, 64, ext), -1);
	m.leaf[0].kind = LEAF_TENSOR;
	m.nleaf = CA_LEAVES + 1;
	assert_int_equal(leaves_check(&m, 64, ext), -1);
}

static void test_cpu_memory(void **state)
{
	struct device *d = device_open("cpu", NULL);
	struct err e = ERR_INIT;
	struct mem a, b;
	char back[16];

	(void)state;
	assert_non_null(d);
	/* Refused before anything is taken: nobody else's is needed for it. */
	assert_int_equal(d->ops->shared(d, (size_t)1 << 46, 0, &a, &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "are free"));
	assert_int_equal(d->ops->shared(d, 100, 0, &a, NULL), 0);
	assert_int_equal(d->ops->private_mem(d, 100, &b, NULL), 0);
	assert_int_equal(ftruncate(a.fd, 0), -1);
	assert_int_equal(ftruncate(a.fd, 1 << 20), -1);
	assert_int_equal(fcntl(a.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(d->ops->upload(d, &a, 4, "abcdefgh", 8, NULL), 0);
	assert_int_equal(d->ops->copy(d, &b, 0, &a, 4, 8, NULL), 0);
	assert_int_equal(d->ops->download(d, back, &b, 0, 8, NULL), 0);
	assert_memory_equal(back, "abcdefgh", 8);
	assert_int_equal(d->ops->differs(d, &a, 4, &b, 0, 8, NULL), 0);
	assert_int_equal(d->ops->poison(d, &b, 7, 1, 99, NULL), 0);
	assert_int_equal(d->ops->differs(d, &a, 4, &b, 0, 7, NULL), 0);
	assert_int_equal(d->ops->copy(d, &b, b.bytes, &a, 0, 1, NULL), -1);
	assert_int_equal(d->ops->upload(d, &a, SIZE_MAX, "x", 1, NULL), -1);
	d->ops->release(d, &a);
	d->ops->release(d, &b);
	assert_null(a.p);
	device_close(d);
}

/* Another process may hold a dead runner's end of its channel: no sign of
 * life, and no time that ran out. */
static void test_gone_with_an_open_channel(void **state)
{
	struct device *d = device_open("cpu", NULL);
	struct runner r = { .child = { .fd = -1 }, .ended = -1 };
	struct ca_msg m;
	int end[2];

	(void)state;
	assert_non_null(d);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, end), 0);
	r.child.fd = end[0];
	r.child.pid = fork();
	if (!r.child.pid)
		for (;;)
			pause();
	assert_int_equal(d->ops->attach(d, &r, NULL), 0);
	kill(r.child.pid, SIGKILL);
	assert_int_equal(d->ops->answer(d, &r, &m, deadline_in(60)),
			 WAIT_GONE);
	d->ops->detach(d, &r);
	assert_int_equal(r.ended, SIGKILL);
	close(end[0]);
	close(end[1]);
	device_close(d);
}

static void test_no_such_device(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_null(device_open("tpu", &e));
	assert_int_equal(e.code, CA_USAGE);
	assert_null(device_open("cuda:", &e));
	assert_int_equal(e.code, CA_USAGE);
	assert_null(device_open("cuda:4096", &e));
	assert_int_equal(e.code, CA_USAGE);
}

/* What device_lease() says on stderr. */
static int said(struct device *d, double seconds, double patience, char *text,
		size_t n)
{
	FILE *f = tmpfile();
	int old = dup(2), rc;
	size_t got;

	assert_non_null(f);
	dup2(fileno(f), 2);
	rc = device_lease(d, 0, seconds, patience, NULL);
	fflush(stderr);
	dup2(old, 2);
	close(old);
	rewind(f);
	got = fread(text, 1, n - 1, f);
	text[got] = '\0';
	fclose(f);
	return rc;
}

static void test_waiting_is_said(void **state)
{
	struct device *a = device_open("cpu", NULL);
	struct device *b = device_open("cpu", NULL);
	char dir[] = "/tmp/lease.XXXXXX", text[256];

	(void)state;
	assert_non_null(mkdtemp(dir));
	setenv("CA_CACHE", dir, 1);
	assert_int_equal(a->ops->lease(a, 1, 1, NULL), 0);
	assert_int_equal(said(b, 0.3, 0.1, text, sizeof(text)), -1);
	assert_non_null(strstr(text, "waiting for the device 'cpu'"));
	assert_int_equal(said(b, 0.3, 0.1, text, sizeof(text)), -1);
	assert_string_equal(text, "");		/* not again */
	b->waited = 0;
	warn_quiet(1);
	assert_int_equal(said(b, 0.3, 0.1, text, sizeof(text)), -1);
	assert_string_equal(text, "");
	warn_quiet(0);
	a->ops->unlease(a);
	assert_int_equal(said(b, 0.3, 0.1, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	b->ops->unlease(b);
	device_close(a);
	device_close(b);
	unsetenv("CA_CACHE");
	snprintf(text, sizeof(text), "rm -r '%s'", dir);
	assert_int_equal(system(text), 0);
}

/* A machine whose cores have two threads, `apart` numbers from each other. */
static void make_cores(const char *root, int n, int apart)
{
	for (int i = 0; i < n; i++) {
		int low = apart == 1 ? i & ~1 : i % apart;
		char path[128];
		FILE *f;

		snprintf(path, sizeof(path),
			 "mkdir -p %s/cpu%d/topology", root, i);
		assert_int_equal(system(path), 0);
		snprintf(path, sizeof(path),
			 "%s/cpu%d/topology/thread_siblings_list", root, i);
		f = fopen(path, "w");
		assert_non_null(f);
		fprintf(f, apart == 1 ? "%d-%d\n" : "%d,%d\n", low,
			low + apart);
		fclose(f);
	}
}

/* Of judges on several GPUs none shares a core with another. */
static void test_cores_of_gpus(void **state)
{
	static const int apart[] = { 1, 8 };

	(void)state;
	for (int k = 0; k < 2; k++) {
		char dir[] = "/tmp/cores.XXXXXX", may[CUDA_CPUS] = { 0 };
		char used[8] = { 0 }, text[64];
		struct cuda_cpus c;

		assert_non_null(mkdtemp(dir));
		make_cores(dir, 16, apart[k]);
		memset(may, 1, 16);
		may[15] = 0;		/* its other thread will do */
		for (int gpu = 0; gpu < 4; gpu++) {
			int core[2];

			cuda_cpus_choose(&c, gpu, may, dir);
			assert_true(c.judge >= 0 && c.runner >= 0);
			core[0] = apart[k] == 1 ? c.judge / 2 : c.judge % 8;
			core[1] = apart[k] == 1 ? c.runner / 2 : c.runner % 8;
			for (int i = 0; i < 2; i++)
				assert_int_equal(used[core[i]]++, 0);
		}
		cuda_cpus_choose(&c, 4, may, dir);
		assert_int_equal(c.judge, -1);
		assert_int_equal(c.runner, -1);
		snprintf(text, sizeof(text), "rm -r '%s'", dir);
		assert_int_equal(system(text), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leaves_inside),
		cmocka_unit_test(test_leaves_outside),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_leaves_absurd),
		cmocka_unit_test(test_cpu_memory),
		cmocka_unit_test(test_gone_with_an_open_channel),
		cmocka_unit_test(test_no_such_device),
		cmocka_unit_test(test_waiting_is_said),
		cmocka_unit_test(test_cores_of_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
