/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens that a compiler would see.
 */
#include "build/pp.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#define MAX_NEST 64
#define MAX_EXPAND 8
#define MACRO_ARGS 32
#define BUCKETS 1024
/* A source may try to make us work without end: these are far beyond honest
 * ones, and what comes after them is not seen. */
#define MACROS_MAX 16384
#define EXPANSIONS_MAX 20000
#define EXPANDED_MAX ((size_t)16 << 20)

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

struct pp {
	struct arena *a;
	struct macro *macro;
	size_t nmacro, macro_alloc;
	size_t bucket[BUCKETS];		/* newest macro, plus one */
	unsigned expansions;
	size_t expanded;		/* bytes read and made by calls */
	/* the file in hand */
	const char *file;
	int is_c, is_cuda;
	struct frame frame[MAX_EXPAND];
	int depth;
	enum { COND_TAKE, COND_SKIP, COND_DONE } cond[MAX_NEST];
	int ncond;
	int launches, failed;
};

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

/* Room for one more; the old array stays in the arena until the end. */
static int grow_macros(struct pp *s)
{
	size_t want = s->macro_alloc ? 2 * s->macro_alloc : 32;
	struct macro *m;

	if (s->nmacro < s->macro_alloc)
		return 0;
	m = arena_alloc(s->a, want, sizeof(*m));
	if (!m) {
		s->failed = 1;
		return -1;
	}
	if (s->nmacro)
		memcpy(m, s->macro, s->nmacro * sizeof(*m));
	s->macro = m;
	s->macro_alloc = want;
	return 0;
}

static void add_macro(struct pp *s, const struct token *t)
{
	const char *end = t->p + t->len, *word, *rest;
	size_t n = lex_directive(t, &word, &rest);
	struct macro *m;

	if (!word_is(word, n, "define") || s->nmacro == MACROS_MAX)
		return;
	n = word_len(rest, end);
	if (!n || grow_macros(s) < 0)
		return;
	m = &s->macro[s->nmacro++];
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
static const struct macro *find_macro(const struct pp *s, const char *name,
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
static int predefined(const struct pp *s, const char *name, size_t n)
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

static int is_defined(const struct pp *s, const char *name, size_t n)
{
	int known = predefined(s, name, n);

	return known >= 0 ? known : find_macro(s, name, n) != NULL;
}

/* Whether the section after #if is taken.  Expressions that cannot be told
 * are: a compiler sees one branch, and the first is as good as another. */
static int eval_if(const struct pp *s, const char *p, const char *end)
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

static void open_cond(struct pp *s, int take)
{
	if (s->ncond < MAX_NEST)
		s->cond[s->ncond] = take ? COND_TAKE : COND_SKIP;
	s->ncond++;
}

static void else_cond(struct pp *s, int take)
{
	int i = s->ncond - 1;

	if (i < 0 || i >= MAX_NEST)
		return;
	if (s->cond[i] == COND_TAKE)
		s->cond[i] = COND_DONE;
	else if (s->cond[i] == COND_SKIP && take)
		s->cond[i] = COND_TAKE;
}

static void conditional(struct pp *s, const struct token *t)
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

static int skipping(const struct pp *s)
{
	int i;

	for (i = 0; i < s->ncond && i < MAX_NEST; i++)
		if (s->cond[i] != COND_TAKE)
			return 1;
	return 0;
}

static int expanding(const struct pp *s, const struct macro *m)
{
	int i;

	for (i = 1; i <= s->depth; i++)
		if (s->frame[i].macro == m)
			return 1;
	return 0;
}

/* Makes text the one that tokens come from. */
static void push(struct pp *s, const struct macro *m, const char *text,
		 size_t len, unsigned line)
{
	struct frame *f = &s->frame[s->depth + 1];

	if (lex_init(&f->x, s->a, text, len) < 0) {
		s->failed = 1;
		return;
	}
	f->x.bol = 0;
	f->macro = m;
	f->line = line;
	s->depth++;
	s->expansions++;
}

/* The names between the parentheses behind a macro's name; *body is what
 * follows them.  `...` counts as __VA_ARGS__. */
static size_t parameters(const struct macro *m, struct arena *a,
			 struct token param[MACRO_ARGS], const char **body)
{
	struct token t;
	struct lexer x;
	size_t n = 0;

	*body = m->body + m->body_len;
	if (lex_init(&x, a, m->body, m->body_len) < 0)
		return 0;
	x.bol = 0;
	for (lex_next(&x, &t); t.type != TOK_END; lex_next(&x, &t)) {
		if (tok_is(&t, ")")) {
			*body = x.p;
			return n;
		}
		if (tok_is(&t, "...")) {
			t.p = "__VA_ARGS__";
			t.len = strlen(t.p);
		} else if (t.type != TOK_IDENT) {
			continue;
		}
		if (n < MACRO_ARGS)
			param[n++] = t;
	}
	return n;
}

/*
 * The arguments behind the '(' that x stands at, as pieces of its text; the
 * last of `max` takes all that is left.  Their number, or 0 when there is no
 * ')'.  x then stands behind it.
 */
static size_t arguments(struct lexer *x, struct token arg[MACRO_ARGS],
			size_t max)
{
	struct token t;
	int depth = 0, fresh = 1;
	size_t n = 0;

	for (lex_next(x, &t); t.type != TOK_END; lex_next(x, &t)) {
		if (tok_is(&t, ")") && --depth == 0)
			return n + 1;
		if (tok_is(&t, "(") && ++depth == 1)
			continue;
		if (depth == 1 && tok_is(&t, ",") && n + 1 < max) {
			n++;
			fresh = 1;
			continue;
		}
		if (fresh)
			arg[n] = t;
		arg[n].len = (size_t)(t.p + t.len - arg[n].p);
		fresh = 0;
	}
	return 0;
}

static const struct token *argument(const struct token *t,
				    const struct token *param, size_t nparam,
				    const struct token *arg)
{
	size_t i;

	for (i = 0; t->type == TOK_IDENT && i < nparam; i++)
		if (param[i].len == t->len &&
		    memcmp(param[i].p, t->p, t->len) == 0)
			return &arg[i];
	return NULL;
}

/* Appends the replacement of a macro: arguments put in, # as "", ## glued. */
static void substitute(struct lexer *x, const struct token *param,
		       size_t nparam, const struct token *arg,
		       struct str *out)
{
	const struct token *a;
	struct token t;
	int hash = 0;

	for (lex_next(x, &t); t.type != TOK_END; lex_next(x, &t)) {
		if (tok_is(&t, "#")) {
			hash++;
			continue;
		}
		a = argument(&t, param, nparam, arg);
		if (hash == 1 && a) {
			str_adds(out, "\"\"");
		} else {
			if (hash != 2)
				str_addc(out, ' ');
			str_add(out, a ? a->p : t.p, a ? a->len : t.len);
		}
		hash = 0;
	}
}

/* Starts the expansion of a macro with parameters whose name was just read;
 * 0 when it is not called here. */
static int call(struct pp *s, const struct macro *m, const struct token *t)
{
	struct frame *f = &s->frame[s->depth];
	struct token param[MACRO_ARGS], arg[MACRO_ARGS], open;
	struct lexer ahead = f->x, x;
	struct str out = STR_INIT;
	const char *body, *text;
	size_t nparam;
	int called;

	memset(arg, 0, sizeof(arg));
	lex_next(&ahead, &open);
	if (!tok_is(&open, "("))
		return 0;
	nparam = parameters(m, s->a, param, &body);
	ahead = f->x;
	called = arguments(&ahead, arg, nparam ? nparam : 1) > 0;
	s->expanded += (size_t)(ahead.p - f->x.p) + m->body_len;
	if (!called || s->expanded > EXPANDED_MAX ||
	    lex_init(&x, s->a, body,
		     (size_t)(m->body + m->body_len - body)) < 0)
		return 0;
	x.bol = 0;
	out.cap = EXPANDED_MAX;
	substitute(&x, param, nparam, arg, &out);
	s->expanded += out.len;
	text = out.failed ? NULL :
	       arena_strndup(s->a, out.buf ? out.buf : "", out.len);
	if (text) {
		f->x = ahead;
		push(s, m, text, out.len, t->line);
	}
	str_release(&out);
	return text != NULL;
}

/* Starts the expansion of a macro; 1 if there was one. */
static int expand(struct pp *s, const struct token *t)
{
	const struct macro *m;

	if (t->type != TOK_IDENT || s->depth + 1 >= MAX_EXPAND ||
	    s->expansions >= EXPANSIONS_MAX || s->expanded > EXPANDED_MAX)
		return 0;
	m = find_macro(s, t->p, t->len);
	if (!m || expanding(s, m))
		return 0;
	if (m->function)
		return call(s, m, t);
	push(s, m, m->body, m->body_len, t->line);
	return 1;
}

void pp_next(struct pp *s, struct token *t, int macros)
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
			s->launches = 1;
		if (!macros || !expand(s, t))
			return;
	}
}

int pp_reads(const struct source_file *f)
{
	return starts_with(f->path, "kernels/");
}

void pp_enter(struct pp *s, const struct source_file *f)
{
	s->file = f->path;
	s->is_c = ends_with(f->path, ".c");
	s->is_cuda = ends_with(f->path, ".cu") || ends_with(f->path, ".cuh");
	s->depth = s->ncond = 0;
	if (lex_init(&s->frame[0].x, s->a, f->text, f->len) < 0)
		s->failed = 1;
}

static void collect_macros(struct pp *s)
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

struct pp *pp_new(const struct source_tree *tree, struct arena *a)
{
	struct pp *s = arena_alloc(a, 1, sizeof(*s));
	size_t i;

	if (!s)
		return NULL;
	s->a = a;
	for (i = 0; i < tree->n && !s->failed; i++) {
		if (!pp_reads(&tree->file[i]))
			continue;
		pp_enter(s, &tree->file[i]);
		collect_macros(s);
	}
	return s->failed ? NULL : s;
}

int pp_launches(const struct pp *s)
{
	return s->launches;
}

int pp_failed(const struct pp *s)
{
	return s->failed;
}
