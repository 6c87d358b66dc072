/* SPDX-License-Identifier: Apache-2.0
 *
 * What an inline candidate may ask for: flags, sources, names.
 */
#include "tests.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build/inline.h"
#include "build/log.h"

static struct arena arena;

static int teardown(void **state)
{
	(void)state;
	arena_release(&arena);
	return 0;
}

/* What is left of flags in one line, or "! FLAG" of the refused one. */
static const char *taken(enum flag_tool tool, const char *line)
{
	static char out[1024];
	const char *in[FLAGS_MAX], *bad;
	struct flags f;
	char *s = arena_strdup(&arena, line), *save = NULL;
	size_t n = 0, i;

	for (s = strtok_r(s, " ", &save); s; s = strtok_r(NULL, " ", &save))
		in[n++] = s;
	out[0] = '\0';
	switch (flags_take(tool, in, n, &arena, &f, &bad)) {
	case 0:
		for (i = 0; i < f.n; i++) {
			strcat(out, i ? " " : "");
			strcat(out, f.v[i]);
		}
		if (f.std)
			sprintf(out + strlen(out), " c++%d", f.std);
		break;
	case 1:
		sprintf(out, "! %s", bad);
		break;
	default:
		fail();
	}
	return out;
}

static void flags(void **state)
{
	static const struct {
		enum flag_tool tool;
		const char *in, *out;
	} t[] = {
		{ FLAG_CXX, "-O3 -Ofast -DX -D Y=1 -UZ", "-O3 -Ofast -DX -DY=1 "
		  "-UZ" },
		{ FLAG_CXX, "-march=native -mavx2 -Wall -g -fPIC", "" },
		{ FLAG_CXX, "-std=c++14 -std=gnu++20", " c++20" },
		{ FLAG_CXX, "-std=c++98", "! -std=c++98" },
		{ FLAG_CXX, "-ffp-contract=fast", "-ffp-contract=fast" },
		{ FLAG_CXX, "-ffp-contract=", "! -ffp-contract=" },
		{ FLAG_CXX, "-D", "! -D" }, { FLAG_CXX, "-D 1", "! -D" },
		{ FLAG_CXX, "-O3x", "! -O3x" }, { FLAG_CXX, "--O3", "! --O3" },
		{ FLAG_CXX, "-include x", "! -include" },
		{ FLAG_NVCC, "-DX=\"a\"", "-DX=\"a\"" },
		{ FLAG_NVCC, "-DX=$(id)", "! -DX=$(id)" },
		{ FLAG_NVCC, "-D X=`id`", "! -D" },
		{ FLAG_NVCC, "-DX=\\\"a\\\"", "-DX=\\\"a\\\"" },
		{ FLAG_NVCC, "-DX=\\\\\";id;\"", "! -DX=\\\\\";id;\"" },
		{ FLAG_NVCC, "-DX=a\\", "! -DX=a\\" },
		{ FLAG_NVCC, "-DX=1\n2", "! -DX=1\n2" },
		{ FLAG_NVCC, "-Xptxas -dlcm=$(id)", "! -Xptxas" },
		{ FLAG_CXX, "@x", "! @x" }, { FLAG_CXX, "x.o", "! x.o" },
		{ FLAG_CXX, "-I/x", "! -I/x" },
		{ FLAG_NVCC, "--use_fast_math -use_fast_math",
		  "-use_fast_math -use_fast_math" },
		{ FLAG_NVCC, "-gencode arch=compute_80,code=sm_80 "
		  "-arch=sm_70 --gpu-architecture sm_90 -code=x", "" },
		{ FLAG_NVCC, "--maxrregcount=48 -maxrregcount 32",
		  "-maxrregcount=48 -maxrregcount=32" },
		{ FLAG_NVCC, "--maxrregcount=x", "! --maxrregcount=x" },
		{ FLAG_NVCC, "-Xptxas=-O3,-v --ptxas-options -dlcm=ca",
		  "-Xptxas -O3 -Xptxas -dlcm=ca" },
		{ FLAG_NVCC, "-Xptxas -o,/x", "! -Xptxas" },
		{ FLAG_NVCC, "-Xcompiler -O2,-fPIC", "-Xcompiler -O2" },
		{ FLAG_NVCC, "-Xcompiler=-I/x", "! -Xcompiler=-I/x" },
		{ FLAG_NVCC, "-Xcompiler -fplugin=x", "! -Xcompiler" },
		{ FLAG_NVCC, "--ftz=true -prec-div=false",
		  "-ftz=true -prec-div=false" },
		{ FLAG_NVCC, "-ftz=1", "! -ftz=1" },
		{ FLAG_NVCC, "-rdc=true", "! -rdc=true" },
		{ FLAG_NVCC, "-Xlinker x", "! -Xlinker" },
		{ FLAG_NVCC, "-Xptxas", "! -Xptxas" },
		{ FLAG_NVCC, "--options-file x", "! --options-file" },
		{ FLAG_LINK, "-lcublas -lcudnn -lm -L/x", "cublas cudnn" },
		{ FLAG_LINK, "-levil", "! -levil" },
		{ FLAG_LINK, "-Wl,-rpath,/x", "! -Wl,-rpath,/x" },
		{ FLAG_LINK, "/x/y.so", "! /x/y.so" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(*t); i++)
		assert_string_equal(taken(t[i].tool, t[i].in), t[i].out);
}

/* Whether the requests are taken; `why` of one that is not. */
static int takes(const char *requests, struct exts *x, const char **why)
{
	struct source_file own = { "kernels/a.cu", "x", 1, 0 };
	struct source_tree tree = { &own, 1 };
	struct err e = ERR_INIT;
	struct json *j;
	char text[4096];
	int rc;

	snprintf(text, sizeof(text), "{\"requests\":[%s]}", requests);
	j = json_parse(text, strlen(text), sizeof(text), NULL, &e);
	assert_non_null(j);
	rc = inline_read(j, &tree, &arena, x, why, &e);
	json_free(j);
	assert_true(rc >= 0);
	return rc == 0;
}

static void requests(void **state)
{
	static const char *const bad[] = {
		"{}", "7", "{\"name\":\"x\"}",
		"{\"name\":\"x\",\"sources\":[]}",
		"{\"name\":\"x y\",\"sources\":[{\"path\":\"a.cpp\","
		"\"text\":\"\"}]}",
		"{\"name\":\"x\",\"sources\":[{\"path\":\"../a.cpp\","
		"\"text\":\"\"}]}",
		"{\"name\":\"x\",\"sources\":[{\"path\":\"a.so\","
		"\"text\":\"\"}]}",
		"{\"name\":\"x\",\"sources\":[{\"path\":\"kernels/b.cu\"}]}",
		"{\"name\":\"x\",\"sources\":[{\"path\":\"/etc/passwd\"}]}",
		"{\"name\":\"x\",\"sources\":[{\"path\":\"a.cpp\","
		"\"text\":\"\"},{\"path\":\"a.cpp\",\"text\":\"\"}]}",
		"{\"name\":\"x\",\"cflags\":[7],\"sources\":"
		"[{\"path\":\"a.cpp\",\"text\":\"\"}]}",
	};
	static const char good[] =
		"{\"name\":\"x\",\"sources\":[{\"path\":\"main.cpp\","
		"\"text\":\"int\\u00e4\"},{\"path\":\"kernels/a.cu\"}],"
		"\"cflags\":[\"-O2\"],\"ldflags\":null}";
	struct exts x;
	const char *why;
	char two[1024];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_false(takes(bad[i], &x, &why));
		assert_non_null(why);
	}
	assert_true(takes(good, &x, &why));
	assert_int_equal(x.n, 1);
	assert_string_equal(x.v[0].path[0], "inline/0/main.cpp");
	assert_string_equal(x.v[0].path[1], "kernels/a.cu");
	assert_int_equal(x.made.n, 1);
	/* as hashlib has it in lib/torch/inline.py */
	assert_string_equal(x.v[0].request,
			    "a69ed8cd79a02291b37537ef91d7506f5d8adef0"
			    "e3a4c1414ec85ea1db792446");
	snprintf(two, sizeof(two), "%s,%s", good, good);
	assert_false(takes(two, &x, &why));
	assert_string_equal(why, "two extensions are named 'x'");
	assert_true(takes("", &x, &why));
	assert_int_equal(x.n, 0);
}

static void blame(void **state)
{
	static const char *const torch[] = {
		"a.cu(7): error: namespace \"at\" has no member \"hypot\"",
		"a.cpp:1:9: fatal error: ATen/cuda/Atomic.cuh: No such file",
		"x.cpp:3:4: error: 'foo' is not a member of 'at'",
		("x.cpp:3:4: error: 'foo' is not a member of 'torch'; did you "
		 "mean 'food'?"),
		("a.cu(9): error: no operator \"+\" matches these operands\n"
		 "            operand types are: at::Tensor + at::Tensor"),
		("a.cu(2): error: identifier \"AT_DISPATCH_ALL_TYPES_AND4\" is "
		 "undefined"),
	};
	static const char *const own[] = {
		"a.cu(7): error: identifier \"blockIdy\" is undefined",
		("a.cpp:2:1: error: expected ';' before '}' token\n"
		 "    2 | torch::Tensor f() { return x }\n"),
		"torch::Tensor is fine", "",
		("m.cpp:4:9: error: 'forward' was not declared in this scope; "
		 "did you mean 'std::forward'?"),
		("m.cpp:9:1: error: redefinition of "
		 "'void catorch_fill_x(pybind11::module_&)'"),
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(torch) / sizeof(*torch); i++)
		assert_true(log_blames_torch(torch[i], strlen(torch[i])));
	for (i = 0; i < sizeof(own) / sizeof(*own); i++)
		assert_false(log_blames_torch(own[i], strlen(own[i])));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags),
		cmocka_unit_test(requests),
		cmocka_unit_test(blame),
	};

	return cmocka_run_group_tests_name("inline", tests, NULL, teardown);
}
