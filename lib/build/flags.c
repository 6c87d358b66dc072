/* SPDX-License-Identifier: Apache-2.0
 *
 * The compiler flags that a candidate may set.
 */
#include "build/flags.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum rule {
	KEEP,			/* exactly this flag */
	KEEP_TAIL,		/* what begins so, and has more */
	KEEP_NEXT,		/* with a name: -DX, -D X */
	KEEP_NUMBER,		/* -x=7, -x 7 */
	KEEP_SWITCH,		/* -x=true, -x false */
	DROP,
	DROP_TAIL,		/* what begins so */
	DROP_NEXT,		/* -x=word, -x word */
	PTXAS, HOST,		/* -x=flag,flag or -x flag,flag */
	STD
};

struct flag {
	const char *name;
	enum rule rule;
};

static const struct flag cxx[] = {
	{ "-O", KEEP }, { "-O0", KEEP }, { "-O1", KEEP }, { "-O2", KEEP },
	{ "-O3", KEEP }, { "-Os", KEEP }, { "-Og", KEEP }, { "-Ofast", KEEP },
	{ "-D", KEEP_NEXT }, { "-U", KEEP_NEXT }, { "-std=", STD },
	{ "-ffast-math", KEEP }, { "-fno-fast-math", KEEP },
	{ "-ffp-contract=", KEEP_TAIL }, { "-fno-math-errno", KEEP },
	{ "-fno-trapping-math", KEEP }, { "-ffinite-math-only", KEEP },
	{ "-fassociative-math", KEEP }, { "-freciprocal-math", KEEP },
	{ "-fno-signed-zeros", KEEP }, { "-funsafe-math-optimizations", KEEP },
	{ "-funroll-loops", KEEP }, { "-funroll-all-loops", KEEP },
	{ "-ftree-vectorize", KEEP }, { "-finline-functions", KEEP },
	{ "-fomit-frame-pointer", KEEP }, { "-fstrict-aliasing", KEEP },
	{ "-fno-strict-aliasing", KEEP }, { "-fopenmp", KEEP },
	{ "-fopenmp-simd", KEEP }, { "-fpermissive", KEEP },
	{ "-pthread", DROP }, { "-fPIC", DROP }, { "-fpic", DROP },
	{ "-pipe", DROP }, { "-m", DROP_TAIL }, { "-g", DROP },
	{ "-w", DROP }, { "-Wall", DROP }, { "-Wextra", DROP },
	{ "-Wno-", DROP_TAIL }, { NULL, DROP }
};

static const struct flag nvcc[] = {
	{ "-O0", KEEP }, { "-O1", KEEP }, { "-O2", KEEP }, { "-O3", KEEP },
	{ "-D", KEEP_NEXT }, { "-U", KEEP_NEXT }, { "-std=", STD },
	{ "-use_fast_math", KEEP }, { "-expt-relaxed-constexpr", KEEP },
	{ "-expt-extended-lambda", KEEP }, { "-extended-lambda", KEEP },
	{ "-extra-device-vectorization", KEEP }, { "-restrict", KEEP },
	{ "-maxrregcount", KEEP_NUMBER }, { "-ftz", KEEP_SWITCH },
	{ "-prec-div", KEEP_SWITCH }, { "-prec-sqrt", KEEP_SWITCH },
	{ "-fmad", KEEP_SWITCH }, { "-lineinfo", DROP },
	{ "-generate-line-info", DROP },
	{ "-gencode", DROP_NEXT }, { "-generate-code", DROP_NEXT },
	{ "-arch", DROP_NEXT }, { "-gpu-architecture", DROP_NEXT },
	{ "-code", DROP_NEXT }, { "-gpu-code", DROP_NEXT },
	{ "-t", DROP_NEXT }, { "-threads", DROP_NEXT },
	{ "-Xcudafe", DROP_NEXT }, { "-diag-suppress", DROP_NEXT },
	{ "-allow-unsupported-compiler", DROP }, { "-w", DROP },
	{ "-g", DROP }, { "-resource-usage", DROP },
	{ "-Xptxas", PTXAS }, { "-ptxas-options", PTXAS },
	{ "-Xcompiler", HOST }, { "-compiler-options", HOST },
	{ NULL, DROP }
};

static const struct flag ptxas[] = {
	{ "-O0", KEEP }, { "-O1", KEEP }, { "-O2", KEEP }, { "-O3", KEEP },
	{ "-v", DROP }, { "-verbose", DROP }, { "-warn-spills", DROP },
	{ "-warn-lmem-usage", DROP }, { "-dlcm=", KEEP_TAIL },
	{ "-dscm=", KEEP_TAIL },
	{ "-allow-expensive-optimizations=true", KEEP },
	{ NULL, DROP }
};

/* Toolkit libraries; those that are always there need no flag. */
static const struct flag libs[] = {
	{ "-lcublas", KEEP }, { "-lcublasLt", KEEP }, { "-lcudnn", KEEP },
	{ "-lcurand", KEEP }, { "-lcufft", KEEP }, { "-lcusparse", KEEP },
	{ "-lcusolver", KEEP }, { "-lcuda", KEEP }, { "-lopenblas", KEEP },
	{ "-lcudart", DROP }, { "-lc10", DROP }, { "-lc10_cuda", DROP },
	{ "-ltorch", DROP }, { "-ltorch_cpu", DROP }, { "-ltorch_cuda", DROP },
	{ "-ltorch_python", DROP }, { "-lm", DROP }, { "-ldl", DROP },
	{ "-lrt", DROP }, { "-lpthread", DROP }, { "-lgomp", DROP },
	{ "-fopenmp", DROP }, { "-pthread", DROP }, { "-L", DROP_TAIL },
	{ NULL, DROP }
};

struct taker {
	struct arena *a;
	struct flags *out;
	const char *bad;
	int no_memory;
};

static void keep(struct taker *t, const char *flag)
{
	if (!flag)
		t->no_memory = 1;
	else
		t->out->v[t->out->n++] = flag;
}

static int is_name(const char *s)
{
	return isalpha((unsigned char)*s) || *s == '_';
}

/* Whether it is more than text to the shell that nvcc's steps go through.
 * They have it in double quotes; to one within it nvcc adds a backslash, unless
 * there is one, even if that is itself behind another. */
static int is_shell(const char *s)
{
	return strpbrk(s, "$`\n\r") || strstr(s, "\\\\") ||
	       ends_with(s, "\\");
}

/* "c++17" or "gnu++17" */
static int take_std(struct taker *t, const char *value)
{
	const char *n = strstr(value, "++");
	int std = n && isdigit((unsigned char)n[2]) ? atoi(n + 2) : -1;

	if (std != 11 && std != 14 && std != 17 && std != 20 && std != 23)
		return 0;
	if (std > t->out->std)
		t->out->std = std;
	return 1;
}

static int take_one(struct taker *t, const struct flag *table,
		    const char *const *in, size_t left);

/* The flags of another tool, separated by commas, each with our prefix. */
static int take_list(struct taker *t, const struct flag *table,
		     const char *prefix, const char *list)
{
	struct flags all = *t->out, part = { NULL, 0, all.std };
	const char *word[FLAGS_MAX];
	size_t n = 0, i;
	int ok = 1;
	char *s = arena_strdup(t->a, list), *save = NULL;

	part.v = arena_alloc(t->a, 2 * FLAGS_MAX + 1, sizeof(*part.v));
	if (!s || !part.v) {
		t->no_memory = 1;
		return 1;
	}
	for (s = strtok_r(s, ",", &save); s && n < FLAGS_MAX;
	     s = strtok_r(NULL, ",", &save))
		word[n++] = s;
	*t->out = part;
	for (i = 0; ok && i < n; i++)
		ok = !s && take_one(t, table, word + i, 1) == 1;
	part = *t->out;
	*t->out = all;
	t->out->std = part.std;
	for (i = 0; i < part.n; i++) {
		keep(t, prefix);
		keep(t, part.v[i]);
	}
	return ok;
}

/* The value of a flag that stands behind '=' or in the next word. */
static const char *value_of(const char *tail, const char *const *in,
			    size_t left, int *used)
{
	*used = 1;
	if (*tail == '=')
		return tail + 1;
	if (left < 2)
		return NULL;
	*used = 2;
	return in[1];
}

static int apply(struct taker *t, const struct flag *f,
		 const char *const *in, size_t left, const char *tail)
{
	int used = 1;
	const char *value;

	switch (f->rule) {
	case KEEP: case KEEP_TAIL:
		keep(t, in[0]);
		return 1;
	case DROP: case DROP_TAIL:
		return 1;
	case STD:
		return take_std(t, tail);
	case KEEP_NEXT:
		value = *tail ? tail : value_of(tail, in, left, &used);
		if (!value || !is_name(value) || is_shell(value))
			return 0;
		keep(t, arena_printf(t->a, "%s%s", f->name, value));
		return used;
	default:
		break;
	}
	value = value_of(tail, in, left, &used);
	if (!value)
		return 0;
	if (f->rule == DROP_NEXT)
		return used;
	if (f->rule == PTXAS)
		return take_list(t, ptxas, "-Xptxas", value) ? used : 0;
	if (f->rule == HOST)
		return take_list(t, cxx, "-Xcompiler", value) ? used : 0;
	if (f->rule == KEEP_NUMBER ?
	    !*value || strspn(value, "0123456789") != strlen(value) :
	    strcmp(value, "true") && strcmp(value, "false"))
		return 0;
	keep(t, arena_printf(t->a, "%s=%s", f->name, value));
	return used;
}

/* Whether a flag matches a line; *tail is what follows its name. */
static int matches(const struct flag *f, const char *s, const char **tail)
{
	size_t n = strlen(f->name);

	if (strncmp(s, f->name, n))
		return 0;
	*tail = s + n;
	switch (f->rule) {
	case KEEP: case DROP:
		return !**tail;
	case KEEP_TAIL: case STD:
		return **tail && !strpbrk(*tail, "/,@") &&
		       !is_shell(*tail);
	case DROP_TAIL: case KEEP_NEXT:
		return 1;
	default:
		return !**tail || **tail == '=';
	}
}

/* How many words were taken; 0: refused. */
static int take_one(struct taker *t, const struct flag *table,
		    const char *const *in, size_t left)
{
	const char *s = in[0], *tail;
	size_t i;

	/* nvcc and ptxas know each name with one dash and with two. */
	if (table != cxx && table != libs && starts_with(s, "--"))
		s++;
	for (i = 0; table[i].name; i++) {
		const char *word[2] = { s, left > 1 ? in[1] : NULL };

		if (matches(&table[i], s, &tail))
			return apply(t, &table[i], word, left, tail);
	}
	return 0;
}

int flags_take(enum flag_tool tool, const char *const *in, size_t n,
	       struct arena *a, struct flags *out, const char **bad)
{
	static const struct flag *const table[] = { cxx, nvcc, libs };
	struct taker t = { a, out, NULL, 0 };
	size_t i;
	int used;

	memset(out, 0, sizeof(*out));
	/* A list of k flags has a prefix for each. */
	out->v = arena_alloc(a, n * 2 * FLAGS_MAX + 1, sizeof(*out->v));
	if (!out->v)
		return -1;
	for (i = 0; i < n; i += (size_t)used) {
		used = strlen(in[i]) < FLAG_LEN ?
		       take_one(&t, table[tool], in + i, n - i) : 0;
		if (t.no_memory)
			return -1;
		if (!used) {
			*bad = in[i];
			return 1;
		}
	}
	out->v[out->n] = NULL;
	for (i = 0; tool == FLAG_LINK && i < out->n; i++)
		out->v[i] += 2;
	return 0;
}
