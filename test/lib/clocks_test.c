/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks under one lease: never two at once, never without it, and whoever
 * does not get it is in nobody's way.
 */
#include "tests.h"

#include <time.h>

#include "synth/clocks.h"

#define TASKS 6

static struct clocks clocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static int held, leases, refuse, running, wrong;

static int take(struct device *d, int exclusive, double seconds,
		struct err *e)
{
	int rc, some = 1;

	(void)d;
	(void)seconds;
	assert_true(exclusive);
	/* All want their clocks by now. */
	for (int i = 0; i < 5000 && some; i++) {
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
		pthread_mutex_lock(&clocks.lock);
		some = clocks.waiting < clocks.tasks;
		pthread_mutex_unlock(&clocks.lock);
	}
	pthread_mutex_lock(&lock);
	while (held)
		pthread_cond_wait(&given, &lock);
	rc = refuse-- > 0 ? -1 : 0;
	held = !rc;
	leases += !rc;
	pthread_mutex_unlock(&lock);
	return rc ? err_set(e, CA_UNAVAILABLE, "not now") : 0;
}

static void give(struct device *d)
{
	(void)d;
}

static const struct device_ops ops = {
	.name = "fake", .lease = take, .unlease = give,
};

static void *task(void *arg)
{
	struct device d = { .ops = &ops };
	struct err e = ERR_INIT;
	int leads, *rc = arg;

	*rc = clocks_enter(&clocks, &d, 60, &leads, &e);
	if (!*rc) {
		pthread_mutex_lock(&lock);
		wrong |= !held || running++;
		pthread_mutex_unlock(&lock);
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
		pthread_mutex_lock(&lock);
		wrong |= !held || --running;
		pthread_mutex_unlock(&lock);
		/* Who leads gives the lease back once nobody uses it, and the
		 * next one may lead from then on. */
		clocks_leave(&clocks, leads);
	}
	pthread_mutex_lock(&lock);
	if (!*rc && leads)
		held = 0;
	pthread_cond_broadcast(&given);
	pthread_mutex_unlock(&lock);
	clocks_task(&clocks, -1);
	return NULL;
}

static int run_all(int refused)
{
	pthread_t thread[TASKS];
	int rc[TASKS], failed = 0;

	held = leases = running = wrong = 0;
	refuse = refused;
	clocks_init(&clocks);
	for (int i = 0; i < TASKS; i++)
		clocks_task(&clocks, 1);
	for (int i = 0; i < TASKS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, task,
						&rc[i]), 0);
	for (int i = 0; i < TASKS; i++) {
		pthread_join(thread[i], NULL);
		failed += rc[i] != 0;
	}
	assert_int_equal(clocks.tasks + clocks.waiting, 0);
	assert_false(clocks.led || clocks.open || clocks.running || wrong);
	clocks_release(&clocks);
	return failed;
}

static void one_lease_for_all(void **state)
{
	(void)state;
	assert_int_equal(run_all(0), 0);
	assert_in_range(leases, 1, TASKS - 1);
}

static void who_is_refused_is_in_nobodys_way(void **state)
{
	(void)state;
	assert_int_equal(run_all(2), 2);
}

static void a_lease_is_one_gpus(void **state)
{
	static struct clocks all[CLOCKS_GPUS];
	struct device d[] = { { .name = "cpu" }, { .name = "cuda:1" },
			      { .name = "cuda:12" }, { .name = "cuda:1" } };

	(void)state;
	assert_ptr_equal(clocks_of(all, &d[1]), clocks_of(all, &d[3]));
	assert_ptr_not_equal(clocks_of(all, &d[1]), clocks_of(all, &d[2]));
	assert_ptr_not_equal(clocks_of(all, &d[1]), clocks_of(all, &d[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_lease_for_all),
		cmocka_unit_test(who_is_refused_is_in_nobodys_way),
		cmocka_unit_test(a_lease_is_one_gpus),
	};

	return RUN_TESTS(tests);
}
