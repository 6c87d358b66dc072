/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/base: files, folders, output, the search for Python.
 */
#include "tests.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/io.h"
#include "base/path.h"

static char dir[256];

static const char *in_dir(const char *name)
{
	static char path[8][512];
	static int next;
	char *p = path[next++ % 8];

	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

static int setup(void **state)
{
	(void)state;
	return make_temp_dir("io_test", dir, sizeof dir, NULL);
}

static int teardown(void **state)
{
	(void)state;
	return remove_tree(dir, NULL);
}

static void files_are_read_whole_or_refused(void **state)
{
	struct str s = STR_INIT;
	struct err e = ERR_INIT;
	const char *f = in_dir("f"), *fifo = in_dir("fifo");

	(void)state;
	assert_int_equal(write_file_atomic(f, "hello", 5, 0640, &e), 0);
	assert_int_equal(read_file(f, 5, &s, &e), 0);
	assert_string_equal(s.buf, "hello");
	assert_int_equal(read_file(f, 4, &s, &e), -1);
	assert_int_equal(e.code, CA_DATAERR);
	assert_int_equal(read_file(in_dir("none"), 4, &s, &e), -1);
	assert_int_equal(e.code, CA_NOINPUT);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(read_file(fifo, 4, &s, &e), -1);
	assert_non_null(strstr(e.msg, "not a regular file"));
	assert_int_equal(read_file(dir, 4, &s, &e), -1);
	assert_int_equal(symlink("f", in_dir("link")), 0);
	str_reset(&s);
	assert_int_equal(read_file(in_dir("link"), 5, &s, &e), 0);
	assert_int_equal(read_file_at(AT_FDCWD, in_dir("link"), 5, 0, &s, &e),
			 -1);
	str_release(&s);
}

static void atomic_files_have_their_mode(void **state)
{
	struct stat st;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(write_file_atomic(in_dir("m"), "", 0, 0604, &e), 0);
	assert_int_equal(stat(in_dir("m"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0604);
	assert_int_equal(write_file_atomic(in_dir("no/m"), "", 0, 0600, &e),
			 -1);
	assert_int_equal(e.code, CA_CANTCREAT);
}

static void output_appears_when_committed(void **state)
{
	struct output o;
	struct err e = ERR_INIT;
	struct str s = STR_INIT;

	(void)state;
	assert_int_equal(output_open(&o, in_dir("out"), &e), 0);
	assert_int_equal(output_write(&o, "1\n", 2, &e), 0);
	assert_int_equal(access(in_dir("out"), F_OK), -1);
	assert_int_equal(output_close(&o, 0, &e), 0);
	assert_int_equal(access(o.temp, F_OK), -1);
	assert_int_equal(output_open(&o, in_dir("out"), &e), 0);
	output_write(&o, "2\n", 2, &e);
	assert_int_equal(output_close(&o, 1, &e), 0);
	assert_int_equal(read_file(in_dir("out"), 99, &s, &e), 0);
	assert_string_equal(s.buf, "2\n");
	str_release(&s);
}

/* -o must not replace a device or a symbolic link by a file. */
static void output_keeps_devices_and_links(void **state)
{
	struct output o;
	struct err e = ERR_INIT;
	struct stat st;

	(void)state;
	assert_int_equal(output_open(&o, "/dev/full", &e), 0);
	assert_int_equal(output_write(&o, "x", 1, &e), -1);
	assert_int_equal(e.code, CA_IOERR);
	output_close(&o, 0, NULL);
	assert_int_equal(stat("/dev/full", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	write_file_atomic(in_dir("real"), "old", 3, 0600, &e);
	assert_int_equal(symlink("real", in_dir("alias")), 0);
	assert_int_equal(output_open(&o, in_dir("alias"), &e), 0);
	output_write(&o, "new!", 4, &e);
	assert_int_equal(output_close(&o, 1, &e), 0);
	assert_int_equal(lstat(in_dir("alias"), &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(stat(in_dir("real"), &st), 0);
	assert_int_equal(st.st_size, 4);
}

static void trees_go_however_deep(void **state)
{
	struct err e = ERR_INIT;
	int i, top, fd;

	(void)state;
	assert_int_equal(mkdir_p(in_dir("t/a/b"), 0755, &e), 0);
	assert_int_equal(symlink("/", in_dir("t/a/root")), 0);
	fd = top = open(in_dir("t"), O_RDONLY | O_DIRECTORY);
	for (i = 0; i < 400; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "d", 0), 0);
		fchmodat(fd, "d", 0700, 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
		if (fd != top)
			close(fd);
		fd = next;
	}
	fchmod(fd, 0);
	close(fd);
	close(top);
	assert_int_equal(remove_tree(in_dir("t"), &e), 0);
	assert_int_equal(access(in_dir("t"), F_OK), -1);
	assert_int_equal(access("/etc", F_OK), 0);
	assert_int_equal(remove_tree(in_dir("t"), &e), 0);
}

static void mkdir_p_needs_folders(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	write_file_atomic(in_dir("plain"), "", 0, 0600, &e);
	assert_int_equal(mkdir_p(in_dir("plain/x"), 0755, &e), -1);
	assert_int_equal(e.code, CA_CANTCREAT);
}

static void waiting_ends_at_the_deadline(void **state)
{
	struct err e = ERR_INIT;
	char buf[4];
	int fd[2];

	(void)state;
	assert_int_equal(pipe(fd), 0);
	assert_int_equal(wait_readable(fd[0], deadline_in(0.01), &e), 0);
	assert_int_equal(write_full(fd[1], "ab", 2, &e), 0);
	assert_int_equal(wait_readable(fd[0], deadline_in(9), &e), 1);
	close(fd[1]);
	assert_int_equal(read_full(fd[0], buf, sizeof buf, &e), 2);
	assert_int_equal(wait_readable(fd[0], deadline_in(9), &e), 1);
	close(fd[0]);
}

static void folders_follow_the_environment(void **state)
{
	char out[CA_PATH_MAX];
	struct err e = ERR_INIT;
	struct stat st;

	(void)state;
	setenv("CA_CACHE", in_dir("cache"), 1);
	assert_int_equal(path_cache(out, "obj", &e), 0);
	assert_string_equal(out, in_dir("cache/obj"));
	assert_int_equal(stat(out, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	setenv("CA_CONFIG", in_dir("conf"), 1);
	assert_int_equal(path_config(out, "key", &e), 0);
	assert_string_equal(out, in_dir("conf/key"));
	assert_int_equal(stat(in_dir("conf"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	setenv("CA_LIBDIR", "/some/lib", 1);
	assert_int_equal(path_lib(out, "torch/host.py", &e), 0);
	assert_string_equal(out, "/some/lib/torch/host.py");
	unsetenv("CA_LIBDIR");
}

/* A python3 on the path that has a torch, and one that has none. */
static void make_python(const char *bin, const char *torch)
{
	char script[1024], path[64];
	struct err e = ERR_INIT;

	assert_int_equal(mkdir_p(in_dir(bin), 0755, &e), 0);
	snprintf(path, sizeof path, "%s/python3", bin);
	snprintf(script, sizeof script, "#!/bin/sh\necho run >> %s/count\n"
		 "echo '%s'\necho %s\n", dir, torch, dir);
	assert_int_equal(write_file_atomic(in_dir(path), script,
					   strlen(script), 0755, &e), 0);
}

static void python_is_asked_once(void **state)
{
	char out[CA_PATH_MAX], path[1024];
	struct err e = ERR_INIT;
	struct str s = STR_INIT;
	int i;

	(void)state;
	unsetenv("CA_PYTHON");
	setenv("CA_CACHE", in_dir("cache2"), 1);
	make_python("py1", "");
	make_python("py2", dir);
	snprintf(path, sizeof path, "%s:%s", in_dir("py1"), in_dir("py2"));
	setenv("PATH", path, 1);
	chmod(dir, 0755);
	assert_int_equal(mkdir_p(in_dir("cache2"), 0755, &e), 0);
	write_file_atomic(in_dir("count"), "", 0, 0600, &e);
	for (i = 0; i < 3; i++) {
		assert_int_equal(path_python(out, &e), 0);
		assert_string_equal(out, in_dir("py2/python3"));
	}
	assert_int_equal(read_file(in_dir("count"), 999, &s, &e), 0);
	assert_string_equal(s.buf, "run\nrun\n");
	str_release(&s);
	setenv("PATH", in_dir("py1"), 1);
	assert_int_equal(path_python(out, &e), -1);
	assert_int_equal(e.code, CA_UNAVAILABLE);
	setenv("CA_PYTHON", in_dir("nowhere"), 1);
	assert_int_equal(path_python(out, &e), -1);
	/* A link may lie where no jail shows it; what it leads to is shown. */
	assert_int_equal(symlink(in_dir("py2"), in_dir("py-link")), 0);
	setenv("CA_PYTHON", in_dir("py-link/python3"), 1);
	assert_int_equal(path_python(out, &e), 0);
	assert_string_equal(out, in_dir("py2/python3"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_read_whole_or_refused),
		cmocka_unit_test(atomic_files_have_their_mode),
		cmocka_unit_test(output_appears_when_committed),
		cmocka_unit_test(output_keeps_devices_and_links),
		cmocka_unit_test(trees_go_however_deep),
		cmocka_unit_test(mkdir_p_needs_folders),
		cmocka_unit_test(waiting_ends_at_the_deadline),
		cmocka_unit_test(folders_follow_the_environment),
		cmocka_unit_test(python_is_asked_once),
	};

	return cmocka_run_group_tests_name(__FILE__, tests, setup, teardown);
}
