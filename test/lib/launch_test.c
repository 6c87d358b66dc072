/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens, declarations, launchers and forms.
 */
#include "tests.h"
#include <stdio.h>
#include <string.h>

#include "build/form.h"

static struct arena arena;
static struct source_file file[4];
static struct source_tree tree;
static struct decls decls;
static struct launch_set set;
static const char *caller;

static int teardown(void **state)
{
	(void)state;
	arena_release(&arena);
	tree.n = 0;
	return 0;
}

static void add(const char *path, const char *text)
{
	struct source_file *f = &file[tree.n++];

	f->path = path;
	f->text = text;
	f->len = strlen(text);
	f->included = 0;
	tree.file = file;
}

static void find(void)
{
	struct err e = ERR_INIT;

	assert_int_equal(decl_scan(&tree, &arena, &decls, &e), 0);
	assert_int_equal(launch_find(&decls, caller, &arena, &set, &e), 0);
}

/* "name(type:dtype,…)" of launcher i, "!" behind const pointers. */
static const char *show(size_t i)
{
	static char buf[2048];
	const struct launcher *l;
	size_t k, n;

	if (i >= set.n)
		return "(none)";
	l = &set.v[i];
	n = (size_t)snprintf(buf, sizeof(buf), "%s %s(", l->ret, l->name);
	for (k = 0; k < l->narg; k++)
		n += (size_t)snprintf(buf + n, sizeof(buf) - n, "%s%s%s%s%s",
			k ? "," : "", l->arg[k].type,
			l->arg[k].dtype ? ":" : "",
			l->arg[k].dtype ? l->arg[k].dtype : "",
			l->arg[k].is_const ? "!" : "");
	snprintf(buf + n, sizeof(buf) - n, ")");
	return buf;
}

static void finds(const char *path, const char *text, const char *want)
{
	tree.n = 0;
	add(path, text);
	find();
	if (set.error)
		fail_msg("%s: %s", text, set.error);
	assert_string_equal(show(0), want);
	assert_int_equal(set.n, 1);
}

static void refuses(const char *path, const char *text, unsigned line,
		    const char *what)
{
	tree.n = 0;
	add(path, text);
	find();
	assert_non_null(set.error);
	assert_non_null(strstr(set.error, what));
	assert_string_equal(set.error_file, path);
	assert_int_equal(set.error_line, line);
}

static void finds_nothing(const char *path, const char *text)
{
	tree.n = 0;
	add(path, text);
	find();
	if (set.error)
		fail_msg("%s: %s", text, set.error);
	assert_string_equal(show(0), "(none)");
}

/* A helper of a .c file is left out, unless it is called as a launcher. */
static void called_by_name(void **state)
{
	static const char text[] = "struct s; int help(struct s *p)\n"
				   "{ return !p; }\n";

	(void)state;
	finds_nothing("kernels/a.c", text);
	caller = "import cuda_extension as c\nc.help(1)  # help(\n";
	refuses("kernels/a.c", text, 1, "'help': parameter 1 has type");
	caller = "c.helper(1)  # help()\n";
	finds_nothing("kernels/a.c", text);
	caller = NULL;
}

struct want {
	enum tok_type type;
	const char *text;
	unsigned line;
};

static void tokens_are(const char *text, const struct want *w)
{
	struct lexer x;
	struct token t;

	assert_int_equal(lex_init(&x, &arena, text, strlen(text)), 0);
	for (; w->type != TOK_END; w++) {
		lex_next(&x, &t);
		assert_int_equal(t.type, w->type);
		assert_int_equal(t.line, w->line);
		if (!tok_is(&t, w->text))
			fail_msg("got '%.*s', not '%s'", (int)t.len, t.p,
				 w->text);
	}
	lex_next(&x, &t);
	assert_int_equal(t.type, TOK_END);
	lex_next(&x, &t);
	assert_int_equal(t.type, TOK_END);
}

static void tokens(void **state)
{
	static const struct want plain[] = {
		{ TOK_DIRECTIVE, "#define A /* two\nlines */ 1", 1 },
		{ TOK_IDENT, "x", 3 }, { TOK_PUNCT, "<<<", 3 },
		{ TOK_NUMBER, "0x1p-3", 3 }, { TOK_NUMBER, "1'000.e+5", 3 },
		{ TOK_STRING, "R\"a(\")\" \n)a\"", 3 },
		{ TOK_STRING, "u8\"q\\\"\"", 4 }, { TOK_CHAR, "'\\''", 4 },
		{ TOK_IDENT, "y", 5 }, { TOK_END, "", 0 },
	};
	static const struct want spliced[] = {
		{ TOK_IDENT, "joined", 1 }, { TOK_PUNCT, "::", 4 },
		{ TOK_PUNCT, "->", 4 }, { TOK_PUNCT, "#", 4 },
		{ TOK_DIRECTIVE, "# define B  2", 5 }, { TOK_IDENT, "z", 7 },
		{ TOK_END, "", 0 },
	};

	(void)state;
	tokens_are("#define A /* two\nlines */ 1\n"
		   "x<<< 0x1p-3 1'000.e+5 R\"a(\")\" \n)a\""
		   " u8\"q\\\"\" '\\'' /" "/ c \"\ny", plain);
	tokens_are("jo\\\nin\\\r\ned\n:: -> #\n # define B \\\n 2\nz",
		   spliced);
}

static void broken_text_ends(void **state)
{
	static const char *const text[] = {
		"/* never closed", "\"never closed", "R\"x(never", "R\"",
		"'", "#", "#define", "#include \"x", "\\\n\\\n", "\\",
		"extern \"C\" {", "extern \"C\" void f(", "template <",
		"typedef", "using x =", "namespace", "((((((", "}}}}}", "[[",
		"extern \"C\" void f(int x) {", "#if 0\n#else", "#endif\n#else",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(text) / sizeof(*text); i++) {
		tree.n = 0;
		add("kernels/a.cu", text[i]);
		find();
	}
}

static void launchers(void **state)
{
	(void)state;
	finds("kernels/a.cpp", "extern \"C\" void f() {}", "void f()");
	finds("kernels/a.cpp", "extern \"C\" void f(void) {}", "void f()");
	finds("kernels/a.c", "int f(const float *restrict x, long n) {}",
	      "i32 f(ptr:float32!,i64)");
	finds("kernels/a.c", "void f(const float x[static 4], int n[]) {}\n"
	      "static void g(int n) {}",
	      "void f(ptr:float32!,ptr:int32)");
	finds("kernels/a.cu", "extern \"C\" {\nstatic int g(int q) { return "
	      "q; }\nvoid f(float* __restrict__ x, int n, "
	      "cudaStream_t s) { k<<<1,2,0,s>>>(x); }\n}",
	      "void f(ptr:float32,i32,stream)");
	assert_int_equal(decls.launches, 1);
	finds("kernels/a.cu", "namespace n { extern \"C\" cudaError_t f(int "
	      "a = 1 << 2, bool b = (3, 4)) noexcept { return {}; } }",
	      "i32 f(i32,bool)");
	finds("kernels/a.cpp", "__attribute__((visibility(\"default\"))) "
	      "extern \"C\" void f(double *) {}", "void f(ptr:float64)");
	finds("kernels/a.cpp", "extern \"C\" [[gnu::hot]] inline auto "
	      "f(float x) -> float { return x; }", "f32 f(f32)");
	finds("kernels/a.cpp", "extern \"C\" void f(int);\n"
	      "void f(int n) { if (n) { } }", "void f(i32)");
	finds("kernels/a.cu", "template <int N, class T = a<b<3>>> __global__ "
	      "void k(T *x) {}\nextern \"C\" void f(float *x) { k<3, float>"
	      "<<<1, 1>>>(x); }", "void f(ptr:float32)");
	finds("kernels/a.cpp", "struct s { int a; void m() { } };\n"
	      "static auto l = [](int a) { return a; };\n"
	      "enum e { A, B };\nint v[] = { 1, 2 };\n"
	      "s make(int a) { return {a}; }\n"
	      "extern \"C\" void f(int a) { }", "void f(i32)");
	finds("kernels/a.cpp", "// extern \"C\" void a(int x) {}\n"
	      "/* extern \"C\" void b(int x) {} */\n"
	      "const char *t = \"extern \\\"C\\\" void c(int x) {}\";\n"
	      "const char *u = R\"(extern \"C\" void d(int x) {})\";\n"
	      "extern \"C\" void f(int x) { }", "void f(i32)");
	finds("kernels/a.cu", "extern \"C\" __global__ void "
	      "__launch_bounds__(256) f(const float *x, int n) { }",
	      "void f(ptr:float32!,i32)");
	assert_int_equal(set.kernels, 1);
}

static void types(void **state)
{
	(void)state;
	finds("kernels/a.cu", "extern \"C\" void f(__half *a, const half *b, "
	      "__nv_bfloat16 *c, at::Half *d, c10::BFloat16 *e, half2 *g, "
	      "const float4 *h, _Float16 *i) {}",
	      "void f(ptr:float16,ptr:float16!,ptr:bfloat16,ptr:float16,"
	      "ptr:bfloat16,ptr:float16,ptr:float32!,ptr:float16)");
	finds("kernels/a.cpp", "extern \"C\" void f(std::int64_t a, uint8_t *b,"
	      " unsigned long long c, long int d, unsigned e, size_t f, "
	      "char *g, signed char h, short *i, uint16_t const *j) {}",
	      "void f(i64,ptr:uint8,u64,i64,u32,u64,ptr:int8,i8,ptr:int16,"
	      "ptr:uint16!)");
}

static void more_types(void **state)
{
	(void)state;
	finds("kernels/a.cpp", "extern \"C\" void f(void *a, const void *b, "
	      "float c[], std::complex<float> *d, bool *e, float const *const "
	      "g, double _Complex *h) {}",
	      "void f(ptr,ptr!,ptr:float32,ptr:complex64,ptr:bool,"
	      "ptr:float32!,ptr:complex128)");
	finds("kernels/a.cpp", "typedef float real;\nusing index = "
	      "std::int64_t;\ntypedef const real *in;\nextern \"C\" void "
	      "f(in x, real *y, index n) {}",
	      "void f(ptr:float32!,ptr:float32,i64)");
	finds("kernels/a.cu", "extern \"C\" void f(struct CUstream_st *s) {}",
	      "void f(stream)");
	finds("kernels/a.cpp", "extern \"C\" bool f(float x) { return x; }",
	      "bool f(f32)");
}

static void what_cannot_be_passed(void **state)
{
	(void)state;
	refuses("kernels/a.cpp", "\n\nextern \"C\" void f(int n, "
		"std::vector<float> x) {}", 3, "'std::vector<float> x'");
	refuses("kernels/a.cpp", "extern \"C\" void f(float **x) {}", 1,
		"parameter 1");
	refuses("kernels/a.cpp", "extern \"C\" void f(const float &x) {}", 1,
		"'const float & x'");
	refuses("kernels/a.cpp", "extern \"C\" void f(void (*cb)(int)) {}", 1,
		"cannot be passed");
	refuses("kernels/a.cpp", "extern \"C\" void f(int n, ...) {}", 1,
		"'...'");
	refuses("kernels/a.cu", "extern \"C\" void f(half x) {}", 1,
		"'half x'");
	refuses("kernels/a.cu", "extern \"C\" void f(cudaStream_t s, int n) "
		"{}", 1, "before the last");
	refuses("kernels/a.cpp", "extern \"C\" float *f(int n) { return 0; }",
		1, "result has type");
	refuses("kernels/a.cpp", "struct s;\nextern \"C\" void f(struct s x) "
		"{}", 2, "struct s x");
	refuses("kernels/a.cpp", "extern \"C\" void f(float x[2][2]) {}", 1,
		"cannot be passed");
	refuses("kernels/a.cpp", "extern \"C\" void f(long double x) {}", 1,
		"long double");
}

static void not_launchers(void **state)
{
	(void)state;
	finds_nothing("kernels/a.cpp", "void f(int n) {}");
	finds_nothing("kernels/a.cpp", "extern \"C\" void f(int n);");
	finds_nothing("kernels/a.cpp", "extern \"C\" { static void f(int n) "
		      "{} }");
	finds_nothing("kernels/a.cu", "extern \"C\" __device__ float f(float "
		      "x) { return x; }");
	finds_nothing("kernels/a.cpp", "extern \"C\" { struct s { void f(int "
		      "n) { } }; }");
	finds_nothing("kernels/a.cpp", "#if 0\nextern \"C\" void f(int n) {}\n"
		      "#endif");
	finds_nothing("kernels/a.cpp", "#ifdef __CUDA_ARCH__\nextern \"C\" "
		      "void f(int n) {}\n#endif");
	finds_nothing("kernels/a.c", "static void f(int n) {}\n"
		      "int g(struct s x) { return 0; }\n"
		      "float *h(int n) { return 0; }");
	finds_nothing("model_new.py", "extern \"C\" void f(int n) {}");
	finds_nothing("kernels/a.cpp", "extern \"C++\" void f(int n) {}");
	finds_nothing("kernels/a.cpp", "struct s { s(int a); };\n"
		      "s::s(int a) : b(a) { }");
}

static void conditions(void **state)
{
	(void)state;
	finds("kernels/a.c", "#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
	      "void f(int n) {}\n#ifdef __cplusplus\n}\n#endif",
	      "void f(i32)");
	finds("kernels/a.cpp", "#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
	      "void f(int n) {}\n#ifdef __cplusplus\n}\n#endif\n"
	      "void g(int n) {}", "void f(i32)");
	finds("kernels/a.cpp", "#ifdef NEVER\nextern \"C\" void f(long n) {\n"
	      "#else\nextern \"C\" void f(int n) {\n#endif\n}",
	      "void f(i32)");
	finds("kernels/a.cpp", "#define YES\n#if defined(YES)\nextern \"C\" "
	      "void f(long n) {\n#else\nextern \"C\" void f(int n) {\n#endif\n"
	      "}", "void f(i64)");
	finds("kernels/a.cpp", "#ifndef GUARD\n#define GUARD\nextern \"C\" "
	      "void f(int n) {}\n#endif", "void f(i32)");
	finds("kernels/a.cpp", "#if A > 2\nextern \"C\" void f(int n) {\n"
	      "#elif B\nextern \"C\" void f(long n) {\n#else\nextern \"C\" "
	      "void f(float n) {\n#endif\n}", "void f(i32)");
}

static void macros(void **state)
{
	(void)state;
	finds("kernels/a.cpp", "#define API extern \"C\" "
	      "__attribute__((visibility(\"default\")))\n#define T float\n"
	      "API void f(T *x) {}", "void f(ptr:float32)");
	finds("kernels/a.cpp", "#define A B\n#define B A\nextern \"C\" void "
	      "f(int A) {}", "void f(i32)");
	finds("kernels/a.cpp", "#define F(x) x\nextern \"C\" void f(int F) {}",
	      "void f(i32)");
	finds("kernels/a.cpp", "#define N 3\\\n4\nextern \"C\" void f(int x = "
	      "N) {}", "void f(i32)");
}

static void macros_with_parameters(void **state)
{
	(void)state;
	finds("kernels/a.cu", "#define LAUNCHER(T, name) \\\n extern \"C\" "
	      "void name##_launch(const T *x, T *y, int n, cudaStream_t s) \\"
	      "\n { kernel<T><<<1, n, 0, s>>>(x, y); }\nLAUNCHER(float, f)",
	      "void f_launch(ptr:float32!,ptr:float32,i32,stream)");
	assert_int_equal(decls.launches, 1);
	finds("kernels/a.cpp", "#define ARGS(T, ...) T *x, __VA_ARGS__\n"
	      "#define F(n, T) extern \"C\" void n(ARGS(T, long a, bool b))\n"
	      "F(f, double) { }", "void f(ptr:float64,i64,bool)");
	finds("kernels/a.cpp", "#define E(x) extern x\n#define S(x) #x\n"
	      "E(\"C\") void f(int n) { S(}); }", "void f(i32)");
	finds("kernels/a.cpp", "#define NAME(a, b) a ## _ ## b\n"
	      "extern \"C\" void NAME(f, (3)) (int n);\n"
	      "extern \"C\" void NAME(f, g)(int n) { }", "void f_g(i32)");
	finds("kernels/a.cpp", "#define NOTHING()\nNOTHING()\n#define F(x) "
	      "F(x)\nF(y)\nextern \"C\" void f(int F) { }", "void f(i32)");
	finds_nothing("kernels/a.cpp", "#define F(x) void x(\nF(never\n"
		      "extern \"C\" void f(int n) { }");
}

static void odd_types(void **state)
{
	(void)state;
	finds("kernels/a.cu", "extern \"C\" {\nstruct __align__(16) v { "
	      "float x[4]; };\nvoid f(int n) { }\n}", "void f(i32)");
	refuses("kernels/a.cpp", "extern \"C\" void f(unsigned __int128 x) "
		"{}", 1, "__int128");
}

static void several_files(void **state)
{
	(void)state;
	add("kernels/a.cu", "#include \"c.cuh\"\nextern \"C\" void f(T *x) {}");
	add("kernels/b.cu", "extern \"C\" void g(int n) {}\n"
	    "extern \"C\" void f(float *y) {}");
	add("kernels/c.cuh", "#define T float\n");
	find();
	assert_null(set.error);
	assert_int_equal(set.n, 2);
	assert_string_equal(show(0), "void f(ptr:float32)");
	assert_string_equal(show(1), "void g(i32)");
	teardown(NULL);
	add("kernels/a.cu", "extern \"C\" void f(int n) {}");
	add("kernels/b.cu", "\nextern \"C\" void f(float n) {}");
	find();
	assert_non_null(strstr(set.error, "defined twice"));
	assert_string_equal(set.error_file, "kernels/b.cu");
	assert_int_equal(set.error_line, 2);
}

static enum build_form form(int cuda)
{
	find();
	return form_detect(&tree, &decls, &set, cuda);
}

static void forms(void **state)
{
	(void)state;
	add("kernels/a.cu", "extern \"C\" __global__ void k(float *x) {}");
	assert_int_equal(form(1), FORM_KERNEL);
	assert_int_equal(form(0), FORM_LIGHT);
	teardown(NULL);
	add("kernels/a.cu", "extern \"C\" __global__ void k(float *x) {}\n"
	    "extern \"C\" void f(float *x) { k<<<1, 1>>>(x); }");
	assert_int_equal(form(1), FORM_LIGHT);
	teardown(NULL);
	add("kernels/a.cu", "__global__ void k(float *x) {}\n"
	    "extern \"C\" void f(float *x) { k<<<1, 1>>>(x); }");
	add("kernels/a_binding.cpp", "");
	assert_int_equal(form(1), FORM_PAPER);
	teardown(NULL);
	add("kernels/a.cu", "extern \"C\" void f(float *x) {}");
	add("model_new.py", "m = load_inline(name='x')");
	assert_int_equal(form(1), FORM_INLINE);
	teardown(NULL);
	add("binding.cpp", "");
	add("kernels/a.cu", "// k<<<1, 1>>>\nextern \"C\" void f(float *x) {}");
	assert_int_equal(form(1), FORM_LIGHT);
}

static void python_calls(void **state)
{
	static const char *const yes[] = {
		"load_inline(x)", "a = cpp.load_inline (x)",
		"s = '''load'''\nload_inline()", "f(\"\\\"\", load_inline(1))",
	};
	static const char *const no[] = {
		"", "# load_inline(x)", "'load_inline(x)'", "load_inline = 3",
		"\"\"\"\nload_inline(x)\n\"\"\"", "def load_inline(x): pass",
		"my_load_inline(x)", "load_inline2(x)", "'unclosed\nx",
		"\"\"\" unclosed load_inline(x)",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(yes) / sizeof(*yes); i++)
		assert_true(form_python_calls(yes[i], "load_inline"));
	for (i = 0; i < sizeof(no) / sizeof(*no); i++)
		assert_false(form_python_calls(no[i], "load_inline"));
}

static void json(void **state)
{
	struct str s = STR_INIT;
	struct jw w;

	(void)state;
	add("kernels/a.cpp", "extern \"C\" int f(const float *x, void *, "
	    "int n) { return 0; }");
	find();
	jw_init(&w, &s);
	launch_json(&set, &w);
	assert_string_equal(s.buf, "[{\"name\":\"f\",\"ret\":\"i32\",\"args\":["
		"{\"name\":\"x\",\"type\":\"ptr\",\"dtype\":\"float32\","
		"\"const\":true},{\"name\":\"arg1\",\"type\":\"ptr\","
		"\"dtype\":null,\"const\":false},{\"name\":\"n\",\"type\":"
		"\"i32\",\"dtype\":null,\"const\":false}]}]");
	str_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(tokens, teardown),
		cmocka_unit_test_teardown(broken_text_ends, teardown),
		cmocka_unit_test_teardown(launchers, teardown),
		cmocka_unit_test_teardown(more_types, teardown),
		cmocka_unit_test_teardown(types, teardown),
		cmocka_unit_test_teardown(what_cannot_be_passed, teardown),
		cmocka_unit_test_teardown(not_launchers, teardown),
		cmocka_unit_test_teardown(conditions, teardown),
		cmocka_unit_test_teardown(macros, teardown),
		cmocka_unit_test_teardown(macros_with_parameters, teardown),
		cmocka_unit_test_teardown(odd_types, teardown),
		cmocka_unit_test_teardown(several_files, teardown),
		cmocka_unit_test_teardown(forms, teardown),
		cmocka_unit_test_teardown(python_calls, teardown),
		cmocka_unit_test_teardown(json, teardown),
		cmocka_unit_test_teardown(called_by_name, teardown),
	};

	return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
