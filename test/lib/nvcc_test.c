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
	put("nvcc", "#!/bin/sh\necho whole >>ran; exit 3\n", 0755);
	assert_int_equal(mkdir("out", 0755), 0);
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

static const char steps[] =
	"_SPACE_= \n"
	"WHERE=bin\n"
	"INCLUDES=\"-Ix\"  \n"
	"rm nothing\n"
	"bin/step host1 -o \"host.ii\" \n"
	"cudafe++ x --gen_c_file_name \"out/nvcc/a.cpp\" --gen_module_id_file "
	"--module_id_file_name \"id\" \"host.ii\" \n"
	"bin/step device1\n"
	"\"$WHERE/cicc\" z --stub_file_name \"out/nvcc/stub.c\" v\n"
	"ptxas w\n"
	"bin/step fatbinary\n"
	"bin/step gcc -c -o out/a.o\n";

/* Runs it; what ran is in `ran`, what was said in `said`. */
static int run(const char *what, struct str *ran, struct str *said)
{
	struct err e = ERR_INIT;
	int rc;

	put("script", nvcc_script, 0644);
	put("steps", what, 0644);
	(void)unlink("ran");
	rc = system("rm -rf out/nvcc; PATH=$PWD/bin:$PATH timeout 20 "
		    "sh -c \"$(cat script)\" nvcc \"$(cat steps; echo)\" "
		    "./nvcc -c a.cu -o out/a.o 2>said");
	str_reset(ran);
	str_reset(said);
	assert_int_equal(read_file("ran", 1 << 16, ran, &e), 0);
	assert_int_equal(read_file("said", 1 << 16, said, &e), 0);
	str_addc(ran, '\0');
	str_addc(said, '\0');
	return WEXITSTATUS(rc);
}

static void both_halves_run_and_agree_on_a_name(void **state)
{
	struct str ran = STR_INIT, said = STR_INIT, id = STR_INIT;
	struct str got = STR_INIT;
	struct err e = ERR_INIT;

	(void)state;
	put("host1.sh", "echo text\n", 0644);
	put("cudafe.sh", "sed s/t/T/\n", 0644);
	put("cicc.sh", "echo stub >out/nvcc/stub\n", 0644);
	put("gcc.sh", "cat out/nvcc/a.cpp out/nvcc/stub.c >read\n", 0644);
	assert_int_equal(run(steps, &ran, &said), 0);
	assert_non_null(strstr(ran.buf, "host1\n"));
	assert_non_null(strstr(ran.buf, "cudafe x --gen_c_file_name "
			       "out/nvcc/a.cpp --module_id_file_name id -\n"));
	assert_non_null(strstr(ran.buf, "device1\n"));
	assert_non_null(strstr(ran.buf, "cicc z --stub_file_name "
			       "out/nvcc/stub v\n"));
	assert_non_null(strstr(ran.buf, "ptxas w\n"));
	assert_non_null(strstr(ran.buf, "gcc -c -o out/a.o\n"));
	/* It read what the other half of the host's made, and the device's. */
	assert_int_equal(read_file("read", 64, &got, &e), 0);
	assert_string_equal(got.buf, "Text\nstub\n");
	assert_null(strstr(ran.buf, "whole"));
	assert_string_equal(said.buf, "");
	assert_int_equal(read_file("id", 64, &id, &e), 0);
	assert_int_equal(id.len, strlen("_01234567_4_unit"));
	assert_int_equal(unlink("host1.sh") || unlink("cudafe.sh") ||
			 unlink("cicc.sh") || unlink("gcc.sh"), 0);
	str_release(&ran);
	str_release(&said);
	str_release(&id);
	str_release(&got);
}

/* What fails of the halves, and the last step; nobody waits for a stub. */
static void the_host_s_errors_are_the_first(void **state)
{
	struct str ran = STR_INIT, said = STR_INIT;

	(void)state;
	put("gcc.sh", "cat out/nvcc/stub.c; echo of the last >&2; exit 7\n",
	    0644);
	put("cicc.sh", ">out/nvcc/stub\n", 0644);
	assert_int_equal(run(steps, &ran, &said), 7);
	assert_string_equal(said.buf, "of the last\n");
	put("cicc.sh", "echo of the device >&2; exit 5\n", 0644);
	assert_int_equal(run(steps, &ran, &said), 5);
	assert_string_equal(said.buf, "of the device\n");
	assert_null(strstr(ran.buf, "ptxas"));
	put("cudafe.sh", "echo of the host >&2; exit 4\n", 0644);
	assert_int_equal(run(steps, &ran, &said), 4);
	assert_string_equal(said.buf, "of the host\n");
	assert_null(strstr(ran.buf, "gcc"));
	put("host1.sh", "echo of the first >&2; exit 3\n", 0644);
	assert_int_equal(run(steps, &ran, &said), 3);
	assert_string_equal(said.buf, "of the first\n");
	/* A device's half that ends well waits for nobody either. */
	put("cicc.sh", ">out/nvcc/stub\n", 0644);
	assert_int_equal(run(steps, &ran, &said), 3);
	assert_int_equal(unlink("cicc.sh") || unlink("cudafe.sh") ||
			 unlink("host1.sh") || unlink("gcc.sh"), 0);
	str_release(&ran);
	str_release(&said);
}

static void steps_that_are_not_known_are_nvcc_s(void **state)
{
	struct str ran = STR_INIT, said = STR_INIT;

	(void)state;
	assert_int_equal(run("something else\n", &ran, &said), 3);
	assert_string_equal(ran.buf, "whole\n");
	assert_int_equal(run("", &ran, &said), 3);
	assert_string_equal(ran.buf, "whole\n");
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
