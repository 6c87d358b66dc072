/* SPDX-License-Identifier: Apache-2.0
 *
 * What is tried again: memory that was short beside others.  The device is one
 * in name only, since no memory is asked of it.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "cu/lease.h"
#include "judge/chain.h"
#include "judge/device.h"

static int held;	/* the device's lease: 0 none, 1 shared, 2 exclusive */

static int take(struct device *d, int exclusive, double seconds, struct err *e)
{
	(void)d;
	(void)seconds;
	(void)e;
	held = 1 + !!exclusive;
	return 0;
}

static void give(struct device *d)
{
	(void)d;
	held = 0;
}

static const struct device_ops cuda = {
	.name = "cuda", .lease = take, .unlease = give,
};
static const struct device_ops cpu = {
	.name = "cpu", .lease = take, .unlease = give,
};

struct seen {
	struct fail f;
	int calls, enough_when_alone, doubts;
	int room[4];		/* 1: nobody else could come */
	int lease[4];
};

static int is_alone(void)
{
	int fd = lease_take("some-gpu.room", 0, 0, NULL);

	if (fd < 0)
		return 1;
	close(fd);
	return 0;
}

static void attempt(struct judge *j, const struct subject *s, void *result)
{
	struct seen *seen = result;
	int i = seen->calls++;

	(void)j;
	(void)s;
	memset(&seen->f, 0, sizeof(seen->f));
	seen->room[i] = is_alone();
	seen->lease[i] = held;
	if (seen->doubts) {
		if (seen->calls <= seen->doubts)
			fail_set(&seen->f, ST_RULES_FALLBACK, 0, "slow");
		seen->f.doubt = seen->f.status != ST_OK;
		return;
	}
	if (!seen->room[i] || !seen->enough_when_alone)
		fail_set(&seen->f, ST_OOM, 0, "no memory");
}

/* Somebody else's record, which takes a while. */
static void *other(void *arg)
{
	nanosleep(&(struct timespec){ 0, 200000000 }, NULL);
	room_leave(arg);
	return NULL;
}

static void judge_with(const struct device_ops *ops, struct seen *seen)
{
	struct device d = { .ops = ops, .gpu = "some-gpu" };
	struct judge *j = calloc(1, sizeof(*j));
	struct err e = ERR_INIT;
	pthread_t t;
	int fd;

	assert_non_null(j);
	j->dev = &d;
	j->room = -1;
	j->o.lease_s = 20;
	assert_int_equal(room_enter(j, 0, 0, &fd, &e), 0);
	assert_int_equal(judge_enter(j, 0, &e), 0);
	assert_int_equal(pthread_create(&t, NULL, other, &fd), 0);
	assert_int_equal(chain_twice(j, attempt, NULL, seen, &seen->f, &e), 0);
	judge_leave(j);
	pthread_join(t, NULL);
	assert_int_equal(held, 0);
	assert_false(is_alone());
	free(j);
}

static void memory_that_others_had_is_no_fault(void **state)
{
	struct seen s = { .enough_when_alone = 1 };

	(void)state;
	judge_with(&cuda, &s);
	assert_int_equal(s.f.status, ST_OK);
	assert_int_equal(s.calls, 2);
	assert_int_equal(s.room[0], 0);
	assert_int_equal(s.lease[0], 1);
	assert_int_equal(s.room[1], 1);
	assert_int_equal(s.lease[1], 2);
}

static void too_much_is_too_much_alone(void **state)
{
	struct seen s = { .enough_when_alone = 0 };

	(void)state;
	judge_with(&cuda, &s);
	assert_int_equal(s.f.status, ST_OOM);
	assert_int_equal(s.calls, 2);
}

static void on_the_cpu_the_system_divides(void **state)
{
	struct seen s = { .enough_when_alone = 1 };

	(void)state;
	judge_with(&cpu, &s);
	assert_int_equal(s.f.status, ST_OOM);
	assert_int_equal(s.calls, 1);
}

static void what_is_in_doubt_is_judged_twice(void **state)
{
	struct seen once = { .doubts = 1 }, always = { .doubts = 9 };

	(void)state;
	judge_with(&cpu, &once);
	assert_int_equal(once.f.status, ST_OK);
	assert_int_equal(once.calls, 2);
	judge_with(&cpu, &always);
	assert_int_equal(always.f.status, ST_RULES_FALLBACK);
	assert_int_equal(always.calls, 2);
}

int main(void)
{
	static char dir[] = "/tmp/chain_test.XXXXXX";
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_others_had_is_no_fault),
		cmocka_unit_test(too_much_is_too_much_alone),
		cmocka_unit_test(on_the_cpu_the_system_divides),
		cmocka_unit_test(what_is_in_doubt_is_judged_twice),
	};
	int rc;

	if (!mkdtemp(dir) || setenv("CA_CACHE", dir, 1) ||
	    unsetenv("CA_PARK_CUDA"))
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	return remove_tree(dir, NULL) || rc;
}
