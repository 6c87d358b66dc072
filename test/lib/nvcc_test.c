/* SPDX-License-Identifier: Apache-2.0
 *
 * The script that runs nvcc's steps side by side, with programs that only tell
 * that they ran; real ones are in the suite of ca-compile.
 */
#define _GNU_SOURCE
#include "base/io.h"
#include "base/str.h"
#include "build/nvcc.h"

#include "tests.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/ca-nvcc.XXXXXX", old[4096];

static void put(const char *name, const char *text, mode_t mode)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(name, mode), 0);
}

static int enter(void **state)
{
	(void)state;
	assert_non_null(getcwd(old, sizeof(old)));
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(mkdir("bin", 0755), 0);
	setenv("TMPDIR", dir, 1);
	put("a.cu", "source\n", 0644);
	/* Each says that it ran, then does what a file of its name says. */
	put("bin/step", "#!/bin/sh\necho \"$*\" >>ran\n"
	    "[ ! -e \"$1.sh\" ] || . ./\"$1.sh\"\n", 0755);
	put("nvcc", "#!/bin/sh\n"
	    "case $* in *--dryrun*) ;; *) echo whole >>ran; exit 3 ;; esac\n"
	    "[ ! -e other ] || { echo '#$ something else' >&2; exit; }\n"
	    "cat >&2 <<'END'\n"
	    "#$ _SPACE_= \n"
	    "#$ WHERE=bin\n"
	    "#$ INCLUDES=\"-Ix\"  \n"
	    "#$ rm nothing\n"
	    "#$ bin/step host1\n"
	    "#$ cudafe++ x --gen_module_id_file --module_id_file_name \"id\" y\n"
	    "#$ bin/step device1\n"
	    "#$ \"$WHERE/cicc\" z\n"
	    "#$ ptxas w\n"
	    "#$ bin/step fatbinary\n"
	    "#$ bin/step gcc -c -o a.o\n"
	    "END\n", 0755);
	put("bin/cudafe++", "#!/bin/sh\nexec bin/step cudafe \"$@\"\n", 0755);
	put("bin/cicc", "#!/bin/sh\nexec bin/step cicc \"$@\"\n", 0755);
	put("bin/ptxas", "#!/bin/sh\nexec bin/step ptxas \"$@\"\n", 0755);
	return 0;
}

static int leave(void **state)
{
	char cmd[128];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	return chdir(old) || system(cmd);
}

/* Runs it; what ran is in `ran`, what was said in `said`. */
static int run(struct str *ran, struct str *said)
{
	struct err e = ERR_INIT;
	int rc;

	put("script", nvcc_script, 0644);
	(void)unlink("ran");
	rc = system("PATH=$PWD/bin:$PATH sh -c \"$(cat script)\" nvcc ./nvcc "
		    "-c a.cu -o a.o 2>said");
	str_reset(ran);
	str_reset(said);
	assert_int_equal(read_file("ran", 1 << 16, ran, &e), 0);
	assert_int_equal(read_file("said", 1 << 16, said, &e), 0);
	str_addc(ran, '\0');
	str_addc(said, '\0');
	assert_int_equal(system("ls -d tmp.* >/dev/null 2>&1"), 2 << 8);
	return WEXITSTATUS(rc);
}

static void both_halves_run_and_agree_on_a_name(void **state)
{
	struct str ran = STR_INIT, said = STR_INIT, id = STR_INIT;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(run(&ran, &said), 0);
	assert_non_null(strstr(ran.buf, "host1\n"));
	assert_non_null(strstr(ran.buf, "cudafe x --module_id_file_name id "
			       "y\n"));
	assert_non_null(strstr(ran.buf, "device1\n"));
	assert_non_null(strstr(ran.buf, "cicc z\n"));
	assert_non_null(strstr(ran.buf, "ptxas w\nfatbinary\n"));
	assert_string_equal(strstr(ran.buf, "gcc"), "gcc -c -o a.o\n");
	assert_null(strstr(ran.buf, "whole"));
	assert_string_equal(said.buf, "");
	assert_int_equal(read_file("id", 64, &id, &e), 0);
	assert_int_equal(id.len, strlen("_01234567_4_unit"));
	str_release(&ran);
	str_release(&said);
	str_release(&id);
}

static void the_host_s_errors_are_the_first(void **state)
{
	struct str ran = STR_INIT, said = STR_INIT;

	(void)state;
	put("cicc.sh", "echo of the device >&2; exit 5\n", 0644);
	assert_int_equal(run(&ran, &said), 5);
	assert_string_equal(said.buf, "of the device\n");
	assert_null(strstr(ran.buf, "ptxas"));
	assert_null(strstr(ran.buf, "gcc"));
	put("cudafe.sh", "echo of the host >&2; exit 4\n", 0644);
	assert_int_equal(run(&ran, &said), 4);
	assert_string_equal(said.buf, "of the host\n");
	assert_null(strstr(ran.buf, "gcc"));
	assert_int_equal(unlink("cicc.sh") || unlink("cudafe.sh"), 0);
	str_release(&ran);
	str_release(&said);
}

static void steps_that_are_not_known_are_nvcc_s(void **state)
{
	struct str ran = STR_INIT, said = STR_INIT;

	(void)state;
	put("other", "", 0644);
	assert_int_equal(run(&ran, &said), 3);
	assert_string_equal(ran.buf, "whole\n");
	assert_int_equal(unlink("other"), 0);
	str_release(&ran);
	str_release(&said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_halves_run_and_agree_on_a_name),
		cmocka_unit_test(the_host_s_errors_are_the_first),
		cmocka_unit_test(steps_that_are_not_known_are_nvcc_s),
	};

	return cmocka_run_group_tests_name(__FILE__, tests, enter, leave);
}
