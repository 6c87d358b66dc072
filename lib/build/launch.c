/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers and the types of their parameters.
 */
#include "build/launch.h"

#include <stdlib.h>
#include <string.h>

#include "build/form.h"

#define ALIAS_DEPTH 8

struct ctype {
	const char *type;	/* by value; NULL: only behind a pointer */
	const char *dtype;	/* behind a pointer; NULL: not even there */
	int pointers;
	int is_const;		/* before the first '*' */
	int is_void;
};

struct named {
	const char *name, *type, *dtype;
};

static const struct named builtin[] = {
	{ "bool", "bool", "bool" }, { "_Bool", "bool", "bool" },
	{ "float", "f32", "float32" }, { "double", "f64", "float64" },
	{ "int8_t", "i8", "int8" }, { "uint8_t", "u8", "uint8" },
	{ "int16_t", "i16", "int16" }, { "uint16_t", "u16", "uint16" },
	{ "int32_t", "i32", "int32" }, { "uint32_t", "u32", "uint32" },
	{ "int64_t", "i64", "int64" }, { "uint64_t", "u64", "uint64" },
	{ "size_t", "u64", "uint64" }, { "ssize_t", "i64", "int64" },
	{ "ptrdiff_t", "i64", "int64" }, { "intptr_t", "i64", "int64" },
	{ "uintptr_t", "u64", "uint64" }, { "uint", "u32", "uint32" },
	{ "uchar", "u8", "uint8" }, { "ushort", "u16", "uint16" },
	{ "cudaError_t", "i32", NULL }, { "cublasStatus_t", "i32", NULL },
	{ "cudnnStatus_t", "i32", NULL },
	{ "half", NULL, "float16" }, { "__half", NULL, "float16" },
	{ "_Float16", NULL, "float16" }, { "Half", NULL, "float16" },
	{ "half2", NULL, "float16" }, { "__half2", NULL, "float16" },
	{ "__nv_bfloat16", NULL, "bfloat16" },
	{ "nv_bfloat16", NULL, "bfloat16" },
	{ "__nv_bfloat162", NULL, "bfloat16" },
	{ "nv_bfloat162", NULL, "bfloat16" },
	{ "__bf16", NULL, "bfloat16" }, { "BFloat16", NULL, "bfloat16" },
	{ "__nv_fp8_e4m3", NULL, "float8_e4m3fn" },
	{ "__nv_fp8_e5m2", NULL, "float8_e5m2" },
	{ "float2", NULL, "float32" }, { "float3", NULL, "float32" },
	{ "float4", NULL, "float32" }, { "double2", NULL, "float64" },
	{ "int2", NULL, "int32" }, { "int4", NULL, "int32" },
	{ "cuComplex", NULL, "complex64" },
	{ "cuFloatComplex", NULL, "complex64" },
	{ "cuDoubleComplex", NULL, "complex128" },
};

static const struct named *find_builtin(const char *s, size_t n)
{
	size_t i;

	for (i = 0; i < sizeof(builtin) / sizeof(*builtin); i++)
		if (strlen(builtin[i].name) == n &&
		    memcmp(builtin[i].name, s, n) == 0)
			return &builtin[i];
	return NULL;
}

static const struct alias *find_alias(const struct decls *d,
				      const struct token *t)
{
	size_t i;

	for (i = d->nalias; i-- > 0;)
		if (tok_is(t, d->alias[i].name))
			return &d->alias[i];
	return NULL;
}

/* Words of a fundamental type, in any order. */
struct words {
	int n, is_unsigned, is_signed, longs, shorts, chars, ints, voids,
	    floats, doubles, complexes, wide;
};

static int add_word(struct words *w, const struct token *t)
{
	int *const count[] = { &w->is_unsigned, &w->is_signed, &w->longs,
			       &w->shorts, &w->chars, &w->ints, &w->voids,
			       &w->floats, &w->doubles, &w->complexes,
			       &w->wide };
	static const char *const word[] = { "unsigned", "signed", "long",
					    "short", "char", "int", "void",
					    "float", "double", "_Complex",
					    "__int128" };
	size_t i;

	for (i = 0; i < sizeof(word) / sizeof(*word); i++) {
		if (tok_is(t, word[i])) {
			++*count[i];
			w->n++;
			return 1;
		}
	}
	return 0;
}

static const char *word_type(const struct words *w)
{
	if (w->complexes || w->wide)
		return "";
	if (w->doubles)
		return w->longs ? "long double" : "double";
	if (w->floats)
		return "float";
	if (w->chars)
		return w->is_unsigned ? "uint8_t" : "int8_t";
	if (w->shorts)
		return w->is_unsigned ? "uint16_t" : "int16_t";
	if (w->longs)
		return w->is_unsigned ? "uint64_t" : "int64_t";
	return w->is_unsigned ? "uint32_t" : "int32_t";
}

static void set_words(struct ctype *c, const struct words *w)
{
	const char *name = word_type(w);
	const struct named *b = find_builtin(name, strlen(name));

	if (w->voids) {
		c->is_void = 1;
	} else if (w->complexes) {
		c->dtype = w->floats ? "complex64" : "complex128";
	} else if (b) {
		c->type = b->type;
		c->dtype = b->dtype;
	}
}

static int is_qualifier(const struct token *t)
{
	return tok_is(t, "volatile") || tok_is(t, "__restrict__") ||
	       tok_is(t, "__restrict") || tok_is(t, "restrict");
}

static size_t parse_type(const struct decls *d, const struct token *t,
			 size_t n, int depth, struct ctype *c);

/* std::complex<float>, from the '<'; past the '>'. */
static size_t complex_args(const struct token *t, size_t i, size_t n,
			   struct ctype *c)
{
	if (i + 2 < n && tok_is(&t[i], "<") && tok_is(&t[i + 2], ">")) {
		c->dtype = tok_is(&t[i + 1], "float") ? "complex64" :
			   tok_is(&t[i + 1], "double") ? "complex128" : NULL;
		return i + 3;
	}
	return i;
}

/* A type's name with its namespaces; index past it. */
static size_t named_type(const struct decls *d, const struct token *t,
			 size_t i, size_t n, int depth, struct ctype *c)
{
	const struct named *b;
	const struct alias *al;

	if (tok_is(&t[i], "::"))
		i++;
	while (i + 2 < n && t[i].type == TOK_IDENT && tok_is(&t[i + 1], "::"))
		i += 2;
	if (i >= n || t[i].type != TOK_IDENT)
		return i;
	al = depth < ALIAS_DEPTH ? find_alias(d, &t[i]) : NULL;
	b = find_builtin(t[i].p, t[i].len);
	if (tok_is(&t[i], "cudaStream_t") || tok_is(&t[i], "CUstream")) {
		c->type = "stream";
	} else if (tok_is(&t[i], "CUstream_st") && i + 1 < n &&
		   tok_is(&t[i + 1], "*")) {
		c->type = "stream";
		i++;
	} else if (tok_is(&t[i], "complex")) {
		return complex_args(t, i + 1, n, c);
	} else if (al) {
		parse_type(d, al->type, al->ntype, depth + 1, c);
	} else if (b) {
		c->type = b->type;
		c->dtype = b->dtype;
	}
	return i + 1;
}

/* Reads a type from the left; index of what follows it. */
static size_t parse_type(const struct decls *d, const struct token *t,
			 size_t n, int depth, struct ctype *c)
{
	struct words w = { 0 };
	size_t i;
	int named = 0;

	for (i = 0; i < n; i++) {
		if (tok_is(&t[i], "const")) {
			c->is_const |= c->pointers == 0;
		} else if (tok_is(&t[i], "*")) {
			c->pointers++;
		} else if (is_qualifier(&t[i]) || tok_is(&t[i], "struct") ||
			   tok_is(&t[i], "enum")) {
			continue;
		} else if (c->pointers || named) {
			break;
		} else if (add_word(&w, &t[i])) {
			continue;
		} else if (w.n) {
			break;
		} else if (t[i].type == TOK_IDENT || tok_is(&t[i], "::")) {
			named = 1;
			i = named_type(d, t, i, n, depth, c) - 1;
		} else {
			break;
		}
	}
	if (w.n)
		set_words(c, &w);
	return i;
}

static const char *join(struct arena *a, const struct token *t, size_t n)
{
	struct str s = STR_INIT;
	const char *text;
	size_t i;

	for (i = 0; i < n; i++) {
		int glue = i == 0 || tok_is(&t[i], "::") ||
			   tok_is(&t[i - 1], "::") || tok_is(&t[i], "<") ||
			   tok_is(&t[i - 1], "<") || tok_is(&t[i], ">") ||
			   tok_is(&t[i], "[") || tok_is(&t[i], "]") ||
			   tok_is(&t[i], ",");

		if (!glue)
			str_addc(&s, ' ');
		str_add(&s, t[i].p, t[i].len);
	}
	text = arena_strndup(a, s.buf ? s.buf : "", s.len < 200 ? s.len : 200);
	str_release(&s);
	return text ? text : "";
}

struct finder {
	const struct decls *d;
	const char *caller;
	struct arena *a;
	struct launch_set *out;
	const char *why;	/* the type that cannot be passed */
	int failed;
};

/* One parameter; 0, or -1 with f->why. */
static int parse_arg(struct finder *f, const struct token *t, size_t n,
		     size_t index, struct launch_arg *arg)
{
	struct ctype c = { 0 };
	const char *name = NULL;
	size_t i = parse_type(f->d, t, n, 0, &c);

	if (i < n && t[i].type == TOK_IDENT) {
		name = arena_strndup(f->a, t[i].p, t[i].len);
		i++;
	}
	for (; i < n && tok_is(&t[i], "["); i++) {
		c.pointers++;
		while (i < n && !tok_is(&t[i], "]"))
			i++;
	}
	arg->name = name ? name : arena_printf(f->a, "arg%zu", index);
	f->why = join(f->a, t, n);
	if (!arg->name || i < n || c.pointers > 1)
		return -1;
	if (c.pointers == 1) {
		arg->type = "ptr";
		arg->dtype = c.dtype;
		arg->is_const = c.is_const;
		return c.dtype || c.is_void ? 0 : -1;
	}
	arg->type = c.type;
	return c.type ? 0 : -1;
}

/* End of the parameter that begins at i; *def its default's '=' or the end
 * (behind that '<' compares or shifts). */
static size_t split(const struct token *t, size_t i, size_t n, size_t *def)
{
	int depth = 0, angles;

	*def = n;
	for (; i < n; i++) {
		angles = *def == n;
		if (tok_is(&t[i], "(") || tok_is(&t[i], "[") ||
		    (angles && tok_is(&t[i], "<")))
			depth++;
		else if (tok_is(&t[i], ")") || tok_is(&t[i], "]") ||
			 (angles && tok_is(&t[i], ">")))
			depth--;
		else if (depth == 0 && tok_is(&t[i], ","))
			break;
		else if (depth == 0 && tok_is(&t[i], "=") && *def == n)
			*def = i;
	}
	if (*def > i)
		*def = i;
	return i;
}

static int parse_args(struct finder *f, const struct decl *d,
		      struct launcher *l)
{
	size_t i, end, def;

	if (d->nparam == 0 || (d->nparam == 1 && tok_is(d->param, "void")))
		return 0;
	l->arg = arena_alloc(f->a, LAUNCH_ARGS, sizeof(*l->arg));
	if (!l->arg) {
		f->failed = 1;
		return -1;
	}
	for (i = 0; i < d->nparam; i = end + 1) {
		end = split(d->param, i, d->nparam, &def);
		if (l->narg == LAUNCH_ARGS) {
			f->why = "more parameters than 64";
			return -1;
		}
		if (l->narg && strcmp(l->arg[l->narg - 1].type,
				      "stream") == 0) {
			f->why = "cudaStream_t before the last parameter";
			return -1;
		}
		if (parse_arg(f, d->param + i, def - i, l->narg,
			      &l->arg[l->narg]) < 0)
			return -1;
		l->narg++;
	}
	return 0;
}

static int parse_ret(struct finder *f, const struct decl *d,
		     struct launcher *l)
{
	struct ctype c = { 0 };
	size_t i = parse_type(f->d, d->ret, d->nret, 0, &c);

	f->why = join(f->a, d->ret, d->nret);
	l->ret = c.is_void ? "void" : c.type;
	return i == d->nret && c.pointers == 0 && l->ret &&
	       strcmp(l->ret, "stream") != 0 ? 0 : -1;
}

static int has_c_linkage(const struct decls *d, const struct decl *fn)
{
	size_t i;

	if (fn->c_linkage)
		return 1;
	for (i = 0; i < d->nfn; i++)
		if (d->fn[i].c_linkage && !d->fn[i].body &&
		    strcmp(d->fn[i].name, fn->name) == 0)
			return 1;
	return 0;
}

static int same(const struct launcher *a, const struct launcher *b)
{
	size_t i;

	if (strcmp(a->ret, b->ret) != 0 || a->narg != b->narg)
		return 0;
	for (i = 0; i < a->narg; i++)
		if (strcmp(a->arg[i].type, b->arg[i].type) != 0)
			return 0;
	return 1;
}

static void report(struct finder *f, const struct decl *d, const char *msg)
{
	if (f->out->error)
		return;
	f->out->error = msg ? msg : "out of memory";
	f->out->error_file = d->file;
	f->out->error_line = d->line;
}

static void add_launcher(struct finder *f, const struct decl *d,
			 const struct launcher *l)
{
	size_t i;

	for (i = 0; i < f->out->n; i++) {
		if (strcmp(f->out->v[i].name, l->name) != 0)
			continue;
		if (!same(&f->out->v[i], l))
			report(f, d, arena_printf(f->a, "launcher '%s' is "
				"defined twice with different parameters",
				l->name));
		return;
	}
	if (f->out->n == LAUNCH_MAX) {
		report(f, d, "more than 256 launchers");
		return;
	}
	f->out->kernels += l->global;
	f->out->v[f->out->n++] = *l;
}

static void consider(struct finder *f, const struct decl *d)
{
	struct launcher l = { 0 };
	const char *why;
	int in_args;

	if (!d->body || d->is_static || d->is_template || d->device ||
	    !has_c_linkage(f->d, d))
		return;
	l.name = d->name;
	l.file = d->file;
	l.line = d->line;
	l.global = d->global;
	in_args = parse_args(f, d, &l);
	if (in_args == 0 && parse_ret(f, d, &l) == 0) {
		add_launcher(f, d, &l);
		return;
	}
	why = in_args < 0 ?
	      arena_printf(f->a, "launcher '%s': parameter %zu has type '%s', "
			   "which cannot be passed; use pointers to elements, "
			   "integers, float, double, bool and a trailing "
			   "cudaStream_t, or make it static if it is no "
			   "launcher", d->name, l.narg + 1, f->why) :
	      arena_printf(f->a, "launcher '%s': result has type '%s'; use "
			   "void or a number", d->name, f->why);
	/* In C all functions that are not static look like launchers. */
	if (!ends_with(d->file, ".c") || d->global ||
	    (f->caller && form_python_calls(f->caller, d->name)))
		report(f, d, why);
	else if (!f->out->passed) {
		f->out->passed = arena_printf(f->a, "no launcher: %s",
					      why ? why : "out of memory");
		f->out->passed_file = d->file;
		f->out->passed_line = d->line;
	}
}

int launch_find(const struct decls *d, const char *caller, struct arena *a,
		struct launch_set *out, struct err *e)
{
	struct finder f = { d, caller, a, out, "", 0 };
	size_t i;

	memset(out, 0, sizeof(*out));
	out->v = arena_alloc(a, LAUNCH_MAX, sizeof(*out->v));
	if (!out->v)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (i = 0; i < d->nfn && !f.failed; i++)
		consider(&f, &d->fn[i]);
	if (f.failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void launch_keep(struct launch_set *s, const char *const *names, size_t n)
{
	size_t i, k = 0;

	s->kernels = 0;
	for (i = 0; i < s->n; i++) {
		if (!bsearch(&s->v[i].name, names, n, sizeof(*names), by_name))
			continue;
		s->kernels += s->v[i].global;
		s->v[k++] = s->v[i];
	}
	s->n = k;
}

void launch_json(const struct launch_set *s, struct jw *w)
{
	size_t i, k;

	jw_arr(w);
	for (i = 0; i < s->n; i++) {
		const struct launcher *l = &s->v[i];

		jw_obj(w);
		jw_kstr(w, "name", l->name);
		jw_kstr(w, "ret", l->ret);
		jw_key(w, "args");
		jw_arr(w);
		for (k = 0; k < l->narg; k++) {
			jw_obj(w);
			jw_kstr(w, "name", l->arg[k].name);
			jw_kstr(w, "type", l->arg[k].type);
			jw_kstr(w, "dtype", l->arg[k].dtype);
			jw_kbool(w, "const", l->arg[k].is_const);
			jw_end_obj(w);
		}
		jw_end_arr(w);
		jw_end_obj(w);
	}
	jw_end_arr(w);
}

