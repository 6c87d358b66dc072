/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets in where there is room for some: in the order of coming, and
 * whatever is wanted, when nobody is there.
 */
#include "tests.h"

#include <time.h>

#include "synth/room.h"

#define MOST 10

static struct admission rooms;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char came[8];		/* names, in the order of getting in */

struct guest {
	pthread_t thread;
	double bytes;
	char name;
	int rc;
};

static void *come(void *arg)
{
	struct guest *g = arg;
	struct err e = ERR_INIT;

	g->rc = admission_enter(&rooms, g->bytes, MOST, 60, &e);
	pthread_mutex_lock(&lock);
	came[strlen(came)] = g->name;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Starts a guest and waits until it stands in the line. */
static void let_come(struct guest *g)
{
	uint64_t was, now;

	pthread_mutex_lock(&rooms.lock);
	was = rooms.next;
	pthread_mutex_unlock(&rooms.lock);
	assert_int_equal(pthread_create(&g->thread, NULL, come, g), 0);
	do {
		nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
		pthread_mutex_lock(&rooms.lock);
		now = rooms.next;
		pthread_mutex_unlock(&rooms.lock);
	} while (now == was);
}

static void waits_and_keeps_order(void **state)
{
	struct guest large = { .bytes = 8, .name = 'L' };
	struct guest small = { .bytes = 1, .name = 's' };
	struct err e = ERR_INIT;

	(void)state;
	admission_init(&rooms);
	memset(came, 0, sizeof(came));
	assert_int_equal(admission_enter(&rooms, 5, MOST, 60, &e), 0);
	assert_int_equal(admission_enter(&rooms, 4, MOST, 60, &e), 0);
	/* There would be room for the small one, but it came later. */
	let_come(&large);
	let_come(&small);
	assert_string_equal(came, "");
	admission_leave(&rooms, 5);
	pthread_mutex_lock(&lock);
	assert_string_equal(came, "");
	pthread_mutex_unlock(&lock);
	admission_leave(&rooms, 4);
	pthread_join(large.thread, NULL);
	pthread_join(small.thread, NULL);
	assert_int_equal(large.rc | small.rc, 0);
	assert_true(rooms.used > 8.5 && rooms.used < 9.5);
	admission_leave(&rooms, 9);
	admission_release(&rooms);
}

static void takes_what_is_too_large_alone(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	admission_init(&rooms);
	assert_int_equal(admission_enter(&rooms, 3 * MOST, MOST, 60, &e), 0);
	/* Nobody beside it; who does not wait for long gives up, and is in
	 * nobody's way. */
	assert_int_equal(admission_enter(&rooms, 1, MOST, 0.01, &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	admission_leave(&rooms, 3 * MOST);
	assert_int_equal(admission_enter(&rooms, 1, MOST, 60, &e), 0);
	admission_leave(&rooms, 1);
	admission_release(&rooms);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_and_keeps_order),
		cmocka_unit_test(takes_what_is_too_large_alone),
	};

	return RUN_TESTS(tests);
}
