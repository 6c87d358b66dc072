/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge's CUDA device against a second process on the same GPU.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/rand.h"
#include "cu/cu.h"
#include "judge/compare.h"
#include "judge/device.h"
#include "peer.h"

#define MIB ((size_t)1 << 20)

static struct device *dev;

static void random_bytes(void *p, size_t n)
{
	struct rng r;

	rng_seeded(&r, 7);
	rng_fill(&r, p, n);
}

static void *need(size_t n)
{
	void *p = malloc(n);

	assert_non_null(p);
	return p;
}

static void check(int rc, const struct err *e)
{
	if (rc)
		fail_msg("%s", e->msg);
}

static void memory(void **state)
{
	struct mem a, b;
	struct err e = ERR_INIT;
	size_t n = 3 * MIB + 13;
	char *x = need(n), *y = need(n);

	(void)state;
	random_bytes(x, n);
	check(dev->ops->shared(dev, n, 0, &a, &e), &e);
	check(dev->ops->private_mem(dev, n, &b, &e), &e);
	assert_true(a.fd >= 0 && b.fd == -1 && a.bytes >= n);
	check(dev->ops->download(dev, y, &a, 0, n, &e), &e);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(y[i], 0);
	check(dev->ops->upload(dev, &a, 5, x, n - 5, &e), &e);
	/* Neither end aligned. */
	check(dev->ops->copy(dev, &b, 3, &a, 5, n - 5, &e), &e);
	check(dev->ops->download(dev, y, &b, 3, n - 5, &e), &e);
	assert_memory_equal(x, y, n - 5);
	assert_int_equal(dev->ops->copy(dev, &b, b.bytes, &a, 0, 1, &e), -1);
	dev->ops->release(dev, &a);
	dev->ops->release(dev, &b);
	free(x);
	free(y);
}

static void differences(void **state)
{
	static const size_t at[] = { 0, 1, 7, 8, 4095, 2 * MIB, 2 * MIB + 12 };
	struct mem a, b;
	struct err e = ERR_INIT;
	size_t n = 2 * MIB + 13;
	char *x = need(n);

	(void)state;
	random_bytes(x, n);
	check(dev->ops->private_mem(dev, n, &a, &e), &e);
	check(dev->ops->private_mem(dev, n, &b, &e), &e);
	check(dev->ops->upload(dev, &a, 0, x, n, &e), &e);
	check(dev->ops->upload(dev, &b, 0, x, n, &e), &e);
	assert_int_equal(dev->ops->differs(dev, &a, 0, &b, 0, n, &e), 0);
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		char c = (char)(x[at[i]] ^ 1);

		check(dev->ops->upload(dev, &b, at[i], &c, 1, &e), &e);
		assert_int_equal(dev->ops->differs(dev, &a, 0, &b, 0, n, &e),
				 1);
		check(dev->ops->upload(dev, &b, at[i], &x[at[i]], 1, &e),
		      &e);
	}
	assert_int_equal(dev->ops->differs(dev, &a, 1, &b, 1, n - 1, &e), 0);
	assert_int_equal(dev->ops->differs(dev, &a, 1, &b, 2, n - 2, &e), 1);
	dev->ops->release(dev, &a);
	dev->ops->release(dev, &b);
	free(x);
}

static void poison(void **state)
{
	struct mem a;
	struct err e = ERR_INIT;
	size_t n = MIB;
	uint64_t *x = need(n), *y = need(n);

	(void)state;
	check(dev->ops->private_mem(dev, n, &a, &e), &e);
	check(dev->ops->poison(dev, &a, 0, n, 1, &e), &e);
	check(dev->ops->download(dev, x, &a, 0, n, &e), &e);
	check(dev->ops->poison(dev, &a, 0, n, 2, &e), &e);
	check(dev->ops->download(dev, y, &a, 0, n, &e), &e);
	for (size_t i = 1; i < n / 8; i++) {
		assert_true(x[i] != y[i]);
		assert_true(x[i] != x[i - 1]);
	}
	/* Only what was asked for. */
	check(dev->ops->poison(dev, &a, 13, 5, 3, &e), &e);
	check(dev->ops->download(dev, x, &a, 0, n, &e), &e);
	assert_memory_equal((char *)x, (char *)y, 13);
	assert_memory_equal((char *)x + 18, (char *)y + 18, n - 18);
	assert_true(memcmp((char *)x + 13, (char *)y + 13, 5) != 0);
	dev->ops->release(dev, &a);
	free(x);
	free(y);
}

static int close_to(double a, double b)
{
	return a == b || fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b));
}

static void same_result(const struct cmp_result *a,
			const struct cmp_result *b)
{
	assert_int_equal(a->n, b->n);
	assert_int_equal(a->comparable, b->comparable);
	assert_int_equal(a->misses, b->misses);
	assert_int_equal(a->non_finite, b->non_finite);
	assert_int_equal(a->relieved, b->relieved);
	if (a->misses)
		assert_int_equal(a->first, b->first);
	assert_true(close_to(a->max_abs, b->max_abs));
	assert_true(close_to(a->max_rel, b->max_rel));
	assert_true(close_to(a->err_norm, b->err_norm));
	assert_true(close_to(a->ref_norm, b->ref_norm));
	assert_int_equal(a->have64, b->have64);
	assert_true(close_to(a->err64, b->err64));
	assert_true(close_to(a->ref64, b->ref64));
	assert_true(close_to(a->own_allowed, b->own_allowed));
	assert_int_equal(a->own, b->own);
	assert_int_equal(a->passed, b->passed);
}

/* A result that is nearly the reference: some bytes of some elements differ,
 * so that every kind of miss occurs. */
static void both_ways(enum ca_dtype t, const struct cmp_rule *rule,
		      const void *ref, void *got, size_t n)
{
	struct view hg = { t, 1, { (int64_t)n }, got }, hr = hg, dg, dr;
	size_t bytes = n * dtype_size(t);
	struct cmp_result a, b;
	struct err e = ERR_INIT;
	struct mem mg, mr;

	hr.data = ref;
	check(dev->ops->private_mem(dev, bytes, &mg, &e), &e);
	check(dev->ops->private_mem(dev, bytes, &mr, &e), &e);
	check(dev->ops->upload(dev, &mg, 0, got, bytes, &e), &e);
	check(dev->ops->upload(dev, &mr, 0, ref, bytes, &e), &e);
	dg = hg;
	dg.data = mg.p;
	dr = hr;
	dr.data = mr.p;
	check(compare(rule, &hg, &hr, NULL, 1, &a, &e), &e);
	check(dev->ops->compare(dev, rule, &dg, &dr, NULL, &b, &e), &e);
	same_result(&a, &b);
	dev->ops->release(dev, &mg);
	dev->ops->release(dev, &mr);
}

static void comparison(void **state)
{
	static const struct cmp_rule rules[] = {
		{ 1e-2, 1e-2, 0, 0 }, { 1e-2, 1e-2, 2e-2, 0 },
		{ 1e-2, 1e-2, 0, 3 },
	};
	size_t n = 100003;
	unsigned char *ref = need(n * 16), *got = need(n * 16);

	(void)state;
	random_bytes(ref, n * 16);
	for (int t = DT_BOOL; t < DT_COUNT; t++) {
		memcpy(got, ref, n * 16);
		for (size_t i = 1009; i < n * dtype_size(t); i += 1013)
			got[i] ^= 0x11;
		for (int i = 0; i < 2; i++)
			both_ways(t, &rules[i], ref, got, n);
	}
	free(ref);
	free(got);
}

static void relief_by_fp64(void **state)
{
	const struct cmp_rule rule = { 1e-2, 1e-2, 0, 0 };
	const struct cmp_rule strict = { 1e-2, 1e-2, 0, 3 };
	struct view hg, hr, hd;
	size_t n = 50000;
	float *ref = need(n * 4), *got = need(n * 4);
	double *wide = need(n * 8);
	struct mem m[3];
	struct view v[3];
	struct cmp_result a, b;
	struct err e = ERR_INIT;
	struct rng r;

	(void)state;
	rng_seeded(&r, 5);
	for (size_t i = 0; i < n; i++) {
		wide[i] = rng_unit(&r);
		ref[i] = (float)(wide[i] + (rng_unit(&r) - 0.5) * 0.1);
		got[i] = (float)(wide[i] + (rng_unit(&r) - 0.5) * 0.1);
	}
	for (int i = 0; i < 3; i++) {
		const void *from = i == 0 ? (void *)got :
			i == 1 ? (void *)ref : (void *)wide;

		v[i] = (struct view){ i < 2 ? DT_F32 : DT_F64, 1,
				      { (int64_t)n }, from };
		check(dev->ops->private_mem(dev, n * 8, &m[i], &e), &e);
		check(dev->ops->upload(dev, &m[i], 0, from,
				       n * (i < 2 ? 4 : 8), &e), &e);
	}
	check(compare(&rule, &v[0], &v[1], &v[2], 1, &a, &e), &e);
	assert_true(a.relieved > 0 && a.misses > 0);
	hg = v[0];
	hr = v[1];
	hd = v[2];
	for (int i = 0; i < 3; i++)
		v[i].data = m[i].p;
	check(dev->ops->compare(dev, &rule, &v[0], &v[1], &v[2], &b, &e), &e);
	same_result(&a, &b);
	check(compare(&strict, &hg, &hr, &hd, 1, &a, &e), &e);
	check(dev->ops->compare(dev, &strict, &v[0], &v[1], &v[2], &b, &e),
	      &e);
	same_result(&a, &b);
	for (int i = 0; i < 3; i++)
		dev->ops->release(dev, &m[i]);
	free(ref);
	free(got);
	free(wide);
}

struct trial {
	struct mem source, capture;
	struct runner r;
	struct bracket b;
};

static void begin(struct trial *t, enum peer_mode mode, size_t bytes)
{
	struct err e = ERR_INIT;

	memset(t, 0, sizeof(*t));
	check(dev->ops->private_mem(dev, bytes, &t->source, &e), &e);
	check(dev->ops->private_mem(dev, bytes, &t->capture, &e), &e);
	check(peer_start(dev, &t->r, mode, bytes, &e), &e);
	t->b.inputs = &t->source;
	t->b.input_bytes = bytes;
	t->b.capture = &t->capture;
}

static void end(struct trial *t)
{
	peer_stop(dev, &t->r);
	dev->ops->release(dev, &t->source);
	dev->ops->release(dev, &t->capture);
}

static void once(struct trial *t, unsigned i, unsigned flags,
		 struct bracket_result *res)
{
	struct err e = ERR_INIT;

	check(dev->ops->poison(dev, &t->source, 0, t->b.input_bytes, i + 99,
			       &e), &e);
	t->b.go.set = i & 1;
	t->b.go.flags = flags;
	t->b.go.idle_us = 1;
	t->b.poison = i;
	t->b.deadline = deadline_in(10);
	check(dev->ops->bracket(dev, &t->r, &t->b, res, &e), &e);
}

static int right(struct trial *t)
{
	struct err e = ERR_INIT;
	int rc = dev->ops->differs(dev, &t->source, 0, &t->capture, 0,
				   t->b.input_bytes, &e);

	check(rc < 0 ? -1 : 0, &e);
	return !rc;
}

static void honest_peer(void **state)
{
	struct bracket_result res;
	struct trial t;

	(void)state;
	begin(&t, PEER_HONEST, 8 * MIB);
	for (unsigned i = 0; i < 20; i++) {
		once(&t, i, i % 3 ? GO_SYNC : 0, &res);
		assert_int_equal(res.wait, WAIT_OK);
		assert_int_equal(res.bad_leaf, 0);
		assert_int_equal(res.late, 0);
		assert_true(res.ns > 0 && res.ns < 1000000000);
		assert_int_equal(res.got[0].bytes, 8 * MIB);
		assert_true(right(&t));
	}
	end(&t);
}

/* One that computes behind its answer is late, and so is one whose answer
 * comes first; whether its results are right then does not matter. */
static void cheating_peers(void **state)
{
	struct bracket_result res;
	struct trial t;

	(void)state;
	begin(&t, PEER_BEHIND, MIB);
	for (unsigned i = 0; i < 5; i++) {
		once(&t, i, 0, &res);
		assert_int_equal(res.wait, WAIT_OK);
		assert_true(res.late || !right(&t));
		usleep(10000);
	}
	end(&t);
	begin(&t, PEER_UNWRITTEN, MIB);
	once(&t, 0, GO_SYNC, &res);
	once(&t, 2, GO_SYNC, &res);
	assert_int_equal(res.wait, WAIT_OK);
	assert_false(right(&t));
	end(&t);
	begin(&t, PEER_OUTSIDE, MIB);
	once(&t, 0, GO_SYNC, &res);
	assert_int_equal(res.bad_leaf, 1);
	end(&t);
	begin(&t, PEER_GONE, MIB);
	once(&t, 0, GO_SYNC, &res);
	assert_int_equal(res.wait, WAIT_GONE);
	end(&t);
}

static void hanging_kernel(void **state)
{
	struct bracket_result res;
	struct err e = ERR_INIT;
	struct trial t;

	(void)state;
	begin(&t, PEER_SPIN, MIB);
	t.b.go.idle_us = 3000000;
	t.b.go.flags = GO_SYNC;
	t.b.deadline = deadline_in(0.5);
	check(dev->ops->bracket(dev, &t.r, &t.b, &res, &e), &e);
	assert_int_equal(res.wait, WAIT_TIMEOUT);
	end(&t);
	check(dev->ops->recover(dev, &e), &e);
	begin(&t, PEER_HONEST, MIB);
	once(&t, 0, GO_SYNC, &res);
	assert_int_equal(res.wait, WAIT_OK);
	assert_true(right(&t));
	end(&t);
}

static double read_us(struct trial *t, unsigned i)
{
	struct bracket_result res;

	once(t, i, GO_SYNC, &res);
	assert_int_equal(res.wait, WAIT_OK);
	return (double)res.msg.own_ns * 1e-3;
}

/* A peer whose lines persist in the L2 cache gains nothing by it: it reads as
 * slowly as one that has never set them aside. */
static void persisting_lines(void **state)
{
	enum { N = 15 };
	double plain[N], kept[N], sum[2] = { 0, 0 };
	struct trial t;

	(void)state;
	begin(&t, PEER_READ, 4 * MIB);
	for (unsigned i = 0; i < N; i++)
		plain[i] = read_us(&t, i);
	end(&t);
	begin(&t, PEER_PERSIST, 4 * MIB);
	for (unsigned i = 0; i < N; i++)
		kept[i] = read_us(&t, i);
	end(&t);
	for (unsigned i = 5; i < N; i++) {
		sum[0] += plain[i];
		sum[1] += kept[i];
	}
	print_message("reads: plain %.2f us, persisting %.2f us\n",
		      sum[0] / (N - 5), sum[1] / (N - 5));
	assert_true(sum[1] > 0.8 * sum[0]);
}

static void lease(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	check(dev->ops->lease(dev, 1, 1, &e), &e);
	assert_int_equal(dev->ops->foreign(dev, NULL), 0);
	dev->ops->unlease(dev);
}

/* A process that is no child of ours and has a context on the GPU. */
static void stranger(void **state)
{
	int ready[2], leave[2];
	char c;

	(void)state;
	if (pipe(ready) || pipe(leave))
		fail();
	if (fork() == 0) {
		if (fork() == 0) {
			char a[16], b[16];

			close(leave[1]);
			snprintf(a, sizeof(a), "%d", ready[1]);
			snprintf(b, sizeof(b), "%d", leave[0]);
			execl("/proc/self/exe", "peer", "stranger", a, b,
			      (char *)NULL);
		}
		_exit(0);
	}
	wait(NULL);
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	/* NVML may say nothing about processes, as in a container. */
	if (!device_cuda_sees_processes(dev))
		print_message("NVML does not name processes here\n");
	else
		assert_int_equal(dev->ops->foreign(dev, NULL), 1);
	/* It is there, and does nothing. */
	assert_int_equal(device_cuda_still(dev), 1);
	close(leave[1]);
	while (read(ready[0], &c, 1) > 0)
		;
	close(ready[0]);
	assert_int_equal(dev->ops->foreign(dev, NULL), 0);
}

static void nodes(void **state)
{
	struct cu_nodes n;
	struct cu_info i;
	struct err e = ERR_INIT;

	(void)state;
	check(cu_info(0, &i, &e), &e);
	check(cu_nodes(&i, &n, &e), &e);
	assert_true(n.n >= 3);
	for (int k = 0; k < n.n; k++)
		assert_int_equal(access(n.path[k], R_OK | W_OK), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory),
		cmocka_unit_test(differences),
		cmocka_unit_test(poison),
		cmocka_unit_test(comparison),
		cmocka_unit_test(relief_by_fp64),
		cmocka_unit_test(honest_peer),
		cmocka_unit_test(cheating_peers),
		cmocka_unit_test(hanging_kernel),
		cmocka_unit_test(persisting_lines),
		cmocka_unit_test(lease),
		cmocka_unit_test(stranger),
		cmocka_unit_test(nodes),
	};
	struct err e = ERR_INIT;
	int rc;

	peer_main(argc, argv);
	dev = device_cuda_open(0, &e);
	if (!dev) {
		printf("skipped: %s\n", e.msg);
		return e.code == CA_UNAVAILABLE ? 0 : 1;
	}
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dev->ops->close(dev);
	return rc;
}
