/* SPDX-License-Identifier: Apache-2.0
 *
 * Judges spread over devices.  Leases and processes are real; the devices are
 * names, since that is all that is needed to hold them.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "cu/lease.h"
#include "judge/spread.h"
#include "rec/crew.h"
#include "rec/stage.h"

static char cache[] = "/tmp/ca-spread.XXXXXX";
static int turn[2];
static struct crew *crew;
static char device[16];
static const struct spread two = { { 3, 5 }, 2 };

static int set_up(void **state)
{
	(void)state;
	return !mkdtemp(cache) || setenv("CA_CACHE", cache, 1) ||
	       pipe2(turn, O_CLOEXEC);
}

static int tear_down(void **state)
{
	(void)state;
	return remove_tree(cache, NULL);
}

static void those_that_are_held_are_left_out(void **state)
{
	static const char *const name[] = { "a", "b", "c" };
	int held = lease_take("b", 0, 0, NULL), found[3];

	(void)state;
	assert_true(held >= 0);
	assert_int_equal(spread_free(name, 3, found), 2);
	assert_int_equal(found[0], 0);
	assert_int_equal(found[1], 2);
	/* Looked at, they are not kept. */
	assert_int_equal(spread_free(name, 3, found), 2);
	close(held);
	assert_int_equal(spread_free(name, 3, found), 3);
}

static void judges_take_devices_in_turn(void **state)
{
	const struct spread none = { .n = 0 }, one = { { 1 }, 1 };
	char name[16];

	(void)state;
	assert_int_equal(spread_judges(&none, 0), 1);
	assert_int_equal(spread_judges(&one, 0), 1);
	assert_int_equal(spread_judges(&two, 0), 2);
	assert_int_equal(spread_judges(&two, 5), 5);
	assert_int_equal(spread_share(&two, 5), 3);
	assert_int_equal(spread_share(&one, 5), 5);
	assert_string_equal(spread_device(&two, 0, "cuda", name), "cuda:3");
	assert_string_equal(spread_device(&two, 1, "cuda", name), "cuda:5");
	assert_string_equal(spread_device(&two, 4, "cuda", name), "cuda:3");
	assert_string_equal(spread_device(&one, 4, "cpu", name), "cpu");
	assert_null(spread_device(&none, 0, NULL, name));
}

static void begin(void *ctx, size_t i)
{
	char name[16];

	(void)ctx;
	snprintf(device, sizeof device, "%s",
		 spread_device(&two, i, "cuda", name));
}

/* With its device for itself, "wait" goes on when "wake" has its own. */
static int record(void *ctx, struct rec *r, struct err *e)
{
	int lease = lease_take(device, 1, 60, e), rc = 0;
	char c, text[32];

	(void)ctx;
	if (lease < 0)
		return -1;
	if (json_get_bool(r->root, "wait", 0))
		rc = read_full(turn[0], &c, 1, e) != 1;
	else
		rc = write_full(turn[1], "x", 1, e);
	close(lease);
	snprintf(text, sizeof text, "\"%s\"", device);
	return rc ? -1 : rec_set(r, "device", text, strlen(text));
}

static int pass_on(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	return crew_record(crew, r, e);
}

static int judge(void)
{
	const struct crew_ops ops = { .begin = begin, .record = record };
	const struct stage_ops stage = { .name = "test", .record = pass_on };
	struct common c = { .jobs = 2, .limit = -1, .out = "-" };
	char name[] = "test", *argv[] = { name, NULL };
	int rc;

	crew = crew_open(spread_judges(&two, 0), &ops, NULL);
	rc = crew ? stage_run(&stage, &c, 1, argv, 1) : 99;
	crew_close(crew);
	return rc;
}

/* Each holds a device while the other does, and the order is that of the
 * input. */
static void two_devices_are_used_at_once(void **state)
{
	static const char in[] = "{\"kind\":\"x\",\"v\":1,\"wait\":true}\n"
				 "{\"kind\":\"x\",\"v\":1}\n";
	int from[2], to[2], status;
	char got[256] = "";
	const char *line;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(from, O_CLOEXEC) || pipe2(to, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		dup2(from[0], 0);
		dup2(to[1], 1);
		close(from[1]);
		_exit(judge());
	}
	close(to[1]);
	assert_int_equal(write_full(from[1], in, strlen(in), NULL), 0);
	close(from[1]);
	assert_true(read_full(to[0], got, sizeof got - 1, NULL) > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	line = strchr(got, '\n');
	assert_non_null(line);
	assert_non_null(memmem(got, (size_t)(line - got), "wait", 4));
	assert_null(strstr(line, "wait"));
	assert_non_null(strstr(got, "cuda:3"));
	assert_non_null(strstr(got, "cuda:5"));
	close(to[0]);
	close(from[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_that_are_held_are_left_out),
		cmocka_unit_test(judges_take_devices_in_turn),
		cmocka_unit_test(two_devices_are_used_at_once),
	};

	return cmocka_run_group_tests_name(__FILE__, tests, set_up,
					   tear_down);
}
