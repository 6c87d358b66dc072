/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judge remembers: believed for what it was signed for, and as long
 * as it agrees with what is seen.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/io.h"
#include "judge/baseline.h"
#include "judge/memo.h"
#include "judge/rules.h"
#include "torch/internal.h"

static char dir[64];
static struct device dev;
static struct torch_host host;
static struct judge judge;

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/ca-memo.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	setenv("CA_CACHE", dir, 1);
	snprintf(dev.name, sizeof(dev.name), "cpu");
	snprintf(dev.model, sizeof(dev.model), "some");
	judge.dev = &dev;
	judge.host = &host;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return remove_tree(dir, NULL);
}

static void put(const char *kind, const char *task, const char *text)
{
	struct str s = STR_INIT;

	str_adds(&s, text);
	memo_put(&judge, kind, task, "", &s);
	str_release(&s);
}

/* Member n of what is remembered; -1: nothing is. */
static int64_t got(const char *kind, const char *task)
{
	struct json *j = memo_get(&judge, kind, task, "");
	int64_t n = json_get_int(j, "n", -1);

	json_free(j);
	return n;
}

/* The file of a kind that holds one. */
static const char *file_of(const char *kind)
{
	static char path[256];
	char line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "ls %s/%s/*.json", dir, kind);
	f = popen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	pclose(f);
	line[strcspn(line, "\n")] = '\0';
	snprintf(path, sizeof(path), "%s", line);
	return path;
}

static int files_of(const char *kind)
{
	char path[128];
	struct dirent *d;
	int n = 0;
	DIR *all;

	snprintf(path, sizeof(path), "%s/%s", dir, kind);
	all = opendir(path);
	assert_non_null(all);
	while ((d = readdir(all)) != NULL)
		n += d->d_name[0] != '.' || strlen(d->d_name) > 2;
	closedir(all);
	return n;
}

static void what_is_kept_depends_on_all_that_it_is_about(void **state)
{
	char first[] = "2.11", other[] = "2.12";

	(void)state;
	host.version = first;
	assert_int_equal(got("a", "task"), -1);
	put("a", "task", "{\"n\":7}");
	assert_int_equal(got("a", "task"), 7);
	assert_int_equal(got("a", "other"), -1);
	assert_int_equal(got("b", "task"), -1);
	host.version = other;
	assert_int_equal(got("a", "task"), -1);
	host.version = first;
	snprintf(dev.model, sizeof(dev.model), "another");
	assert_int_equal(got("a", "task"), -1);
	snprintf(dev.model, sizeof(dev.model), "some");
	assert_int_equal(got("a", "task"), 7);
}

static void what_others_wrote_is_not_believed(void **state)
{
	struct str s = STR_INIT;
	char version[] = "2.11";
	const char *path;

	(void)state;
	host.version = version;
	put("c", "task", "{\"n\":1}");
	path = file_of("c");
	assert_int_equal(read_file(path, 4096, &s, NULL), 0);

	/* cut, changed, without its signature, empty */
	for (int how = 0; how < 4; how++) {
		size_t len = how == 0 ? s.len - 1 : how == 2 ? 8 :
			     how == 3 ? 0 : s.len;
		char *text = malloc(s.len);

		memcpy(text, s.buf, s.len);
		if (how == 1)
			text[5] = '2';
		assert_int_equal(write_file_atomic(path, text, len, 0644,
						   NULL), 0);
		free(text);
		assert_int_equal(got("c", "task"), -1);
	}
	assert_int_equal(write_file_atomic(path, s.buf, s.len, 0644, NULL),
			 0);
	assert_int_equal(got("c", "task"), 1);

	/* another key, and another task's under this one's name */
	judge.key.bytes[0] ^= 1;
	assert_int_equal(got("c", "task"), -1);
	judge.key.bytes[0] ^= 1;
	put("d", "task", "{\"n\":2}");
	assert_int_equal(write_file_atomic(file_of("d"), s.buf, s.len, 0644,
					   NULL), 0);
	assert_int_equal(got("d", "task"), -1);
	str_release(&s);
}

/* C is what the brackets of some rules cost, where nobody waits for the GPU. */
static void baselines_are_remembered_with_what_they_cost(void **state)
{
	struct timing *t = calloc(1, sizeof(*t));
	struct race *eager = &t->race[RACE_EAGER];
	char version[] = "2.11";
	struct baseline b;

	(void)state;
	host.version = version;
	judge.o.mode = "default";
	judge.rules = &rules_paper;
	assert_int_equal(baseline_get(&judge, "task", &b), -1);
	t->rounds = 3;
	for (int i = 0; i < 3; i++) {
		eager->time[i].ns = 1000 + i;
		t->race[RACE_COMPILE].time[i].ns = 500 + i;
		eager->correction[i] = 300 - 10 * i;
	}
	eager->runs = t->race[RACE_COMPILE].runs = eager->no_wait = 1;
	baseline_put(&judge, "task", t);
	assert_int_equal(baseline_get(&judge, "task", &b), 0);
	assert_true(fabs(b.eager_ns - 1001) < 1e-9);
	assert_true(fabs(b.compile_ns - 501) < 1e-9);
	assert_true(fabs(b.correction_ns - 290) < 1e-9);
	judge.rules = rules_find("strict");
	assert_int_equal(baseline_get(&judge, "task", &b), 0);
	assert_true(b.correction_ns == 0);

	judge.rules = &rules_paper;
	eager->no_wait = 0;
	baseline_put(&judge, "task", t);
	assert_int_equal(baseline_get(&judge, "task", &b), 0);
	assert_true(b.correction_ns == 0);
	free(t);
}

/* A disk without room: nothing is remembered, nothing half. */
static void a_full_disk_loses_nothing_else(void **state)
{
	struct rlimit old, none = { 0, 0 };
	char version[] = "2.11";

	(void)state;
	host.version = version;
	put("f", "task", "{\"n\":1}");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	none.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	signal(SIGXFSZ, SIG_IGN);
	put("f", "task", "{\"n\":2}");
	put("f", "other", "{\"n\":3}");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(got("f", "task"), 1);
	assert_int_equal(got("f", "other"), -1);
	put("f", "other", "{\"n\":3}");
	assert_int_equal(got("f", "other"), 3);
	/* No half file either. */
	assert_int_equal(files_of("f"), 2);
}

static void baselines_hold_while_eager_agrees(void **state)
{
	const struct baseline known = { 1000, 500, 0 };
	struct timing *t = calloc(1, sizeof(*t));
	struct stats_bound b;

	(void)state;
	assert_non_null(t);
	t->rounds = 2;
	t->race[RACE_EAGER].runs = 1;
	for (int i = 0; i < 2; i++)
		t->race[RACE_EAGER].time[i] = (struct stats_time){
			.ns = 1020, .low = 1010, .high = 1030 };
	assert_int_equal(baseline_apply(&known, t), 0);
	assert_true(t->race[RACE_COMPILE].remembered);
	timing_bound(t, RACE_COMPILE, &b);
	assert_true(fabs(b.point - 510) < 1e-9);

	/* A stale one: another clock, another load. */
	memset(&t->race[RACE_COMPILE], 0, sizeof(t->race[RACE_COMPILE]));
	for (int i = 0; i < 2; i++)
		t->race[RACE_EAGER].time[i].ns = 1040;
	assert_int_equal(baseline_apply(&known, t), -1);
	assert_false(t->race[RACE_COMPILE].runs);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_kept_depends_on_all_that_it_is_about),
		cmocka_unit_test(what_others_wrote_is_not_believed),
		cmocka_unit_test(baselines_are_remembered_with_what_they_cost),
		cmocka_unit_test(baselines_hold_while_eager_agrees),
		cmocka_unit_test(a_full_disk_loses_nothing_else),
	};

	return cmocka_run_group_tests_name(__FILE__, tests, setup, teardown);
}
