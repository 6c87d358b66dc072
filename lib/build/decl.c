/* SPDX-License-Identifier: Apache-2.0
 *
 * Function declarations of a candidate's sources.
 */
#include "build/decl.h"

#include <string.h>

#include "build/pp.h"

#define DECL_MAX 2048		/* tokens of one declaration that are kept */
#define DECLS_MAX 8192		/* more are not seen */
#define MAX_NEST 64

struct scan {
	struct arena *a;
	struct decls *d;
	struct pp *pp;
	const char *file;
	int is_c;
	char linkage[MAX_NEST];	/* one per open block: C linkage inside */
	int nblock;
	struct token tok[DECL_MAX];
	size_t ntok;
	int failed;
};

/* Grows an array in the arena; the old one stays there until the end. */
static void *grow(struct scan *s, void *v, size_t n, size_t *alloc,
		  size_t size)
{
	size_t want = *alloc ? *alloc * 2 : 32;
	void *w;

	if (n < *alloc)
		return v;
	w = arena_alloc(s->a, want, size);
	if (!w) {
		s->failed = 1;
		return NULL;
	}
	if (n)
		memcpy(w, v, n * size);
	*alloc = want;
	return w;
}

/* Past the partner of an opening brace that was just read. */
static void skip_braces(struct scan *s)
{
	struct token t;
	int depth = 1;

	while (depth > 0) {
		pp_next(s->pp, &t, 0);
		if (t.type == TOK_END)
			return;
		depth += tok_is(&t, "{");
		depth -= tok_is(&t, "}");
	}
}

static size_t closing(const struct token *v, size_t i, size_t n,
		      const char *open, const char *close)
{
	int depth = 0;

	for (; i < n; i++) {
		depth += tok_is(&v[i], open);
		if (tok_is(&v[i], close) && --depth == 0)
			return i;
	}
	return n;
}

static int among(const struct token *t, const char *const *v)
{
	for (; *v; v++)
		if (tok_is(t, *v))
			return 1;
	return 0;
}

/* Removes attributes and specifiers from tok[], noting those that matter. */
static void clean(struct scan *s, struct decl *d)
{
	static const char *const with_args[] = {
		"__attribute__", "__attribute", "__declspec", "alignas",
		"__align__",
		"_Alignas", "__launch_bounds__", "__cluster_dims__",
		"__maxnreg__", "__block_size__", "noexcept", "asm", "__asm__",
		"throw", NULL
	};
	static const char *const plain[] = {
		"inline", "__inline__", "__inline", "__forceinline__",
		"__noinline__", "__host__", "constexpr", "register", "extern",
		"__extension__", "__cdecl", "_Noreturn", "__grid_constant__",
		NULL
	};
	size_t i, k = 0;

	for (i = 0; i < s->ntok; i++) {
		const struct token *t = &s->tok[i];

		if (tok_is(t, "extern") && i + 1 < s->ntok &&
		    t[1].type == TOK_STRING) {
			d->c_linkage = tok_is(t + 1, "\"C\"");
			i++;
		} else if (among(t, with_args)) {
			if (i + 1 < s->ntok && tok_is(t + 1, "("))
				i = closing(s->tok, i + 1, s->ntok, "(", ")");
		} else if (tok_is(t, "[") && i + 1 < s->ntok &&
			   tok_is(t + 1, "[")) {
			i = closing(s->tok, i, s->ntok, "[", "]");
		} else if (tok_is(t, "static")) {
			/* not of a parameter x[static 4] */
			if (!k || !tok_is(&s->tok[k - 1], "["))
				d->is_static = 1;
		} else if (tok_is(t, "__global__")) {
			d->global = 1;
		} else if (tok_is(t, "__device__")) {
			d->device = 1;
		} else if (!among(t, plain)) {
			s->tok[k++] = *t;
		}
	}
	s->ntok = k;
}

/* A macro of a header that we do not see may stand before the declaration:
 * NAME(...) is no beginning of one. */
static void drop_call(struct scan *s)
{
	size_t end;

	if (s->ntok < 2 || s->tok[0].type != TOK_IDENT ||
	    !tok_is(&s->tok[1], "("))
		return;
	end = closing(s->tok, 1, s->ntok, "(", ")");
	if (end + 1 >= s->ntok)
		return;
	s->ntok -= end + 1;
	memmove(s->tok, s->tok + end + 1, s->ntok * sizeof(*s->tok));
}

static struct token *keep(struct scan *s, const struct token *v, size_t n)
{
	struct token *w = arena_alloc(s->a, n + 1, sizeof(*w));

	if (!w)
		s->failed = 1;
	else if (n)
		memcpy(w, v, n * sizeof(*w));
	return w;
}

static void add_decl(struct scan *s, struct decl *d)
{
	struct decl *v;

	if (s->d->nfn == DECLS_MAX)
		return;
	v = grow(s, s->d->fn, s->d->nfn, &s->d->fn_alloc, sizeof(*v));
	if (!v || !d->name || !d->ret || !d->param) {
		s->failed = 1;
		return;
	}
	s->d->fn = v;
	v[s->d->nfn++] = *d;
}

/* Index of the name before a parameter list, or ntok: not a function. */
static size_t find_name(const struct scan *s)
{
	const struct token *t = s->tok;
	size_t i;

	for (i = 1; i + 1 < s->ntok; i++) {
		if (tok_is(&t[i], "=") || tok_is(&t[i], "operator") ||
		    tok_is(&t[i], "("))
			break;
		if (t[i].type == TOK_IDENT && tok_is(&t[i + 1], "(") &&
		    !tok_is(&t[i - 1], "::"))
			return i;
	}
	return s->ntok;
}

static void function(struct scan *s, struct decl *d)
{
	const struct token *t = s->tok;
	size_t i, end;

	clean(s, d);
	drop_call(s);
	i = find_name(s);
	if (i == s->ntok)
		return;
	end = closing(t, i + 1, s->ntok, "(", ")");
	if (end == s->ntok)
		return;
	d->file = s->file;
	d->line = t[i].line;
	d->name = arena_strndup(s->a, t[i].p, t[i].len);
	d->param = keep(s, t + i + 2, end - i - 2);
	d->nparam = end - i - 2;
	d->ret = keep(s, t, i);
	d->nret = i;
	if (i == 1 && tok_is(t, "auto") && end + 2 < s->ntok &&
	    tok_is(&t[end + 1], "->")) {
		d->ret = keep(s, t + end + 2, s->ntok - end - 2);
		d->nret = s->ntok - end - 2;
	}
	add_decl(s, d);
}

static void add_alias(struct scan *s, const struct token *name,
		      const struct token *type, size_t n)
{
	struct alias *v;

	if (s->d->nalias == DECLS_MAX)
		return;
	v = grow(s, s->d->alias, s->d->nalias, &s->d->alias_alloc,
		 sizeof(*v));
	if (!v)
		return;
	s->d->alias = v;
	v += s->d->nalias;
	v->name = arena_strndup(s->a, name->p, name->len);
	v->type = keep(s, type, n);
	v->ntype = n;
	if (v->name && v->type)
		s->d->nalias++;
	else
		s->failed = 1;
}

/* `typedef TYPE NAME` or `using NAME = TYPE`, in tok[]. */
static void type_alias(struct scan *s)
{
	const struct token *t = s->tok;

	if (s->ntok >= 3 && tok_is(t, "typedef") &&
	    t[s->ntok - 1].type == TOK_IDENT)
		add_alias(s, &t[s->ntok - 1], t + 1, s->ntok - 2);
	else if (s->ntok >= 4 && tok_is(t, "using") && tok_is(&t[2], "="))
		add_alias(s, &t[1], t + 3, s->ntok - 3);
}

static int is_function(const struct scan *s)
{
	static const char *const types[] = { "struct", "class", "union",
					     "enum", NULL };
	size_t i;
	int parens = 0;

	for (i = 0; i < s->ntok; i++) {
		if (tok_is(&s->tok[i], "=") && !parens)
			return 0;
		if (tok_is(&s->tok[i], "("))
			parens = 1;
	}
	if (s->ntok && among(&s->tok[0], types) && !parens)
		return 0;
	return parens;
}

/* Reads one declaration that begins with *t, up to its ';' or body. */
static void declaration(struct scan *s, struct token *t, struct decl *d)
{
	int depth = 0;

	for (s->ntok = 0; t->type != TOK_END; pp_next(s->pp, t, 1)) {
		if (depth == 0 && tok_is(t, ";"))
			break;
		if (tok_is(t, "{")) {
			int fn = depth == 0 && is_function(s);

			skip_braces(s);
			if (!fn)
				continue;
			d->body = 1;
			break;
		}
		if (depth == 0 && tok_is(t, "}"))
			break;
		depth += tok_is(t, "(") || tok_is(t, "[");
		depth -= (tok_is(t, ")") || tok_is(t, "]")) && depth > 0;
		if (s->ntok < DECL_MAX)
			s->tok[s->ntok++] = *t;
	}
	if (tok_is(t, "}") && s->nblock > 0)
		s->nblock--;
	if (s->ntok == DECL_MAX)
		return;
	if (s->ntok && (tok_is(s->tok, "typedef") || tok_is(s->tok, "using")))
		type_alias(s);
	else
		function(s, d);
}

/* Past the <...> of `template`; *t is then what follows. */
static void template_head(struct scan *s, struct token *t)
{
	int depth = 0;

	pp_next(s->pp, t, 1);
	while (t->type != TOK_END) {
		depth += tok_is(t, "<") ? 1 : 0;
		depth -= tok_is(t, ">") ? 1 : tok_is(t, ">>>") ? 3 : 0;
		pp_next(s->pp, t, 1);
		if (depth <= 0)
			return;
	}
}

static void open_block(struct scan *s, int c_linkage)
{
	if (s->nblock < MAX_NEST)
		s->linkage[s->nblock++] = (char)c_linkage;
	else
		skip_braces(s);
}

/* `namespace NAME {`: entered; an alias is skipped. */
static void namespace_head(struct scan *s, struct token *t, int c_linkage)
{
	while (t->type != TOK_END && !tok_is(t, "{") && !tok_is(t, ";"))
		pp_next(s->pp, t, 1);
	if (tok_is(t, "{"))
		open_block(s, c_linkage);
}

static void item(struct scan *s, struct token *t)
{
	struct decl d = { 0 };
	int c = s->nblock ? s->linkage[s->nblock - 1] : s->is_c;

	if (tok_is(t, "}")) {
		s->nblock -= s->nblock > 0;
		return;
	}
	if (tok_is(t, ";"))
		return;
	if (tok_is(t, "namespace")) {
		namespace_head(s, t, c);
		return;
	}
	while (tok_is(t, "template")) {
		d.is_template = 1;
		template_head(s, t);
	}
	if (tok_is(t, "extern")) {
		pp_next(s->pp, t, 1);
		if (t->type == TOK_STRING) {
			c = tok_is(t, "\"C\"");
			pp_next(s->pp, t, 1);
			if (tok_is(t, "{")) {
				open_block(s, c);
				return;
			}
		}
	}
	d.c_linkage = c != 0;
	declaration(s, t, &d);
}

static void scan_file(struct scan *s, const struct source_file *f)
{
	struct token t;

	s->file = f->path;
	s->is_c = ends_with(f->path, ".c");
	s->nblock = 0;
	pp_enter(s->pp, f);
	for (pp_next(s->pp, &t, 1); t.type; pp_next(s->pp, &t, 1))
		item(s, &t);
}

int decl_scan(const struct source_tree *tree, struct arena *a,
	      struct decls *d, struct err *e)
{
	struct scan *s = arena_alloc(a, 1, sizeof(*s));
	size_t i;

	memset(d, 0, sizeof(*d));
	if (s)
		s->pp = pp_new(tree, a);
	if (!s || !s->pp)
		return err_set(e, CA_SOFTWARE, "out of memory");
	s->a = a;
	s->d = d;
	for (i = 0; i < tree->n && !s->failed; i++)
		if (pp_reads(&tree->file[i]))
			scan_file(s, &tree->file[i]);
	d->launches = pp_launches(s->pp);
	if (s->failed || pp_failed(s->pp))
		return err_set(e, CA_SOFTWARE, "out of memory reading sources");
	return 0;
}
