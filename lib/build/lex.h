/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of C, C++ and CUDA: comments, strings, raw strings, character
 * constants, line continuations and preprocessor lines are understood;
 * nothing is expanded.  Never fails: text that no compiler would take gives
 * some tokens, then the end.
 */
#ifndef CA_BUILD_LEX_H
#define CA_BUILD_LEX_H

#include <stddef.h>

#include "base/arena.h"

enum tok_type {
	TOK_END,
	TOK_IDENT,
	TOK_NUMBER,
	TOK_STRING,		/* with prefix and quotes; raw ones too */
	TOK_CHAR,
	TOK_PUNCT,		/* one character, or :: -> ... <<< >>> */
	TOK_DIRECTIVE		/* from '#' to the end of the line; comments in
				 * it are still there */
};

struct token {
	enum tok_type type;
	const char *p;		/* into the lexer's text */
	size_t len;
	unsigned line;		/* of its first character, from 1 */
};

struct lexer {
	const char *p, *end;	/* continuations removed */
	const size_t *splice;	/* offsets where one was, ascending */
	size_t nsplice, next;
	const char *base;
	unsigned line;
	int bol;		/* only white space since the line began */
};

/* The text stays the caller's and must outlive the tokens.  -1: no memory. */
int lex_init(struct lexer *x, struct arena *a, const char *text, size_t len);
void lex_next(struct lexer *x, struct token *t);

/* Whether the token is exactly this text. */
int tok_is(const struct token *t, const char *text);

/* The name in `#include "name"` or `<name>`; NULL when the directive is
 * another.  *len its length, *quoted 1 for the first form. */
const char *lex_include(const struct token *t, size_t *len, int *quoted);

/* The word after '#' (also across white space and comments); "" when none.
 * *rest points behind it. */
size_t lex_directive(const struct token *t, const char **word,
		     const char **rest);

#endif
