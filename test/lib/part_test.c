/* SPDX-License-Identifier: Apache-2.0
 *
 * What the key of a single source's object goes by.
 */
#include "tests.h"
#include <stdio.h>
#include <string.h>

#include "build/part.h"
#include "jail/jail.h"

#define FILES 6

static struct source_file file[FILES];
static struct plan_unit unit[2];
static struct plan plan;

static void put(size_t i, const char *path, const char *text)
{
	file[i] = (struct source_file){ .path = path, .text = text,
					.len = strlen(text) };
}

static int setup(void **state)
{
	(void)state;
	memset(&plan, 0, sizeof(plan));
	memset(unit, 0, sizeof(unit));
	put(0, "binding.cpp", "#include \"registry.h\"\nint a;\n");
	put(1, "kernels/add.cu", "#include <cuda_runtime.h>\nint b;\n");
	put(2, "kernels/common.h", "int c;\n");
	put(3, "kernels/mul.cu", "int d;\n");
	put(4, "model_new.py", "import cuda_extension\n");
	put(5, "registry.h", "  #  include <torch/extension.h>\n");
	plan.tree = (struct source_tree){ file, FILES };
	plan.form = FORM_PAPER;
	plan.unit = unit;
	plan.nunit = 2;
	unit[0].source = "binding.cpp";
	unit[0].argv[0] = "c++";
	unit[1].source = "kernels/add.cu";
	unit[1].argv[0] = "nvcc";
	snprintf(plan.tc.id, sizeof(plan.tc.id), "compilers");
	return 0;
}

/* Whether changing a file changes the unit's key. */
static int matters(size_t u, size_t changed)
{
	char one[CACHE_KEY], two[CACHE_KEY], text[256];
	struct source_file was = file[changed];

	assert_int_equal(part_key(&plan, &unit[u], JAIL_FULL, one), 1);
	snprintf(text, sizeof(text), "%s\n// changed\n", was.text);
	put(changed, was.path, text);
	assert_int_equal(part_key(&plan, &unit[u], JAIL_FULL, two), 1);
	file[changed] = was;
	return strcmp(one, two) != 0;
}

static void goes_by_what_can_be_read(void **state)
{
	(void)state;
	assert_true(matters(0, 0));
	assert_true(matters(0, 2));	/* a header of a toolkit's may */
	assert_true(matters(0, 5));
	assert_true(matters(1, 1));
	assert_false(matters(0, 1));
	assert_false(matters(0, 3));
	assert_false(matters(0, 4));
	assert_false(matters(1, 0));
}

/* At any remove, and however it is written. */
static void follows_names(void **state)
{
	(void)state;
	put(2, "kernels/common.h", "#include \"mul.cu\"\n");
	assert_true(matters(0, 3));
	assert_false(matters(0, 1));
	put(3, "kernels/mul.cu", "#include \"ad\\\nd.cu\"\n");
	assert_true(matters(0, 1));
	assert_false(matters(1, 0));
}

static void goes_by_everything_else(void **state)
{
	char one[CACHE_KEY], two[CACHE_KEY];

	(void)state;
	assert_int_equal(part_key(&plan, &unit[0], JAIL_FULL, one), 1);
	assert_int_equal(part_key(&plan, &unit[0], JAIL_UID, two), 1);
	assert_string_not_equal(one, two);
	unit[0].argv[1] = "-O3";
	assert_int_equal(part_key(&plan, &unit[0], JAIL_FULL, two), 1);
	assert_string_not_equal(one, two);
	unit[0].argv[1] = NULL;
	snprintf(plan.tc.id, sizeof(plan.tc.id), "others");
	assert_int_equal(part_key(&plan, &unit[0], JAIL_FULL, two), 1);
	assert_string_not_equal(one, two);
}

/* Where reading the text does not tell what a compiler reads. */
static void knows_what_it_does_not_know(void **state)
{
	static const char *const odd[] = {
		"#define H \"kernels/add.cu\"\n#include H\n",
		"#include /* */ H\n", "#inc\\\nlude H\n", "#inc\\ \t\nlude H\n",
		"%:include H\n", "?" "?=include H\n", "#inc?" "?/\nlude H\n",
		"asm(\".incbin \\\"x\\\"\");\n", "__asm__(TEXT);\n",
		"#if __has_include(H)\n#endif\n", "#include_next <a.h>\n",
		"#import H\n", "#embed H\n",
		/* What looks like a comment and may be none. */
		"auto *t = R\"(/*)\";\n#include H\nint b; \57/ */\n",
		"int n = 1'0 \"'/*\" ;\n#include H\nint b; \57/ */\n",
		"\57/ x \\ \n#include H\n", "\57/ x\r#include H\n",
		"int n = 4 \57/**/ 2; asm(TEXT);\n",
		"#include <a/*b>\n#include H\nint c; \57/ */\n",
		"char *s = \"\\\"/*\";\n#include H\nint b; \57/ */\n",
		"char s = '\"'; /* \" */\n#include H\n", "/* */#include H\n",
		"/* open\n#include H\n",
	};
	char key[CACHE_KEY];

	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		put(5, "registry.h", odd[i]);
		if (part_key(&plan, &unit[0], JAIL_FULL, key))
			fail_msg("plain: %s", odd[i]);
	}
	file[5].len = 40;		/* behind a NUL */
	file[5].text = "int x;\0#include H                       ";
	assert_int_equal(part_key(&plan, &unit[0], JAIL_FULL, key), 0);
	setup(NULL);
	put(3, "kernels/mul.cu", odd[0]);	/* nobody names it */
	assert_int_equal(part_key(&plan, &unit[0], JAIL_FULL, key), 1);
	plan.form = FORM_LIGHT;
	assert_int_equal(part_key(&plan, &unit[0], JAIL_FULL, key), 0);
}

/* Prose may say what it likes. */
static void passes_over_comments(void **state)
{
	static const char *const plain[] = {
		"/* Don't include this from asm files: import it. */\nint a;\n",
		"\57/ see the section on includes\nint a; \57/ embed, asm\n",
		"#include <torch/extension.h> \57/ to import\n#define A 1 \57/ asm\n",
		"#if A == 1 /* as in the section above */\n#endif\nchar q = '\"';\n",
		"char *s = \"\57/\"; /* \"include */\n", "",
	};
	char key[CACHE_KEY];

	(void)state;
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		put(5, "registry.h", plain[i]);
		if (part_key(&plan, &unit[0], JAIL_FULL, key) != 1)
			fail_msg("not plain: %s", plain[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(goes_by_what_can_be_read, setup),
		cmocka_unit_test_setup(follows_names, setup),
		cmocka_unit_test_setup(goes_by_everything_else, setup),
		cmocka_unit_test_setup(knows_what_it_does_not_know, setup),
		cmocka_unit_test_setup(passes_over_comments, setup),
	};

	return cmocka_run_group_tests_name("part", tests, NULL, NULL);
}
