/* SPDX-License-Identifier: Apache-2.0
 *
 * What an answer has to look like: JSON, JSON of a schema, or a call of a
 * tool; followed byte by byte, so that only tokens are drawn that go on with
 * it.
 *
 * Of JSON Schema: type, enum and const (of these the values that type
 * allows), properties, required, additionalProperties, items, minItems,
 * maxItems, minLength, maxLength, anyOf and oneOf of different types, $ref to
 * #/$defs or #/definitions; the last three with nothing beside them.  What
 * says nothing about the text (title, description, default, ...) is let pass,
 * everything else is refused by name, and so is a schema without a value that
 * ends.  Without a type, keywords of one type mean that type.  Where a schema
 * lists properties, no others are written.  Also shorter than JSON may be:
 * numbers of at most 15 digits, white space of at most 32 bytes in a row, a
 * depth of 32, no \u0000.  Whatever was written so far, it can be ended.
 */
#ifndef CA_SERVE_SHAPE_H
#define CA_SERVE_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "rec/json.h"
#include "serve/fault.h"

#define SHAPE_DEPTH 32
#define SHAPE_MOST  64		/* members of an object, values of an enum */

struct shape;

/* The schema is not needed afterwards; NULL: any object.  NULL with a fault
 * about `param`. */
struct shape *shape_json(const struct json *schema, const char *param,
			 struct fault *f);

/*
 * One call of a tool of the list, of that name unless it is NULL, as
 * tools_find reads it: with or without markers.  The arguments are an object,
 * of the function's schema if it is "strict".
 */
struct shape *shape_call(const struct json *tools, const char *name,
			 int markers, struct fault *f);
void shape_free(struct shape *s);		/* NULL is fine */

/* Where a text has come to; may be copied. */
struct shape_frame {
	int16_t node;
	uint8_t phase, sub;
	uint32_t count, at, zero;
	uint64_t seen, fits;		/* members or values, a bit each */
};

struct shape_at {
	int depth;			/* frames; 0: it is whole */
	int blanks;			/* the last ones */
	uint8_t more, low, high;	/* of a character: bytes, next one's
					 * range */
	uint8_t zero[5];
	struct shape_frame frame[SHAPE_DEPTH];
};

void shape_begin(const struct shape *s, struct shape_at *at);
/* Bytes of a state that are in use: equal ones go on in the same way. */
size_t shape_size(const struct shape_at *at);
/* What states have in common from which any `reach` bytes go on alike: counts
 * matter near their bounds only.  For comparing, not to be stepped. */
void shape_class(const struct shape *s, const struct shape_at *at,
		 uint32_t reach, struct shape_at *out);
/* Inside of a text, how many characters may come that are neither quote nor
 * backslash nor control; 0 elsewhere. */
uint32_t shape_room(const struct shape *s, const struct shape_at *at);
/* 1: the byte goes on with it; 0: it does not, and `at` is spoilt. */
int shape_step(const struct shape *s, struct shape_at *at, unsigned char c);
/* Whether it may end here. */
int shape_whole(const struct shape *s, const struct shape_at *at);
/* Whether a text is a whole object as one without a schema may be. */
int shape_is_object(const char *text, size_t len);
/* Whether markers of calls, which are tokens of their own, may come. */
int shape_marks(const struct shape *s, const struct shape_at *at);

#endif
