/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON wall: the only door to cJSON.  Text is checked by a strict scanner
 * of our own first (UTF-8, control characters, NUL and \u0000, lone
 * surrogates, duplicate keys, trailing bytes, depth, length, numbers as RFC
 * 8259 has them, finite as doubles and of at most 63 characters); then cJSON
 * builds the tree.
 */
#ifndef CA_REC_JSON_H
#define CA_REC_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define JSON_MAX_LINE ((size_t)16 << 20)
#define JSON_MAX_FILE ((size_t)64 << 20)
#define JSON_MAX_DEPTH 128

struct json;			/* a node; opaque */

/*
 * Parses exactly one value.  CA_DATAERR with "byte N: what" on bad text, N
 * counted from 1 and also stored in *at when at is not NULL.
 */
struct json *json_parse(const char *text, size_t len, size_t max_len,
			size_t *at, struct err *e);
void json_free(struct json *j);

/* The tree of text that a check has accepted already; NULL only when memory
 * is short. */
struct json *json_build(const char *text, size_t len, struct err *e);

/* Only the check, no tree. */
int json_check(const char *text, size_t len, size_t max_len, size_t *at,
	       struct err *e);

enum json_type { JSON_NONE, JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING,
		 JSON_ARRAY, JSON_OBJECT };

/* All accessors take NULL nodes and then answer JSON_NONE, NULL or the
 * default, so that chains need one check at the end.  Keys are case
 * sensitive. */
enum json_type json_type(const struct json *j);
const struct json *json_get(const struct json *obj, const char *key);
const struct json *json_path(const struct json *obj, const char *dotted);
size_t json_len(const struct json *j);		/* array or object members */
const struct json *json_first(const struct json *j);	/* iteration */
const struct json *json_next(const struct json *j);
const char *json_key(const struct json *member); /* of an object's one */
const char *json_str(const struct json *j, const char *dflt);
double json_num(const struct json *j, double dflt);
/* Exact: dflt when not an integer or beyond +-2^53. */
int64_t json_int(const struct json *j, int64_t dflt);
int json_bool(const struct json *j, int dflt);

/* A decimal uint64 in a string (ids, seeds, nanoseconds).  0 or -1. */
int json_u64(const struct json *j, uint64_t *out);

/* Decodes a string of base64 that holds exactly len bytes.  0 or -1. */
int json_b64(const struct json *j, void *out, size_t len);

/* Convenience: json_str(json_get(obj, key), dflt) and friends. */
const char *json_get_str(const struct json *obj, const char *k, const char *d);
double json_get_num(const struct json *obj, const char *k, double d);
int64_t json_get_int(const struct json *obj, const char *k, int64_t d);
int json_get_bool(const struct json *obj, const char *k, int d);

/*
 * Writing.  Calls are matched by hand; a misuse or a full buffer sets
 * out->failed.  Doubles are printed with %.15g, %.16g or %.17g, the first that
 * reads back, non-finite ones as null.  jw_str escapes and requires valid
 * UTF-8 (other bytes and NUL become U+FFFD; jw_b64 is for raw bytes).
 */
struct jw {
	struct str *out;
	int comma;
};
void jw_init(struct jw *w, struct str *out);
void jw_obj(struct jw *w);
void jw_arr(struct jw *w);
void jw_end_obj(struct jw *w);
void jw_end_arr(struct jw *w);
void jw_key(struct jw *w, const char *key);
void jw_str(struct jw *w, const char *s);
void jw_strn(struct jw *w, const char *s, size_t len);
void jw_int(struct jw *w, int64_t v);
void jw_u64(struct jw *w, uint64_t v);		/* as a string */
void jw_num(struct jw *w, double v);
void jw_bool(struct jw *w, int v);
void jw_null(struct jw *w);
void jw_b64(struct jw *w, const void *p, size_t len);
void jw_raw(struct jw *w, const char *json, size_t len);	/* one value */
void jw_node(struct jw *w, const struct json *j);	/* prints a tree */
/* key and value at once */
void jw_kstr(struct jw *w, const char *k, const char *v);  /* NULL: null */
void jw_kint(struct jw *w, const char *k, int64_t v);
void jw_ku64(struct jw *w, const char *k, uint64_t v);
void jw_knum(struct jw *w, const char *k, double v);
void jw_kbool(struct jw *w, const char *k, int v);

/*
 * Appends the canonical form of valid JSON text: no white space, members
 * sorted by the bytes of their unescaped keys, strings with the shortest
 * escapes, number tokens as they stand.  Two texts that mean the same differ
 * at most in how numbers are spelt.
 */
int json_canon(const char *text, size_t len, struct str *out, struct err *e);

/* The same of an object without its member `key`. */
int json_canon_without(const char *text, size_t len, const char *key,
		       struct str *out, struct err *e);

#endif
