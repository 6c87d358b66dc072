/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of C, C++ and CUDA.
 */
#include "build/lex.h"

#include <ctype.h>
#include <string.h>

/* Length of a backslash-newline at s, else 0. */
static size_t continuation(const char *s, const char *end)
{
	if (s >= end || *s != '\\')
		return 0;
	if (end - s > 1 && s[1] == '\n')
		return 2;
	if (end - s > 2 && s[1] == '\r' && s[2] == '\n')
		return 3;
	return 0;
}

int lex_init(struct lexer *x, struct arena *a, const char *text, size_t len)
{
	const char *s, *end = text + len;
	size_t i, n = 0, m = 0, k;
	size_t *splice;
	char *buf;

	memset(x, 0, sizeof(*x));
	/* Compilers pass over a byte order mark. */
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
		text += 3;
		len -= 3;
	}
	s = text;
	for (i = 0; i < len; i++)
		n += text[i] == '\\' && continuation(text + i, end) != 0;
	x->line = 1;
	x->bol = 1;
	x->base = x->p = text;
	x->end = end;
	if (!n)
		return 0;
	buf = arena_alloc(a, len + 1, 1);
	splice = arena_alloc(a, n, sizeof(*splice));
	if (!buf || !splice)
		return -1;
	for (n = 0; s < end;) {
		k = continuation(s, end);
		if (k)
			splice[n++] = m;
		else
			buf[m++] = *s, k = 1;
		s += k;
	}
	x->base = x->p = buf;
	x->end = buf + m;
	x->splice = splice;
	x->nsplice = n;
	return 0;
}

static int peek(const struct lexer *x, size_t k)
{
	return (size_t)(x->end - x->p) > k ? (unsigned char)x->p[k] : -1;
}

static void step(struct lexer *x)
{
	while (x->next < x->nsplice &&
	       x->splice[x->next] <= (size_t)(x->p - x->base)) {
		x->line++;
		x->next++;
	}
	if (*x->p++ == '\n') {
		x->line++;
		x->bol = 1;
	}
}

static void step_n(struct lexer *x, size_t n)
{
	while (n-- && x->p < x->end)
		step(x);
}

static void skip_block_comment(struct lexer *x)
{
	int bol = x->bol;

	step_n(x, 2);
	while (x->p < x->end && !(peek(x, 0) == '*' && peek(x, 1) == '/'))
		step(x);
	step_n(x, 2);
	x->bol = bol || x->bol;
}

static void skip_space(struct lexer *x)
{
	int c;

	while ((c = peek(x, 0)) >= 0) {
		if (c == '/' && peek(x, 1) == '*') {
			skip_block_comment(x);
		} else if (c == '/' && peek(x, 1) == '/') {
			while (x->p < x->end && *x->p != '\n')
				step(x);
		} else if (isspace(c)) {
			step(x);
		} else {
			return;
		}
	}
}

/* From an opening quote to its end; a newline ends a broken one. */
static void quoted(struct lexer *x, int quote)
{
	step(x);
	while (x->p < x->end && *x->p != quote && *x->p != '\n')
		step_n(x, *x->p == '\\' ? 2 : 1);
	if (x->p < x->end && *x->p == quote)
		step(x);
}

/* From the quote of R"delim( to )delim". */
static void raw_string(struct lexer *x)
{
	const char *delim, *s;
	size_t n;

	step(x);
	delim = x->p;
	while (x->p < x->end && *x->p != '(' && *x->p != '\n' && *x->p != '"')
		step(x);
	if (x->p == x->end || *x->p != '(')
		return;
	n = (size_t)(x->p - delim);
	for (; x->p < x->end; step(x)) {
		s = x->p;
		if (*s == ')' && (size_t)(x->end - s) >= n + 2 &&
		    memcmp(s + 1, delim, n) == 0 && s[1 + n] == '"') {
			step_n(x, n + 2);
			return;
		}
	}
}

static void directive(struct lexer *x)
{
	while (x->p < x->end && *x->p != '\n') {
		if (*x->p == '/' && peek(x, 1) == '/') {
			while (x->p < x->end && *x->p != '\n')
				step(x);
		} else if (*x->p == '/' && peek(x, 1) == '*') {
			skip_block_comment(x);
		} else if (*x->p == '"') {
			quoted(x, '"');
		} else {
			step(x);
		}
	}
}

static int is_word(int c)
{
	return c == '_' || c == '$' || c >= 0x80 || isalnum(c);
}

/* A preprocessing number: digits, letters, '.', ' and signed exponents. */
static void number(struct lexer *x)
{
	int c, last = 0;

	while ((c = peek(x, 0)) >= 0) {
		if ((c == '+' || c == '-') && !strchr("eEpP", last))
			return;
		if (c == '\'' && !is_word(peek(x, 1)))
			return;
		if (c != '+' && c != '-' && c != '.' && c != '\'' &&
		    !is_word(c))
			return;
		last = c;
		step(x);
	}
}

/* Whether the word just read is a string's prefix; *raw for R. */
static int is_prefix(const char *s, size_t n, int *raw)
{
	static const char *const all[] = { "R", "u8R", "uR", "UR", "LR",
					   "u8", "u", "U", "L" };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (strlen(all[i]) == n && memcmp(all[i], s, n) == 0) {
			*raw = s[n - 1] == 'R';
			return 1;
		}
	}
	return 0;
}

static enum tok_type word(struct lexer *x)
{
	const char *s = x->p;
	int raw = 0, c;

	while (is_word(peek(x, 0)))
		step(x);
	c = peek(x, 0);
	if ((c != '"' && c != '\'') ||
	    !is_prefix(s, (size_t)(x->p - s), &raw))
		return TOK_IDENT;
	if (c == '\'') {
		if (raw)
			return TOK_IDENT;
		quoted(x, c);
		return TOK_CHAR;
	}
	if (raw)
		raw_string(x);
	else
		quoted(x, c);
	return TOK_STRING;
}

static enum tok_type punct(struct lexer *x)
{
	static const char *const multi[] = { "<<<", ">>>", "...", "::", "->" };
	size_t i, n;

	for (i = 0; i < sizeof(multi) / sizeof(*multi); i++) {
		n = strlen(multi[i]);
		if ((size_t)(x->end - x->p) >= n &&
		    memcmp(x->p, multi[i], n) == 0) {
			step_n(x, n);
			return TOK_PUNCT;
		}
	}
	step(x);
	return TOK_PUNCT;
}

static enum tok_type scan(struct lexer *x, int bol)
{
	int c = peek(x, 0);

	if (c < 0)
		return TOK_END;
	if (c == '#' && bol) {
		directive(x);
		return TOK_DIRECTIVE;
	}
	if (isdigit(c) || (c == '.' && isdigit(peek(x, 1)))) {
		number(x);
		return TOK_NUMBER;
	}
	if (is_word(c))
		return word(x);
	if (c == '"' || c == '\'') {
		quoted(x, c);
		return c == '"' ? TOK_STRING : TOK_CHAR;
	}
	return punct(x);
}

void lex_next(struct lexer *x, struct token *t)
{
	int bol;

	skip_space(x);
	bol = x->bol;
	x->bol = 0;
	/* a continuation right before the token belongs to the lines above */
	while (x->next < x->nsplice &&
	       x->splice[x->next] <= (size_t)(x->p - x->base)) {
		x->line++;
		x->next++;
	}
	t->p = x->p;
	t->line = x->line;
	t->type = scan(x, bol);
	t->len = (size_t)(x->p - t->p);
}

int tok_is(const struct token *t, const char *text)
{
	return t->type != TOK_END && strlen(text) == t->len &&
	       memcmp(t->p, text, t->len) == 0;
}

/* Past blanks and comments of a directive. */
static const char *blanks(const char *s, const char *end)
{
	while (s < end) {
		if (*s == ' ' || *s == '\t') {
			s++;
		} else if (end - s > 1 && s[0] == '/' && s[1] == '*') {
			for (s += 2; s < end; s++)
				if (s[-1] == '*' && *s == '/')
					break;
			s += s < end;
		} else {
			break;
		}
	}
	return s;
}

size_t lex_directive(const struct token *t, const char **word_out,
		     const char **rest)
{
	const char *end = t->p + t->len, *s, *w;

	s = blanks(t->p + (t->len > 0), end);
	for (w = s; s < end && is_word((unsigned char)*s);)
		s++;
	*word_out = w;
	*rest = blanks(s, end);
	return (size_t)(s - w);
}

const char *lex_include(const struct token *t, size_t *len, int *is_quoted)
{
	const char *end = t->p + t->len, *word_p, *s, *close;
	size_t n;

	if (t->type != TOK_DIRECTIVE)
		return NULL;
	n = lex_directive(t, &word_p, &s);
	if (n != 7 || memcmp(word_p, "include", 7) != 0 || s >= end ||
	    (*s != '"' && *s != '<'))
		return NULL;
	close = memchr(s + 1, *s == '<' ? '>' : '"', (size_t)(end - s - 1));
	if (!close)
		return NULL;
	*is_quoted = *s == '"';
	*len = (size_t)(close - s - 1);
	return s + 1;
}
