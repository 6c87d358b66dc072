/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside lib/jinja: values as templates see them, with Python's meaning of
 * truth, equality, order and spelling.
 */
#ifndef CA_JINJA_VALUE_H
#define CA_JINJA_VALUE_H

#include "base/str.h"
#include "jinja/syntax.h"
#include "rec/json.h"

enum value_kind {
	VALUE_UNDEFINED, VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_FLOAT,
	VALUE_STRING, VALUE_LIST, VALUE_TUPLE, VALUE_DICT,
	VALUE_SPACE,			/* namespace(...): a dict */
	VALUE_LOOP, VALUE_FUNCTION,
	VALUE_VIEW			/* of a dict: to go through */
};

struct value {
	enum value_kind kind;
	union {
		int64_t i;		/* BOOL and INT */
		double f;
		struct piece s;
		struct list *list;	/* LIST, TUPLE and VIEW */
		struct dict *dict;	/* DICT and SPACE */
		struct loop *loop;
	} u;
};

struct list {
	size_t n;
	struct value *item;
	int once;			/* an iterator; 2: it is at its end */
};

/* In the order of insertion. */
struct dict {
	size_t n, alloc;
	struct entry {
		struct piece key;
		struct value value;
	} *entry;
};

struct loop {
	size_t at;
	const struct list *over;
};

#define UNDEFINED ((struct value){ .kind = VALUE_UNDEFINED })

struct value value_int(int64_t i);
struct value value_bool(int yes);
struct value value_string(const char *p, size_t len);

/* An empty list with room for n; u.list is NULL when memory is short. */
struct value value_list(struct arena *mem, enum value_kind kind, size_t n);

/* What JSON holds, its texts not copied.  -1: no memory. */
int value_json(struct arena *mem, const struct json *j, struct value *out);

/* NULL: there is none. */
struct value *dict_get(const struct dict *d, struct piece key);
int dict_put(struct arena *mem, struct dict *d, struct piece key,
	     struct value v);		/* -1: no memory */

/* 1, 0, or -1: not known here. */
int value_true(const struct value *v);
int value_equal(const struct value *a, const struct value *b);
int value_contains(const struct value *in, const struct value *what);

/* Whether they can be ordered; *sign then is as strcmp has it. */
int value_order(const struct value *a, const struct value *b, int *sign);

/* How many elements or characters; -1: it has none, or that is not known. */
int64_t value_length(const struct value *v);

/* str(v); -1: not known here. */
int value_print(const struct value *v, struct str *out);

/* json.dumps(v, ensure_ascii=False, indent=indent); indent < 0: in one line.
 * -1: it has no such form, or it is not known here. */
int value_tojson(const struct value *v, int indent, struct str *out);

#endif
