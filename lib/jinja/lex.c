/* SPDX-License-Identifier: Apache-2.0
 *
 * As jinja2 cuts with trim_blocks and lstrip_blocks: a tag takes the line's
 * end behind it, and a tag that is the first of its line takes what stands
 * before it there; "-" takes all white space on its side, "+" keeps it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "jinja/syntax.h"
#include "jinja/text.h"

#define TOKENS_MAX 200000
#define DIGITS_MAX 18

struct lexer {
	const char *at, *end;
	int line;
	int fresh;			/* the line begins here, for lstrip */
	int depth;			/* of brackets inside a tag */
	struct arena *mem;
	struct token *token;
	size_t n, alloc;
	struct err *e;
};

int piece_is(struct piece a, const char *text)
{
	size_t n = strlen(text);

	return a.len == n && !memcmp(a.p, text, n);
}

static int unknown(struct lexer *x, const char *what)
{
	return err_set(x->e, CA_CONFIG, "line %d: %s", x->line, what);
}

static struct token *add(struct lexer *x, enum token_kind kind,
			 const char *p, size_t len)
{
	struct token *t;

	if (x->n == x->alloc) {
		size_t alloc = x->alloc ? 2 * x->alloc : 256;

		t = alloc > TOKENS_MAX ? NULL :
		    arena_alloc(x->mem, alloc, sizeof *t);
		if (!t) {
			unknown(x, "the template is too long");
			return NULL;
		}
		if (x->n)
			memcpy(t, x->token, x->n * sizeof *t);
		x->token = t;
		x->alloc = alloc;
	}
	t = &x->token[x->n++];
	*t = (struct token){ .kind = kind, .text = { p, len },
			     .line = x->line };
	return t;
}

static void count_lines(struct lexer *x, const char *p, const char *end)
{
	while ((p = memchr(p, '\n', (size_t)(end - p)))) {
		x->line++;
		p++;
	}
}

static void skip_space(struct lexer *x)
{
	size_t n = text_spaces(x->at, (size_t)(x->end - x->at));

	count_lines(x, x->at, x->at + n);
	x->at += n;
}

/* The next "{{", "{%" or "{#"; the end when there is none. */
static const char *find_tag(const struct lexer *x)
{
	const char *p = x->at;

	while (p + 1 < x->end) {
		p = memchr(p, '{', (size_t)(x->end - 1 - p));
		if (!p)
			break;
		if (p[1] == '{' || p[1] == '%' || p[1] == '#')
			return p;
		p++;
	}
	return x->end;
}

/* What of the text before a tag is not printed, because of the tag. */
static size_t strip_before(const struct lexer *x, const char *tag)
{
	size_t len = (size_t)(tag - x->at), line;
	char sign = tag + 2 < x->end ? tag[2] : 0;

	if (sign == '-')
		return text_rstrip(x->at, len);
	if (sign == '+' || tag[1] == '{')
		return len;
	for (line = len; line && x->at[line - 1] != '\n'; line--)
		;
	if ((line || x->fresh) && line < len &&
	    text_spaces(x->at + line, len - line) == len - line)
		return line;
	return len;
}

/* What follows the closing of a comment or tag, whose "-" or "+" was seen. */
static void close_tag(struct lexer *x, char sign, int trims)
{
	const char *was = x->at;

	if (sign == '-')
		skip_space(x);
	else if (trims && x->at < x->end && *x->at == '\n') {
		x->at++;
		x->line++;
	}
	x->fresh = x->at > was && x->at[-1] == '\n';
}

/* Behind "{#": up to its end, which also takes white space. */
static int lex_comment(struct lexer *x)
{
	const char *p = x->at;
	char sign;

	for (; p + 1 < x->end; p++)
		if (p[0] == '#' && p[1] == '}')
			break;
	if (p + 1 >= x->end)
		return unknown(x, "a comment does not end");
	sign = p > x->at ? p[-1] : 0;
	count_lines(x, x->at, p);
	x->at = p + 2;
	close_tag(x, sign == '-' || sign == '+' ? sign : 0,
		  sign != '+');
	return 0;
}

static int hex(const char *p, int n, unsigned long *cp)
{
	char digits[9] = { 0 };

	memcpy(digits, p, (size_t)n);
	*cp = strtoul(digits, NULL, 16);
	return strspn(digits, "0123456789abcdefABCDEF") == (size_t)n ? 0 : -1;
}

/* One escape, at the character behind the backslash; what is no escape stays
 * as it is, as in Python. */
static int unescape(struct lexer *x, const char **at, const char *end,
		    char **out)
{
	static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
	const char *p = *at, *hit = *p ? strchr(from, *p) : NULL;
	int n = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
	unsigned long cp;

	if (hit) {
		*(*out)++ = to[hit - from];
	} else if (n) {
		if (end - p <= n || hex(p + 1, n, &cp) || !cp ||
		    cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
			return unknown(x, "an escape in a string");
		*out += utf8_put(cp, *out);
		p += n;
	} else if (*p == 'N' || *p == '\n' || (*p >= '0' && *p <= '7')) {
		return unknown(x, "an escape in a string");
	} else {
		*(*out)++ = '\\';
		*(*out)++ = *p;
	}
	*at = p + 1;
	return 0;
}

static int lex_string(struct lexer *x)
{
	const char *p = x->at + 1, *end = p;
	char quote = *x->at, *own, *out;
	struct token *t;

	while (end < x->end && *end != quote)
		end += *end == '\\' ? 2 : 1;
	if (end >= x->end)
		return unknown(x, "a string does not end");
	own = out = arena_alloc(x->mem, (size_t)(end - p) + 1, 1);
	if (!own)
		return err_set(x->e, CA_SOFTWARE, "no memory");
	while (p < end) {
		if (*p != '\\') {
			*out++ = *p++;
			continue;
		}
		p++;
		if (unescape(x, &p, end, &out))
			return -1;
	}
	t = add(x, TOKEN_STRING, own, (size_t)(out - own));
	count_lines(x, x->at, end);
	x->at = end + 1;
	return t ? 0 : -1;
}

static int is_name(char c, int first)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (!first && c >= '0' && c <= '9');
}

static int lex_number(struct lexer *x)
{
	const char *p = x->at;
	struct token *t;
	size_t n;

	while (p < x->end && *p >= '0' && *p <= '9')
		p++;
	n = (size_t)(p - x->at);
	if ((n > 1 && *x->at == '0') || n > DIGITS_MAX ||
	    (p < x->end && is_name(*p, 1)) ||
	    (p + 1 < x->end && *p == '.' && p[1] >= '0' && p[1] <= '9'))
		return unknown(x, "a number");
	t = add(x, TOKEN_INT, x->at, n);
	if (!t)
		return -1;
	for (size_t i = 0; i < n; i++)
		t->number = 10 * t->number + (x->at[i] - '0');
	x->at = p;
	return 0;
}

static int lex_op(struct lexer *x)
{
	static const char *const two[] = { "==", "!=", "<=", ">=", "//", "**" };
	size_t n = 1;

	for (size_t i = 0; i < sizeof two / sizeof *two; i++)
		if (x->end - x->at >= 2 && !memcmp(x->at, two[i], 2))
			n = 2;
	if (!strchr("+-*/%~[](){}=<>.:|,", *x->at) && n == 1)
		return unknown(x, "a character in a tag");
	if (strchr("([{", *x->at)) {
		x->depth++;
	} else if (strchr(")]}", *x->at) && x->depth-- == 0) {
		return unknown(x, "a bracket is closed that is not open");
	}
	if (!add(x, TOKEN_OP, x->at, n))
		return -1;
	x->at += n;
	return 0;
}

/* Whether a tag is closed here: takes that. */
static int closes(struct lexer *x, int tag)
{
	const char *mark = tag ? "%}" : "}}";
	const char *p = x->at;
	char sign = 0;

	if (x->depth)
		return 0;
	if (*p == '-' || (*p == '+' && tag))
		sign = *p++;
	if (x->end - p < 2 || memcmp(p, mark, 2))
		return 0;
	add(x, tag ? TOKEN_TAG_END : TOKEN_PRINT_END, x->at, 0);
	x->at = p + 2;
	close_tag(x, sign, tag && sign != '+');
	return 1;
}

/* Behind "{{" or "{%". */
static int lex_tag(struct lexer *x, int tag)
{
	int rc = 0;

	if (!add(x, tag ? TOKEN_TAG : TOKEN_PRINT, x->at, 0))
		return -1;
	x->depth = 0;
	while (!rc) {
		const char *p;

		skip_space(x);
		if (x->at >= x->end)
			return unknown(x, "a tag does not end");
		if (closes(x, tag))
			return 0;
		p = x->at;
		if (*p == '\'' || *p == '"') {
			rc = lex_string(x);
		} else if (*p >= '0' && *p <= '9') {
			rc = lex_number(x);
		} else if (is_name(*p, 1)) {
			while (x->at < x->end && is_name(*x->at, 0))
				x->at++;
			rc = add(x, TOKEN_NAME, p, (size_t)(x->at - p)) ?
			     0 : -1;
		} else {
			rc = lex_op(x);
		}
	}
	return rc;
}

/* A copy with all ends of lines as LF, and without the last one. */
static int normal(struct lexer *x, const char *text, size_t len)
{
	char *own = arena_alloc(x->mem, len + 1, 1), *out = own;

	if (!own)
		return err_set(x->e, CA_SOFTWARE, "no memory");
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
			continue;
		*out++ = text[i] == '\r' ? '\n' : text[i];
	}
	if (out > own && out[-1] == '\n')
		out--;
	x->at = own;
	x->end = out;
	return 0;
}

static int lex(struct lexer *x)
{
	while (x->at < x->end) {
		const char *tag = find_tag(x);
		size_t n = tag < x->end ? strip_before(x, tag) :
					  (size_t)(x->end - x->at);
		int rc;

		if (n && !add(x, TOKEN_TEXT, x->at, n))
			return -1;
		count_lines(x, x->at, tag);
		x->at = tag;
		if (tag == x->end)
			break;
		x->at += 2;
		if (x->at < x->end && (*x->at == '-' || *x->at == '+'))
			x->at++;
		rc = tag[1] == '#' ? lex_comment(x) :
		     lex_tag(x, tag[1] == '%');
		if (rc)
			return -1;
	}
	return add(x, TOKEN_END, x->end, 0) ? 0 : -1;
}

struct token *jinja_lex(const char *text, size_t len, struct arena *mem,
			struct err *e)
{
	struct lexer x = { .line = 1, .fresh = 1, .mem = mem, .e = e };

	return normal(&x, text, len) || lex(&x) ? NULL : x.token;
}
