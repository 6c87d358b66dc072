/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON wall.  No other file includes cJSON; a struct json is one of its
 * nodes.
 */
#include "rec/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "rec/scan.h"

static const cJSON *node(const struct json *j)
{
	return (const cJSON *)(const void *)j;
}

static const struct json *wrap(const cJSON *c)
{
	return (const struct json *)(const void *)c;
}

int json_check(const char *text, size_t len, size_t max_len, size_t *at,
	       struct err *e)
{
	size_t where = max_len + 1;

	if (len > max_len)
		err_set(e, CA_DATAERR, "longer than %zu bytes", max_len);
	else if (scan_json(text, len, NULL, NULL, &where, e) == 0)
		return 0;
	if (at)
		*at = where;
	return err_wrap(e, "byte %zu", where);
}

struct json *json_build(const char *text, size_t len, struct err *e)
{
	cJSON *c = cJSON_ParseWithLengthOpts(text, len, NULL, 0);

	if (!c)
		err_set(e, CA_SOFTWARE, "no memory for a JSON tree");
	return (struct json *)(void *)c;
}

struct json *json_parse(const char *text, size_t len, size_t max_len,
			size_t *at, struct err *e)
{
	if (json_check(text, len, max_len, at, e))
		return NULL;
	return json_build(text, len, e);
}

void json_free(struct json *j)
{
	cJSON_Delete((cJSON *)(void *)j);
}

enum json_type json_type(const struct json *j)
{
	if (!j)
		return JSON_NONE;
	switch (node(j)->type & 0xff) {
	case cJSON_NULL:
		return JSON_NULL;
	case cJSON_False:
	case cJSON_True:
		return JSON_BOOL;
	case cJSON_Number:
		return JSON_NUMBER;
	case cJSON_String:
		return JSON_STRING;
	case cJSON_Array:
		return JSON_ARRAY;
	case cJSON_Object:
		return JSON_OBJECT;
	default:
		return JSON_NONE;
	}
}

static const struct json *find(const struct json *obj, const char *key,
			       size_t len)
{
	const cJSON *c;

	if (json_type(obj) != JSON_OBJECT)
		return NULL;
	for (c = node(obj)->child; c; c = c->next)
		if (strncmp(c->string, key, len) == 0 && !c->string[len])
			return wrap(c);
	return NULL;
}

const struct json *json_get(const struct json *obj, const char *key)
{
	return find(obj, key, strlen(key));
}

const struct json *json_path(const struct json *obj, const char *dotted)
{
	for (;;) {
		size_t n = strcspn(dotted, ".");

		obj = find(obj, dotted, n);
		if (!obj || !dotted[n])
			return obj;
		dotted += n + 1;
	}
}

size_t json_len(const struct json *j)
{
	const struct json *m;
	size_t n = 0;

	for (m = json_first(j); m; m = json_next(m))
		n++;
	return n;
}

const struct json *json_first(const struct json *j)
{
	enum json_type t = json_type(j);

	return t == JSON_ARRAY || t == JSON_OBJECT ? wrap(node(j)->child) :
						     NULL;
}

const struct json *json_next(const struct json *j)
{
	return j ? wrap(node(j)->next) : NULL;
}

const char *json_key(const struct json *member)
{
	return member ? node(member)->string : NULL;
}

const char *json_str(const struct json *j, const char *dflt)
{
	return json_type(j) == JSON_STRING ? node(j)->valuestring : dflt;
}

double json_num(const struct json *j, double dflt)
{
	return json_type(j) == JSON_NUMBER ? node(j)->valuedouble : dflt;
}

int64_t json_int(const struct json *j, int64_t dflt)
{
	double v = json_num(j, NAN);

	if (!(fabs(v) <= 0x1p53) || v != trunc(v))
		return dflt;
	return (int64_t)v;
}

int json_bool(const struct json *j, int dflt)
{
	if (json_type(j) != JSON_BOOL)
		return dflt;
	return (node(j)->type & 0xff) == cJSON_True;
}

int json_u64(const struct json *j, uint64_t *out)
{
	const char *s = json_str(j, "");
	char *end;
	uintmax_t v;

	if (*s < '0' || *s > '9')
		return -1;
	errno = 0;
	v = strtoumax(s, &end, 10);
	if (errno || *end || v > UINT64_MAX)
		return -1;
	*out = v;
	return 0;
}

static int sextet(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int json_b64(const struct json *j, void *out, size_t len)
{
	const char *s = json_str(j, NULL);
	unsigned char *to = out;

	if (!s || strlen(s) % 4 || strlen(s) / 4 != (len + 2) / 3)
		return -1;
	for (size_t i = 0; i < len; i += 3, s += 4) {
		size_t n = len - i < 3 ? len - i : 3;
		int a = sextet(s[0]), b = sextet(s[1]);
		int c = n > 1 ? sextet(s[2]) : s[2] == '=' ? 0 : -1;
		int d = n > 2 ? sextet(s[3]) : s[3] == '=' ? 0 : -1;
		unsigned v = (unsigned)a << 18 | (unsigned)b << 12 |
			     (unsigned)c << 6 | (unsigned)d;

		/* What is not used of the last digit has to be 0. */
		if (a < 0 || b < 0 || c < 0 || d < 0 ||
		    (n < 3 && v & (n == 1 ? 0xffffu : 0xffu)))
			return -1;
		for (size_t k = 0; k < n; k++)
			to[i + k] = (unsigned char)(v >> (16 - 8 * k));
	}
	return 0;
}

const char *json_get_str(const struct json *obj, const char *k, const char *d)
{
	return json_str(json_get(obj, k), d);
}

double json_get_num(const struct json *obj, const char *k, double d)
{
	return json_num(json_get(obj, k), d);
}

int64_t json_get_int(const struct json *obj, const char *k, int64_t d)
{
	return json_int(json_get(obj, k), d);
}

int json_get_bool(const struct json *obj, const char *k, int d)
{
	return json_bool(json_get(obj, k), d);
}
