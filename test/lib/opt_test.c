/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/base: the option table.  What exits runs in a child of its own.
 */
#include "tests.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/wait.h>

#include "base/io.h"
#include "base/opt.h"

static double seconds, number;
static int64_t size, count;
static const char *rules, *text;
static struct opt_list list;
static int flag;

static const struct opt opts[] = {
	{ OPT_SECONDS, 't', "timeout", "TIME", "a limit", &seconds, 0, 7200 },
	{ OPT_NUM, 0, "ratio", "X", "a number", &number, -1, 1 },
	{ OPT_SIZE, 0, "size", "SIZE", "bytes", &size, 0, 0 },
	{ OPT_INT, 0, "count", "N", "how many", &count, 1, 10 },
	{ OPT_CHOICE, 0, "rules", "paper|strict", "which", &rules, 0, 0 },
	{ OPT_STR, 0, "text", "TEXT", "words", &text, 0, 0 },
	{ OPT_LIST, 'D', "define", "X", "repeated", &list, 0, 0 },
	{ OPT_FLAG, 'e', "exit", NULL, "predicate", &flag, 0, 0 },
	{ 0 }
};

static const struct tool tool = {
	"ca-test", "[FILE ...]", "Tests options.", opts,
	OPTS_RECORDS | OPTS_SEED | OPTS_JOBS, 0, 2
};

/* Splits at spaces. */
static int parse(const char *line, char **argv, struct common *c)
{
	static char copy[256];
	char *p = copy;
	int argc = 0;

	snprintf(copy, sizeof copy, "ca-test %s", line);
	while ((argv[argc] = strtok(p, " "))) {
		argc++;
		p = NULL;
	}
	return opt_parse(&tool, argc, argv, c);
}

/* What a call that exits prints (both streams), and its status. */
static int exits(const char *line, char *out, size_t len)
{
	char *argv[32];
	struct common c;
	int fd[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (pid == 0) {
		dup2(fd[1], 1);
		dup2(fd[1], 2);
		parse(line, argv, &c);
		_exit(99);
	}
	close(fd[1]);
	n = read_full(fd[0], out, len - 1, NULL);
	out[n > 0 ? n : 0] = '\0';
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void all_types_are_read(void **state)
{
	char *argv[32];
	struct common c;
	int first;

	(void)state;
	first = parse("a -t 1.5m --ratio=-0.5 --size 2K --count 7 -e -Dx "
		      "--rules strict --define=y --text= -v -j3 -n 0 "
		      "--seed 18446744073709551615 --no-prov -o out -- -b",
		      argv, &c);
	assert_string_equal(argv[first], "a");
	assert_string_equal(argv[first + 1], "-b");
	assert_true(seconds == 90 && number == -0.5);
	assert_int_equal(size, 2048);
	assert_int_equal(count, 7);
	assert_int_equal(flag, 1);
	assert_string_equal(rules, "strict");
	assert_string_equal(text, "");
	assert_int_equal(list.n, 2);
	assert_string_equal(list.item[1], "y");
	assert_true(c.verbose && c.no_prov && c.seeded && !c.quiet);
	assert_true(c.seed == UINT64_MAX);
	assert_int_equal(c.jobs, 3);
	assert_int_equal(c.limit, 0);
	assert_string_equal(c.out, "out");
	opt_release(&tool);
	assert_int_equal(list.n, 0);
}

static void bad_values_are_usage_errors(void **state)
{
	static const char *const line[] = {
		"-t 0", "-t 5d", "-t 3h", "-t nan", "--ratio 2", "--ratio 1x",
		"--size -1", "--size 1T", "--count 0", "--count 1.5",
		"--count 99999999999999999999", "--rules pap", "--rules=",
		"--seed -1", "--seed 18446744073709551616", "--seed x",
		"-j 0", "-n -1", "--nope", "-Z", "--text", "a b c",
	};
	char out[2000];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof line / sizeof *line; i++) {
		assert_int_equal(exits(line[i], out, sizeof out), CA_USAGE);
		assert_non_null(strstr(out, "ca-test: "));
		assert_non_null(strstr(out, "try 'ca-test --help'"));
	}
	exits("--count 99999999999999999999", out, sizeof out);
	assert_non_null(strstr(out, "takes 1 to "));
	exits("--count -99999999999999999999", out, sizeof out);
	assert_non_null(strstr(out, "takes 1 to "));
}

static void help_names_every_option(void **state)
{
	char out[8000];
	const struct opt *o;

	(void)state;
	assert_int_equal(exits("--help", out, sizeof out), 0);
	for (o = opts; o->type != OPT_END; o++)
		assert_non_null(strstr(out, o->name));
	assert_non_null(strstr(out, "Usage: ca-test [OPTION...] [FILE ...]"));
	assert_int_equal(exits("-h", out, sizeof out), 0);
	assert_int_equal(exits("--version", out, sizeof out), 0);
	assert_true(strncmp(out, "ca-test ", 8) == 0);
	assert_int_equal(exits("--completion=bash", out, sizeof out), 0);
	assert_non_null(strstr(out, "--timeout"));
}

static void closed_descriptors_stay_unusable(void **state)
{
	char *argv[32];
	struct common c;
	int status;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		char b;

		close(0);
		close(1);
		close(2);
		parse("", argv, &c);
		_exit(open("/dev/null", O_RDONLY) == 3 && read(0, &b, 1) < 0 &&
		      write(1, "x", 1) < 0 ? 7 : 8);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_types_are_read),
		cmocka_unit_test(bad_values_are_usage_errors),
		cmocka_unit_test(help_names_every_option),
		cmocka_unit_test(closed_descriptors_stay_unusable),
	};

	return RUN_TESTS(tests);
}
