/* SPDX-License-Identifier: Apache-2.0
 *
 * Function declarations of a candidate's sources.
 */
#include "build/decl.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#define DECL_MAX 2048		/* tokens of one declaration that are kept */
#define MAX_NEST 64
#define MAX_EXPAND 8
#define BUCKETS 1024
/* A source may try to make us work without end: these are far beyond honest
 * ones, and what comes after them is not seen. */
#define MACROS_MAX 16384
#define EXPANSIONS_MAX 20000
#define DECLS_MAX 8192

struct macro {
	const char *file, *name, *body;
	size_t name_len, body_len;
	int function;
	size_t next;			/* in its bucket, plus one */
};

struct frame {			/* text being expanded */
	struct lexer x;
	const struct macro *macro;
	unsigned line;
};

struct scan {
	struct arena *a;
	struct decls *d;
	struct macro *macro;
	size_t nmacro, macro_alloc;
	size_t bucket[BUCKETS];		/* newest macro, plus one */
	unsigned expansions;
	/* the file in hand */
	const char *file;
	int is_c, is_cuda;
	struct frame frame[MAX_EXPAND];
	int depth;
	enum { COND_TAKE, COND_SKIP, COND_DONE } cond[MAX_NEST];
	int ncond;
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

static int word_is(const char *w, size_t n, const char *text)
{
	return strlen(text) == n && memcmp(w, text, n) == 0;
}

static size_t word_len(const char *s, const char *end)
{
	const char *w = s;

	while (s < end && (isalnum((unsigned char)*s) || *s == '_'))
		s++;
	return (size_t)(s - w);
}

static size_t bucket_of(const char *s, size_t n)
{
	uint32_t h = 2166136261u;
	size_t i;

	for (i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 16777619u;
	return h % BUCKETS;
}

static void add_macro(struct scan *s, const struct token *t)
{
	const char *end = t->p + t->len, *word, *rest;
	size_t n = lex_directive(t, &word, &rest);
	struct macro *m;

	if (!word_is(word, n, "define") || s->nmacro == MACROS_MAX)
		return;
	n = word_len(rest, end);
	m = grow(s, s->macro, s->nmacro, &s->macro_alloc, sizeof(*m));
	if (!m || !n)
		return;
	s->macro = m;
	m += s->nmacro++;
	m->file = s->file;
	m->name = rest;
	m->name_len = n;
	m->function = rest + n < end && rest[n] == '(';
	m->body = rest + n;
	m->body_len = (size_t)(end - m->body);
	n = bucket_of(m->name, n);
	m->next = s->bucket[n];
	s->bucket[n] = s->nmacro;
}

/* The macro of this name, the file's own before another's. */
static const struct macro *find_macro(const struct scan *s, const char *name,
				      size_t len)
{
	const struct macro *other = NULL, *m;
	size_t i;

	for (i = s->bucket[bucket_of(name, len)]; i > 0; i = m->next) {
		m = &s->macro[i - 1];
		if (m->name_len != len || memcmp(m->name, name, len) != 0)
			continue;
		if (strcmp(m->file, s->file) == 0)
			return m;
		other = m;
	}
	return other;
}

/* 1 or 0 for names that the compiler defines or surely does not; else -1. */
static int predefined(const struct scan *s, const char *name, size_t n)
{
	if (word_is(name, n, "__cplusplus"))
		return !s->is_c;
	if (word_is(name, n, "__CUDACC__") || word_is(name, n, "__NVCC__"))
		return s->is_cuda;
	if (word_is(name, n, "__CUDA_ARCH__"))
		return 0;
	if (word_is(name, n, "_OPENMP") || word_is(name, n, "__GNUC__") ||
	    word_is(name, n, "__x86_64__") || word_is(name, n, "__linux__"))
		return 1;
	return -1;
}

static int is_defined(const struct scan *s, const char *name, size_t n)
{
	int known = predefined(s, name, n);

	return known >= 0 ? known : find_macro(s, name, n) != NULL;
}

/* Whether the section after #if is taken.  Expressions that cannot be told
 * are: a compiler sees one branch, and the first is as good as another. */
static int eval_if(const struct scan *s, const char *p, const char *end)
{
	size_t n;
	int neg = 0;

	for (; p < end && (*p == '!' || *p == ' ' || *p == '('); p++)
		neg ^= *p == '!';
	n = word_len(p, end);
	if (word_is(p, n, "0") || word_is(p, n, "1"))
		return memchr(p, '|', (size_t)(end - p)) ||
		       (*p == '1') != neg;
	if (!word_is(p, n, "defined"))
		return 1;
	for (p += n; p < end && (*p == ' ' || *p == '(');)
		p++;
	n = word_len(p, end);
	if (memchr(p, '&', (size_t)(end - p)) ||
	    memchr(p, '|', (size_t)(end - p)))
		return 1;
	return is_defined(s, p, n) != neg;
}

static void open_cond(struct scan *s, int take)
{
	if (s->ncond < MAX_NEST)
		s->cond[s->ncond] = take ? COND_TAKE : COND_SKIP;
	s->ncond++;
}

static void else_cond(struct scan *s, int take)
{
	int i = s->ncond - 1;

	if (i < 0 || i >= MAX_NEST)
		return;
	if (s->cond[i] == COND_TAKE)
		s->cond[i] = COND_DONE;
	else if (s->cond[i] == COND_SKIP && take)
		s->cond[i] = COND_TAKE;
}

static void conditional(struct scan *s, const struct token *t)
{
	const char *end = t->p + t->len, *w, *rest;
	size_t n = lex_directive(t, &w, &rest), m = word_len(rest, end);

	if (word_is(w, n, "if"))
		open_cond(s, eval_if(s, rest, end));
	else if (word_is(w, n, "ifdef"))
		open_cond(s, is_defined(s, rest, m));
	else if (word_is(w, n, "ifndef"))	/* most are include guards */
		open_cond(s, predefined(s, rest, m) != 1);
	else if (word_is(w, n, "elif"))
		else_cond(s, eval_if(s, rest, end));
	else if (word_is(w, n, "else"))
		else_cond(s, 1);
	else if (word_is(w, n, "endif") && s->ncond > 0)
		s->ncond--;
}

static int skipping(const struct scan *s)
{
	int i;

	for (i = 0; i < s->ncond && i < MAX_NEST; i++)
		if (s->cond[i] != COND_TAKE)
			return 1;
	return 0;
}

static int expanding(const struct scan *s, const struct macro *m)
{
	int i;

	for (i = 1; i <= s->depth; i++)
		if (s->frame[i].macro == m)
			return 1;
	return 0;
}

/* Starts the expansion of an object-like macro; 1 if there was one. */
static int expand(struct scan *s, const struct token *t)
{
	const struct macro *m;
	struct frame *f;

	if (t->type != TOK_IDENT || s->depth + 1 >= MAX_EXPAND ||
	    s->expansions >= EXPANSIONS_MAX)
		return 0;
	m = find_macro(s, t->p, t->len);
	if (!m || m->function || expanding(s, m))
		return 0;
	f = &s->frame[s->depth + 1];
	if (lex_init(&f->x, s->a, m->body, m->body_len) < 0) {
		s->failed = 1;
		return 0;
	}
	f->x.bol = 0;
	f->macro = m;
	f->line = t->line;
	s->depth++;
	s->expansions++;
	return 1;
}

/* The next token that a compiler would see; macros expanded if asked. */
static void next(struct scan *s, struct token *t, int macros)
{
	struct frame *f;

	for (;;) {
		f = &s->frame[s->depth];
		lex_next(&f->x, t);
		if (s->depth > 0 && t->type == TOK_END) {
			s->depth--;
			continue;
		}
		if (s->depth > 0)
			t->line = f->line;
		if (t->type == TOK_DIRECTIVE) {
			conditional(s, t);
			continue;
		}
		if (t->type != TOK_END && skipping(s))
			continue;
		if (tok_is(t, "<<<"))
			s->d->launches = 1;
		if (!macros || !expand(s, t))
			return;
	}
}

/* Past the partner of an opening brace that was just read. */
static void skip_braces(struct scan *s)
{
	struct token t;
	int depth = 1;

	while (depth > 0) {
		next(s, &t, 0);
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

	for (s->ntok = 0; t->type != TOK_END; next(s, t, 1)) {
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

	next(s, t, 1);
	while (t->type != TOK_END) {
		depth += tok_is(t, "<") ? 1 : 0;
		depth -= tok_is(t, ">") ? 1 : tok_is(t, ">>>") ? 3 : 0;
		next(s, t, 1);
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
		next(s, t, 1);
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
		next(s, t, 1);
		if (t->type == TOK_STRING) {
			c = tok_is(t, "\"C\"");
			next(s, t, 1);
			if (tok_is(t, "{")) {
				open_block(s, c);
				return;
			}
		}
	}
	d.c_linkage = c != 0;
	declaration(s, t, &d);
}

static int c_family(const char *path)
{
	return starts_with(path, "kernels/");
}

static void enter(struct scan *s, const struct source_file *f)
{
	s->file = f->path;
	s->is_c = ends_with(f->path, ".c");
	s->is_cuda = ends_with(f->path, ".cu") || ends_with(f->path, ".cuh");
	s->depth = s->ncond = s->nblock = 0;
	if (lex_init(&s->frame[0].x, s->a, f->text, f->len) < 0)
		s->failed = 1;
}

static void collect_macros(struct scan *s)
{
	struct token t;

	for (;;) {
		lex_next(&s->frame[0].x, &t);
		if (t.type == TOK_END)
			return;
		if (t.type == TOK_DIRECTIVE)
			add_macro(s, &t);
	}
}

int decl_scan(const struct source_tree *tree, struct arena *a,
	      struct decls *d, struct err *e)
{
	struct scan *s = arena_alloc(a, 1, sizeof(*s));
	struct token t;
	size_t i;

	memset(d, 0, sizeof(*d));
	if (!s)
		return err_set(e, CA_SOFTWARE, "out of memory");
	s->a = a;
	s->d = d;
	for (i = 0; i < tree->n && !s->failed; i++) {
		if (!c_family(tree->file[i].path))
			continue;
		enter(s, &tree->file[i]);
		collect_macros(s);
	}
	for (i = 0; i < tree->n && !s->failed; i++) {
		if (!c_family(tree->file[i].path))
			continue;
		enter(s, &tree->file[i]);
		for (next(s, &t, 1); t.type; next(s, &t, 1))
			item(s, &t);
	}
	if (s->failed)
		return err_set(e, CA_SOFTWARE, "out of memory reading sources");
	return 0;
}
