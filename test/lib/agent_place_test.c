/* SPDX-License-Identifier: Apache-2.0
 *
 * The work directory and the tools that read and write it, without a jail:
 * no name leads out, what is protected stays, odd files are told.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files.h"
#include "agent/room.h"
#include "agent/search.h"
#include "base/io.h"

static char top[64];
static struct place place;

static void put(const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	assert_int_equal(write_file_atomic(path, text, strlen(text), 0644,
					   NULL), 0);
}

static int make(void **state)
{
	char work[96], skill[96], fixed[4096];
	struct err e = ERR_INIT;

	(void)state;
	strcpy(top, "/tmp/agent_place.XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(skill, sizeof(skill), "%s/skill", top);
	assert_int_equal(mkdir(skill, 0755), 0);
	put("skill/SKILL.md", "Be fast.\n");
	put("secret", "s3cr3t\n");
	assert_int_equal(place_fixed(top, skill, fixed, &e), 0);
	snprintf(work, sizeof(work), "%s/work", top);
	assert_int_equal(place_make(work, "x = 1\n", fixed, getuid(), &e), 0);
	assert_int_equal(place_open(&place, work, fixed, &e), 0);
	return 0;
}

static int drop(void **state)
{
	(void)state;
	place_close(&place);
	return remove_tree(top, NULL);
}

typedef int tool(const struct place *p, const struct json *args,
		 struct str *out);

/* What the tool answers; it fails as often as expected. */
static const char *use(tool *t, const char *args, int ok)
{
	static struct str out = { .cap = 1 << 20 };
	struct json *j = json_parse(args, strlen(args), JSON_MAX_LINE, NULL,
				    NULL);

	assert_non_null(j);
	str_reset(&out);
	assert_int_equal(t(&place, j, &out), ok);
	json_free(j);
	return out.buf ? out.buf : "";
}

static void says(const char *answer, const char *part)
{
	if (!strstr(answer, part))
		fail_msg("'%s' is not in '%s'", part, answer);
}

static void link_in(const char *to, const char *name)
{
	assert_int_equal(symlinkat(to, place.fd, name), 0);
}

static void no_name_leads_out(void **state)
{
	char to[96];

	(void)state;
	snprintf(to, sizeof(to), "%s/secret", top);
	link_in(to, "abs");
	link_in("../secret", "rel");
	link_in("/proc/self/root", "proc");
	link_in("..", "up");
	link_in("loop", "loop");
	says(use(files_read, "{\"file_path\":\"/etc/passwd\"}", 0),
	     "not below /work");
	says(use(files_read, "{\"file_path\":\"/workshop\"}", 0),
	     "not below /work");
	says(use(files_read, "{\"file_path\":\"\"}", 0), "not below /work");
	says(use(files_read, "{\"file_path\":\"../secret\"}", 0),
	     "leads out of /work");
	says(use(files_read, "{\"file_path\":\"kernels/../../secret\"}", 0),
	     "leads out of /work");
	for (const char *const *p = (const char *const[]){ "abs", "rel",
	     "proc/etc/passwd", "up/secret", "loop", NULL }; *p; p++) {
		char args[128];

		snprintf(args, sizeof(args), "{\"file_path\":\"/work/%s\"}",
			 *p);
		says(use(files_read, args, 0), "leads out of /work");
		snprintf(args, sizeof(args), "{\"file_path\":\"%s/new\","
			 "\"content\":\"x\"}", *p);
		use(files_write, args, 0);
	}
	snprintf(to, sizeof(to), "%s/new", top);
	assert_int_equal(access(to, F_OK), -1);
}

static void what_is_protected_stays(void **state)
{
	struct str text = STR_INIT;

	(void)state;
	says(use(files_write, "{\"file_path\":\"/work/model.py\",\"content\":"
		 "\"y\"}", 0), "'model.py' is protected");
	says(use(files_write, "{\"file_path\":\"kernels/../SKILL.md\","
		 "\"content\":\"y\"}", 0), "'SKILL.md' is protected");
	says(use(files_write, "{\"file_path\":\"utils/more.py\",\"content\":"
		 "\"y\"}", 0), "'utils' is protected");
	/* A link to it is replaced by nobody, a second name only itself. */
	link_in("model.py", "alias");
	says(use(files_edit, "{\"file_path\":\"alias\",\"old_string\":\"1\","
		 "\"new_string\":\"2\"}", 0), "not a regular file");
	assert_int_equal(linkat(place.fd, "model.py", place.fd, "hard", 0),
			 0);
	use(files_edit, "{\"file_path\":\"hard\",\"old_string\":\"1\","
	    "\"new_string\":\"2\"}", 1);
	assert_int_equal(place_read(&place, "model.py", 99, &text, NULL), 0);
	assert_string_equal(text.buf, "x = 1\n");
	str_release(&text);
}

static void odd_files_are_told(void **state)
{
	(void)state;
	assert_int_equal(mkfifoat(place.fd, "fifo", 0644), 0);
	assert_int_equal(mkdirat(place.fd, "dir", 0755), 0);
	put("work/bin", "a");
	assert_int_equal(truncate(strcat(strcpy((char[96]){ 0 }, top),
					 "/work/bin"), 9), 0);
	put("work/empty", "");
	put("work/crlf", "a\tb\r\nlast");
	says(use(files_read, "{\"file_path\":\"fifo\"}", 0), "is a FIFO");
	says(use(files_read, "{\"file_path\":\"dir\"}", 0), "is a directory");
	says(use(files_read, "{\"file_path\":\"bin\"}", 0), "is a binary");
	says(use(files_read, "{\"file_path\":\"empty\"}", 1), "is empty");
	says(use(files_read, "{\"file_path\":\"none\"}", 0),
	     "does not exist");
	says(use(files_read, "{\"file_path\":\"crlf\",\"offset\":3}", 0),
	     "has only 2 lines");
	assert_string_equal(use(files_read, "{\"file_path\":\"crlf\"}", 1),
			    "     1\xe2\x86\x92" "a\tb\n"
			    "     2\xe2\x86\x92last\n(lines 1-2 of 2)");
	says(use(files_write, "{\"file_path\":\"dir\",\"content\":\"x\"}", 0),
	     "not a regular file");
	says(use(files_multi_edit, "{\"file_path\":\"crlf\",\"edits\":[]}",
		 0), "edits is empty");
}

static void what_is_cut_is_whole_characters(void **state)
{
	struct str out = STR_INIT;

	(void)state;
	assert_int_equal(text_cut("a\xe2\x82\xac", 4), 4);
	assert_int_equal(text_cut("a\xe2\x82\xac", 3), 1);
	assert_int_equal(text_cut("a\xe2\x82\xac", 2), 1);
	assert_int_equal(text_cut("\x80\x80\x80\x80\x80", 5), 5);
	assert_int_equal(text_cut("", 0), 0);
	text_add(&out, "a\0\x1b\xff\tb\n", 7);
	assert_string_equal(out.buf, "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
			    "\tb\n");
	str_release(&out);
}

static void output_is_filtered_by_lines(void **state)
{
	static const char text[] = "one\n--two\nthree\n";
	struct err e = ERR_INIT;
	struct str out = STR_INIT;

	(void)state;
	if (system("command -v rg >/dev/null"))
		skip();
	assert_int_equal(search_filter("^t", text, strlen(text), &out, &e),
			 0);
	assert_string_equal(out.buf, "three\n");
	str_reset(&out);
	assert_int_equal(search_filter("--two", text, strlen(text), &out, &e),
			 0);
	assert_string_equal(out.buf, "--two\n");
	str_reset(&out);
	assert_int_equal(search_filter("four", text, strlen(text), &out, &e),
			 0);
	assert_int_equal(out.len, 0);
	assert_int_equal(search_filter("(", text, strlen(text), &out, &e),
			 -1);
	says(e.msg, "regex parse error");
	str_release(&out);
}

static void a_digest_is_of_what_may_change(void **state)
{
	char before[HASH_HEX], after[HASH_HEX];
	int64_t bytes, more;

	(void)state;
	assert_int_equal(place_digest(&place, before, &bytes, NULL), 0);
	put("work/.output/bash_1.txt", "out");
	assert_int_equal(place_digest(&place, after, &more, NULL), 0);
	assert_string_equal(before, after);
	assert_true(more > bytes);
	put("work/kernels/a.c", "int x;\n");
	assert_int_equal(place_digest(&place, after, NULL, NULL), 0);
	assert_string_not_equal(before, after);
	assert_int_equal(unlinkat(place.fd, "kernels/a.c", 0), 0);
	assert_int_equal(place_digest(&place, after, NULL, NULL), 0);
	assert_string_equal(before, after);
}

#define IN_PLACE(f) cmocka_unit_test_setup_teardown(f, make, drop)

static void who_makes_no_room_is_heard_three_times(void **state)
{
	struct room r;

	(void)state;
	room_init(&r, &place, 100);
	assert_true(room_count(&r, 1000) >= 1000);
	assert_true(room_begin(&r, 100));
	assert_true(room_begin(&r, 150));
	assert_true(room_begin(&r, 150));
	assert_true(room_begin(&r, 149));
	assert_true(room_begin(&r, 150));
	assert_true(room_begin(&r, 150));
	assert_false(room_begin(&r, 150));
	assert_true(room_begin(&r, 99));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACE(no_name_leads_out),
		IN_PLACE(what_is_protected_stays),
		IN_PLACE(odd_files_are_told),
		cmocka_unit_test(what_is_cut_is_whole_characters),
		cmocka_unit_test(output_is_filtered_by_lines),
		IN_PLACE(who_makes_no_room_is_heard_three_times),
		IN_PLACE(a_digest_is_of_what_may_change),
	};

	return RUN_TESTS(tests);
}
