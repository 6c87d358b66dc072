/* SPDX-License-Identifier: Apache-2.0
 *
 * Follows a shape byte by byte: a frame for each value that is open.
 */
#include <string.h>

#include "serve/shapes.h"

#define BLANKS 32
#define DIGITS 15

enum phase { VALUE, STRING, WORD, NUMBER, OBJECT, ARRAY, HEAD, TAIL };

/* Of an object or an array: what may come. */
enum { FIRST, NEXT, KEY, COLON, AFTER };
/* Of a string: behind a backslash, digits of \u that are left. */
enum { PLAIN, ESCAPE, HEX1, HEX2, HEX3, HEX4 };
/* Of a number. */
enum { SIGN, ZERO, INT, POINT, FRACTION, EXPONENT, EXP_SIGN, EXP };

static const char *const word[] = { "false", "true", "null" };

static int is_blank(unsigned char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int is_digit(unsigned char c)
{
	return c >= '0' && c <= '9';
}

static struct shape_frame *top(struct shape_at *at)
{
	return &at->frame[at->depth - 1];
}

static int push(struct shape_at *at, int node, enum phase phase)
{
	struct shape_frame *f;

	if (at->depth == SHAPE_DEPTH || node < 0)
		return 0;
	f = &at->frame[at->depth++];
	memset(f, 0, sizeof *f);
	f->node = (int16_t)node;
	f->phase = (uint8_t)phase;
	return 1;
}

static int pop(struct shape_at *at)
{
	at->depth--;
	return 1;
}

static const struct shape_node *node_of(const struct shape *s,
					const struct shape_frame *f)
{
	return &s->node[f->node];
}

/* Frames that are left for values inside of the one on top. */
static unsigned room(const struct shape_at *at)
{
	return (unsigned)(SHAPE_DEPTH - at->depth);
}

/* Whether there is room for one of these. */
static int has_room(const struct shape *s, const struct shape_at *at, int node)
{
	return node >= 0 && s->node[node].need <= room(at);
}

static uint64_t all_of(const struct shape_node *p)
{
	return p->ntexts == 64 ? UINT64_MAX :
	       ((uint64_t)1 << p->ntexts) - 1;
}

/* Of the texts that fit so far, those that go on with c. */
static uint64_t texts_with(const struct shape_node *p, uint64_t fits,
			   size_t at, unsigned char c)
{
	uint64_t left = 0;

	for (; fits; fits &= fits - 1) {
		int k = __builtin_ctzll(fits);

		if (at < p->text[k].len &&
		    (unsigned char)p->text[k].p[at] == c)
			left |= (uint64_t)1 << k;
	}
	return left;
}

/* The text that fits and ends behind `at` bytes; or -1. */
static int text_ending(const struct shape_node *p, uint64_t fits, size_t at)
{
	for (; fits; fits &= fits - 1) {
		int k = __builtin_ctzll(fits);

		if (p->text[k].len == at)
			return k;
	}
	return -1;
}

static int is_longer(const struct shape_node *p, uint64_t fits, size_t at)
{
	for (; fits; fits &= fits - 1)
		if (p->text[__builtin_ctzll(fits)].len > at)
			return 1;
	return 0;
}

static int kind_by(unsigned char c)
{
	switch (c) {
	case '{': return KIND_OBJECT;
	case '[': return KIND_ARRAY;
	case '"': return KIND_STRING;
	case 't':
	case 'f': return KIND_BOOL;
	case 'n': return KIND_NULL;
	default: return is_digit(c) || c == '-' ? KIND_NUMBER : -1;
	}
}

/* Keeps the texts that go on with c; 0 when there are none. */
static int narrow(const struct shape_node *p, struct shape_frame *f,
		  unsigned char c)
{
	f->fits = texts_with(p, f->fits, f->at, c);
	if (!f->fits)
		return 0;
	f->at++;
	return 1;
}

static int step_enum(const struct shape *s, struct shape_at *at,
		     unsigned char c)
{
	struct shape_frame *f = top(at);
	const struct shape_node *p = node_of(s, f);

	if (!narrow(p, f, c))
		return 0;
	if (text_ending(p, f->fits, f->at) >= 0 &&
	    !is_longer(p, f->fits, f->at))
		return pop(at);
	return 1;
}

/* The first byte of a value, instead of the frame that waits for it. */
static int begin_value(const struct shape *s, struct shape_at *at,
		       unsigned char c)
{
	static const enum phase of[KINDS] = { OBJECT, ARRAY, STRING, NUMBER,
					      WORD, WORD };
	int kind = kind_by(c), node;
	struct shape_frame *f = top(at);

	/* Its frame takes the place of this one. */
	if (kind < 0 || node_of(s, f)->needs[kind] > room(at) + 1)
		return 0;
	node = node_of(s, f)->is[kind];
	pop(at);
	push(at, node, of[kind]);
	f = top(at);
	if (node_of(s, f)->is_enum) {
		f->phase = WORD;
		f->sub = 1;
		f->fits = all_of(node_of(s, f));
		return step_enum(s, at, c);
	}
	f->at = c == 't' ? 1 : c == 'n' ? 2 : 0;
	f->count = kind == KIND_BOOL || kind == KIND_NULL;
	if (kind == KIND_NUMBER) {
		f->count = is_digit(c) ? 1 : 0;
		f->at = 0;
		f->sub = c == '-' ? SIGN : c == '0' ? ZERO : INT;
	}
	return 1;
}

static int step_word(const struct shape *s, struct shape_at *at,
		     unsigned char c)
{
	struct shape_frame *f = top(at);
	const char *w = word[f->at % 3];

	if (f->sub)
		return step_enum(s, at, c);
	if (f->count >= strlen(w) || (unsigned char)w[f->count] != c)
		return 0;
	return w[++f->count] ? 1 : pop(at);
}

/* The first byte of a character of UTF-8, or one of those that follow. */
static int step_utf8(struct shape_at *at, unsigned char c)
{
	if (at->more) {
		if (c < at->low || c > at->high)
			return 0;
		at->more--;
		at->low = 0x80;
		at->high = 0xbf;
		return 1;
	}
	at->low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	at->high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	at->more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	if (!at->more)
		at->low = at->high = 0;
	return c < 0x80 || (c >= 0xc2 && c <= 0xf4);
}

static int hex(unsigned char c)
{
	return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What matters of the digits so far: no surrogates, and no NUL. */
enum { ALL_ZERO, NOT_ZERO, MAY_BE_SURROGATE };

static int step_hex(struct shape_frame *f, unsigned char c)
{
	int digit = hex(c), was = (int)f->at, last = f->sub == HEX4;

	if (digit < 0 || (was == MAY_BE_SURROGATE && digit >= 8) ||
	    (last && !was && !digit))
		return 0;
	f->at = f->sub == HEX1 && digit == 0xd ? MAY_BE_SURROGATE :
		was || digit ? NOT_ZERO : ALL_ZERO;
	f->sub = last ? PLAIN : f->sub + 1;
	if (last)
		f->at = 0;
	return 1;
}

static uint32_t counts(const struct shape_node *p)
{
	return p->least || p->most != UINT32_MAX;
}

static int step_string(const struct shape *s, struct shape_at *at,
		       unsigned char c)
{
	struct shape_frame *f = top(at);
	const struct shape_node *p = node_of(s, f);

	if (f->sub >= HEX1)
		return step_hex(f, c);
	if (f->sub == ESCAPE) {
		f->sub = c == 'u' ? HEX1 : PLAIN;
		f->at = 0;
		return c && strchr("\"\\/bfnrtu", c) != NULL;
	}
	if (at->more)
		return step_utf8(at, c);
	if (c == '"')
		return f->count >= p->least && pop(at);
	if (c < 0x20 || (counts(p) && f->count == p->most))
		return 0;
	/* Only where it matters, so that states stay the same. */
	f->count += counts(p);
	if (c == '\\') {
		f->sub = ESCAPE;
		return 1;
	}
	return step_utf8(at, c);
}

static int number_may_end(const struct shape_frame *f)
{
	return f->sub == ZERO || f->sub == INT || f->sub == FRACTION ||
	       f->sub == EXP;
}

/* 1: it is part of the number; 0: it is not. */
static int step_number(const struct shape_node *p, struct shape_frame *f,
		       unsigned char c)
{
	int digit = is_digit(c), exp = (c | 0x20) == 'e' && !p->whole;

	if (digit && f->sub != EXP && f->sub != EXPONENT &&
	    f->sub != EXP_SIGN && f->count++ == DIGITS)
		return 0;
	switch (f->sub) {
	case SIGN:
		f->sub = c == '0' ? ZERO : INT;
		return digit;
	case ZERO:
	case INT:
		if (digit)
			return f->sub == INT;
		f->sub = c == '.' ? POINT : EXPONENT;
		/* A digit has to follow the point. */
		return exp || (c == '.' && !p->whole && f->count < DIGITS);
	case POINT:
		f->sub = FRACTION;
		return digit;
	case FRACTION:
		f->sub = digit ? FRACTION : EXPONENT;
		return digit || exp;
	case EXPONENT:
		f->sub = digit ? EXP : EXP_SIGN;
		f->at = (uint32_t)digit;
		return digit || c == '+' || c == '-';
	default:		/* behind the sign, or two digits */
		f->sub = EXP;
		return digit && f->at++ < 2;
	}
}

static int step_key(const struct shape *s, struct shape_at *at,
		    unsigned char c)
{
	struct shape_frame *f = top(at);
	const struct shape_node *p = node_of(s, f);

	if (!narrow(p, f, c))
		return 0;
	/* Keys end with a quote, so none goes on behind another's end. */
	if (text_ending(p, f->fits, f->at) >= 0)
		f->sub = COLON;
	return 1;
}

/* Keys that may come: new ones whose values have room. */
static uint64_t keys(const struct shape *s, struct shape_at *at)
{
	const struct shape_frame *f = top(at);
	const struct shape_node *p = node_of(s, f);
	uint64_t left = all_of(p) & ~f->seen, found = 0;

	for (; left; left &= left - 1) {
		int k = __builtin_ctzll(left);

		if (has_room(s, at, p->text[k].node))
			found |= (uint64_t)1 << k;
	}
	return found;
}

static int may_go_on(const struct shape *s, struct shape_at *at)
{
	int extra = node_of(s, top(at))->extra;

	return extra >= 0 ? has_room(s, at, extra) : keys(s, at) != 0;
}

/* A key's quote. */
static int begin_key(const struct shape *s, struct shape_at *at)
{
	struct shape_frame *f = top(at);

	if (node_of(s, f)->extra >= 0) {
		/* Any text: this node says nothing of strings. */
		f->sub = COLON;
		return push(at, f->node, STRING);
	}
	f->sub = KEY;
	f->at = 0;
	f->fits = keys(s, at);
	return step_key(s, at, '"');
}

static int step_object(const struct shape *s, struct shape_at *at,
		       unsigned char c)
{
	struct shape_frame *f = top(at);
	const struct shape_node *p = node_of(s, f);
	int k;

	switch (f->sub) {
	case KEY:
		return step_key(s, at, c);
	case COLON:
		if (c != ':')
			return 0;
		f->sub = AFTER;
		if (p->extra >= 0)
			return push(at, p->extra, VALUE);
		k = text_ending(p, f->fits, f->at);
		f->seen |= (uint64_t)1 << k;
		f->fits = f->at = 0;
		return push(at, p->text[k].node, VALUE);
	case AFTER:
		f->sub = NEXT;
		if (c == ',')
			return may_go_on(s, at);
		break;
	default:
		if (c == '"')
			return may_go_on(s, at) && begin_key(s, at);
		if (f->sub == NEXT)
			return 0;
	}
	return c == '}' && (f->seen & p->required) == p->required && pop(at);
}

static int step_array(const struct shape *s, struct shape_at *at,
		      unsigned char c)
{
	struct shape_frame *f = top(at);
	const struct shape_node *p = node_of(s, f);

	if (f->sub != NEXT && c == ']')
		return f->count >= p->least && pop(at);
	if ((counts(p) && f->count == p->most) || !has_room(s, at, p->items))
		return 0;
	if (f->sub == AFTER) {
		f->sub = NEXT;
		return c == ',';
	}
	f->sub = AFTER;
	f->count += counts(p);
	return push(at, p->items, VALUE) && begin_value(s, at, c);
}

static int step_head(const struct shape *s, struct shape_at *at,
		     unsigned char c)
{
	struct shape_frame *f = top(at);
	const struct shape_node *p = node_of(s, f);
	int k;

	if (!narrow(p, f, c))
		return 0;
	k = text_ending(p, f->fits, f->at);
	if (k < 0)
		return 1;
	f->phase = TAIL;
	f->at = 0;
	f->fits = 0;
	return push(at, p->text[k].node, VALUE);
}

static int step_tail(const struct shape *s, struct shape_at *at,
		     unsigned char c)
{
	struct shape_frame *f = top(at);

	if ((unsigned char)s->tail[f->at] != c)
		return 0;
	return s->tail[++f->at] ? 1 : pop(at);
}

static int may_blank(const struct shape_frame *f)
{
	return f->phase == VALUE || f->phase == ARRAY ||
	       (f->phase == OBJECT && f->sub != KEY);
}

/* Whether the value on top, which has no end of its own, may end. */
static int may_end(const struct shape *s, const struct shape_frame *f)
{
	if (f->phase == NUMBER)
		return number_may_end(f);
	return f->phase == WORD && f->sub &&
	       text_ending(node_of(s, f), f->fits, f->at) >= 0;
}

void shape_begin(const struct shape *s, struct shape_at *at)
{
	memset(at, 0, sizeof *at);
	push(at, s->root, s->tail ? HEAD : VALUE);
	at->frame[0].fits = s->tail ? all_of(&s->node[s->root]) : 0;
}

size_t shape_size(const struct shape_at *at)
{
	return offsetof(struct shape_at, frame) +
	       (size_t)at->depth * sizeof at->frame[0];
}

static uint32_t at_most(uint32_t n, uint32_t most)
{
	return n < most ? n : most;
}

void shape_class(const struct shape *s, const struct shape_at *at,
		 uint32_t reach, struct shape_at *out)
{
	memcpy(out, at, shape_size(at));
	for (int i = 0; i < at->depth; i++) {
		struct shape_frame *f = &out->frame[i];
		const struct shape_node *p = node_of(s, f);

		if ((f->phase != STRING && f->phase != ARRAY) || !counts(p))
			continue;
		f->zero = f->count < p->least ?
			  at_most(p->least - f->count, reach) : 0;
		f->count = at_most(p->most - f->count, reach);
	}
}

uint32_t shape_room(const struct shape *s, const struct shape_at *at)
{
	const struct shape_frame *f = at->frame;

	f += at->depth ? at->depth - 1 : 0;
	if (!at->depth || f->phase != STRING || f->sub != PLAIN || at->more)
		return 0;
	return node_of(s, f)->most - f->count;
}

/* A number ends where something else begins. */
static int end_number(const struct shape *s, struct shape_at *at,
		      unsigned char c)
{
	struct shape_frame *f = top(at), was = *f;

	if (!may_end(s, f))
		return 0;
	if (f->phase == NUMBER ? step_number(node_of(s, f), f, c) :
	    texts_with(node_of(s, f), f->fits, f->at, c) != 0) {
		*f = was;
		return 0;
	}
	return pop(at);
}

int shape_step(const struct shape *s, struct shape_at *at, unsigned char c)
{
	struct shape_frame *f;

	if (!at->depth)
		return 0;
	if (end_number(s, at, c) && !at->depth)
		return 0;
	f = top(at);
	if (is_blank(c) && may_blank(f))
		return at->blanks++ < BLANKS;
	at->blanks = 0;
	switch (f->phase) {
	case VALUE: return begin_value(s, at, c);
	case STRING: return step_string(s, at, c);
	case WORD: return step_word(s, at, c);
	case NUMBER: return step_number(node_of(s, f), f, c);
	case OBJECT: return step_object(s, at, c);
	case ARRAY: return step_array(s, at, c);
	case HEAD: return step_head(s, at, c);
	default: return step_tail(s, at, c);
	}
}

int shape_whole(const struct shape *s, const struct shape_at *at)
{
	return !at->depth || (at->depth == 1 && may_end(s, &at->frame[0]));
}

int shape_marks(const struct shape *s, const struct shape_at *at)
{
	(void)s;
	return at->depth == 1 && (at->frame[0].phase == HEAD ||
				  at->frame[0].phase == TAIL);
}

int shape_is_object(const char *text, size_t len)
{
	struct fault f = { 0 };
	struct shape *s = shape_json(NULL, "", &f);
	struct shape_at at;
	size_t i = 0;
	int whole;

	if (!s)
		return 0;
	shape_begin(s, &at);
	while (i < len && shape_step(s, &at, (unsigned char)text[i]))
		i++;
	whole = i == len && shape_whole(s, &at);
	shape_free(s);
	return whole;
}
