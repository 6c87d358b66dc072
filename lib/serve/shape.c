/* SPDX-License-Identifier: Apache-2.0
 *
 * Schemas become nodes; each is made once, so that one may contain itself.
 */
#include "serve/shapes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define MOST_NODES 4096
#define MOST_TEXT  ((size_t)4096)
#define MOST_STEPS 16384	/* schemas and references looked at */
#define MOST_DEEP  128
#define MOST_DEFS  1024
#define MOST_HOPS  16
#define MOST_VALUES 1024	/* of an enum, those of other types too */

struct maker {
	struct shape *s;
	const struct json *root;
	const char *param;
	struct fault *f;
	/* Schemas that have nodes; `done` unless it is being made. */
	struct made { const struct json *schema; int node, done; } *made;
	int nmade, any, steps, deep;
};

static int compile(struct maker *m, const struct json *schema);

static int refuse(struct maker *m, const char *what, const char *name)
{
	return fault_set(m->f, 400, "invalid_schema", m->param,
			 "the schema %s: '%.100s'", what, name);
}

static int no_memory(struct maker *m)
{
	return fault_set(m->f, 500, NULL, NULL, "no memory");
}

static int new_node(struct maker *m)
{
	struct shape *s = m->s;
	struct shape_node *p;

	if (s->n == MOST_NODES)
		return refuse(m, "is too large", "schema");
	if (s->n == s->alloc) {
		int alloc = s->alloc ? 2 * s->alloc : 16;

		p = realloc(s->node, (size_t)alloc * sizeof *p);
		if (!p)
			return no_memory(m);
		s->node = p;
		s->alloc = alloc;
	}
	p = &s->node[s->n];
	memset(p, 0, sizeof *p);
	for (int k = 0; k < KINDS; k++)
		p->is[k] = -1;
	p->extra = p->items = -1;
	p->most = UINT32_MAX;
	return s->n++;
}

/* A node of any value; the same for all. */
static int any_node(struct maker *m)
{
	if (m->any < 0 && (m->any = new_node(m)) >= 0) {
		struct shape_node *p = &m->s->node[m->any];

		for (int k = 0; k < KINDS; k++)
			p->is[k] = m->any;
		p->extra = p->items = m->any;
	}
	return m->any;
}

/* Adds a text that the node has as a choice, as JSON; the index, or -1. */
static int add_text(struct maker *m, int node, const char *text, size_t len,
		    int next)
{
	struct shape_node *p = &m->s->node[node];
	struct shape_text *t;

	if (p->ntexts == SHAPE_MOST || len > MOST_TEXT)
		return refuse(m, "has too many or too long values",
			      p->is_enum ? "enum" : "properties");
	t = realloc(p->text, (size_t)(p->ntexts + 1) * sizeof *t);
	if (!t)
		return no_memory(m);
	p->text = t;
	t += p->ntexts;
	t->p = malloc(len + 1);
	if (!t->p)
		return no_memory(m);
	memcpy(t->p, text, len);
	t->p[len] = '\0';
	t->len = len;
	t->node = next;
	return p->ntexts++;
}

static enum shape_kind kind_of(const struct json *j)
{
	switch (json_type(j)) {
	case JSON_OBJECT: return KIND_OBJECT;
	case JSON_ARRAY: return KIND_ARRAY;
	case JSON_STRING: return KIND_STRING;
	case JSON_NUMBER: return KIND_NUMBER;
	case JSON_BOOL: return KIND_BOOL;
	default: return KIND_NULL;
	}
}

/* Whether a number in it may be another one than the schema's text has. */
static int is_rounded(const struct json *value)
{
	if (json_type(value) == JSON_NUMBER)
		return fabs(json_num(value, 0)) >= 0x1p53;
	for (value = json_first(value); value; value = json_next(value))
		if (is_rounded(value))
			return 1;
	return 0;
}

static int add_value(struct maker *m, int node, const struct json *value)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	if (is_rounded(value))
		return refuse(m, "has a number of 2^53 or more", "a value");
	jw_init(&w, &s);
	jw_node(&w, value);
	rc = s.failed ? no_memory(m) : add_text(m, node, s.buf, s.len, -1);
	str_release(&s);
	m->s->node[node].is[kind_of(value)] = node;
	return rc < 0 ? -1 : 0;
}

static const struct {
	const char *name;
	enum shape_kind kind;
} types[] = {
	{ "object", KIND_OBJECT }, { "array", KIND_ARRAY },
	{ "string", KIND_STRING }, { "number", KIND_NUMBER },
	{ "integer", KIND_NUMBER }, { "boolean", KIND_BOOL },
	{ "null", KIND_NULL },
};

#define NTYPES (sizeof types / sizeof *types)

/* The row of a type; -1 with a fault. */
static int find_type(struct maker *m, const struct json *type)
{
	const char *name = json_str(type, "");

	for (size_t i = 0; i < NTYPES; i++)
		if (!strcmp(types[i].name, name))
			return (int)i;
	return refuse(m, "has an unknown type", name);
}

/* Whether a value is of a type: 1, 0, or -1 with a fault. */
static int is_of(struct maker *m, const struct json *type,
		 const struct json *value)
{
	double x = json_num(value, 0);
	int row = find_type(m, type);

	if (row < 0)
		return -1;
	return types[row].kind == kind_of(value) &&
	       (strcmp(types[row].name, "integer") || !(x - floor(x) > 0));
}

static int is_allowed(struct maker *m, const struct json *type,
		      const struct json *value)
{
	int rc = 0;

	if (!type)
		return 1;
	if (json_type(type) != JSON_ARRAY)
		return is_of(m, type, value);
	for (type = json_first(type); type && !rc; type = json_next(type))
		rc = is_of(m, type, value);
	return rc;
}

static int read_enum(struct maker *m, int node, const struct json *schema)
{
	const struct json *list = json_get(schema, "enum");
	const struct json *one = json_get(schema, "const"), *j;
	const struct json *type = json_get(schema, "type");
	int rc;

	m->s->node[node].is_enum = 1;
	if (list && one)
		return refuse(m, "has both", "enum and const");
	if (list && json_type(list) != JSON_ARRAY)
		return refuse(m, "needs a list of values", "enum");
	/* Values of other types are passed over, types may be many. */
	if (list && json_len(list) > MOST_VALUES)
		return refuse(m, "has too many values", "enum");
	if (json_type(type) == JSON_ARRAY && json_len(type) > NTYPES)
		return refuse(m, "has a type more than once", "type");
	for (j = list ? json_first(list) : one; j;
	     j = list ? json_next(j) : NULL) {
		rc = is_allowed(m, type, j);
		if (rc < 0 || (rc && add_value(m, node, j)))
			return -1;
	}
	if (!m->s->node[node].ntexts)
		return refuse(m, "has no value, or none of its type",
			      list ? "enum" : "const");
	return 0;
}

static int read_count(struct maker *m, const struct json *schema,
		      const char *name, uint32_t *out)
{
	const struct json *j = json_get(schema, name);
	int64_t n = json_int(j, -1);

	if (!j)
		return 0;
	if (json_type(j) != JSON_NUMBER || n < 0 || n > 1000000000)
		return refuse(m, "needs a number", name);
	*out = (uint32_t)n;
	return 0;
}

static int read_counts(struct maker *m, int node, const struct json *schema,
		       const char *least, const char *most)
{
	uint32_t lo = 0, hi = UINT32_MAX;

	if (read_count(m, schema, least, &lo) ||
	    read_count(m, schema, most, &hi))
		return -1;
	if (lo > hi)
		return refuse(m, "allows nothing", most);
	m->s->node[node].least = lo;
	m->s->node[node].most = hi;
	return 0;
}

static int read_required(struct maker *m, int node, const struct json *schema)
{
	const struct json *list = json_get(schema, "required");
	struct shape_node *p = &m->s->node[node];
	struct str key = STR_INIT;
	struct jw w;
	int k = 0;

	if (list && (json_type(list) != JSON_ARRAY ||
		     json_len(list) > SHAPE_MOST))
		return refuse(m, "needs a list, and no longer one than there "
			      "may be properties", "required");
	for (list = json_first(list); list; list = json_next(list)) {
		str_reset(&key);
		jw_init(&w, &key);
		jw_node(&w, list);
		for (k = 0; k < p->ntexts; k++)
			if (p->text[k].len == key.len &&
			    !memcmp(p->text[k].p, key.buf, key.len))
				break;
		if (k == p->ntexts) {
			refuse(m, "requires what is no property",
			       json_str(list, "required"));
			break;
		}
		p->required |= (uint64_t)1 << k;
	}
	str_release(&key);
	return list ? -1 : 0;
}

static int read_object(struct maker *m, int node, const struct json *schema)
{
	const struct json *list = json_get(schema, "properties");
	const struct json *extra = json_get(schema, "additionalProperties");
	int next = -1, rc = 0;

	if (list && json_type(list) != JSON_OBJECT)
		return refuse(m, "needs an object", "properties");
	for (const struct json *j = json_first(list); j && !rc;
	     j = json_next(j)) {
		struct str key = STR_INIT;
		struct jw w;

		jw_init(&w, &key);
		jw_str(&w, json_key(j));
		next = compile(m, j);
		if (next < 0 || key.failed ||
		    add_text(m, node, key.buf, key.len, next) < 0)
			rc = -1;
		str_release(&key);
	}
	if (rc || read_required(m, node, schema))
		return -1;
	/* With properties, only those. */
	if (json_len(list) || (json_type(extra) == JSON_BOOL &&
			       !json_bool(extra, 1)))
		return 0;
	next = extra ? compile(m, extra) : any_node(m);
	m->s->node[node].extra = next;
	return next < 0 ? -1 : 0;
}

static int read_array(struct maker *m, int node, const struct json *schema)
{
	const struct json *items = json_get(schema, "items");
	int next = items ? compile(m, items) : any_node(m);

	m->s->node[node].items = next;
	return next < 0 ? -1 :
	       read_counts(m, node, schema, "minItems", "maxItems");
}

/* A value of one type gets a node of its own, which `node` leads to. */
static int add_type(struct maker *m, int node, enum shape_kind kind,
		    int whole, const struct json *schema)
{
	int own = new_node(m);

	if (own < 0)
		return -1;
	/* Both kinds of number: the wider. */
	m->s->node[own].whole = whole &&
				m->s->node[node].is[KIND_NUMBER] < 0;
	m->s->node[own].is[kind] = own;
	m->s->node[node].is[kind] = own;
	if (kind == KIND_OBJECT)
		return read_object(m, own, schema);
	if (kind == KIND_ARRAY)
		return read_array(m, own, schema);
	return kind == KIND_STRING ?
	       read_counts(m, own, schema, "minLength", "maxLength") : 0;
}

static int read_type(struct maker *m, int node, const struct json *type,
		     const struct json *schema)
{
	int row = find_type(m, type);

	return row < 0 ? -1 : add_type(m, node, types[row].kind,
				       !strcmp(types[row].name, "integer"),
				       schema);
}

static int read_types(struct maker *m, int node, const struct json *schema)
{
	const struct json *type = json_get(schema, "type");

	if (json_type(type) == JSON_STRING)
		return read_type(m, node, type, schema);
	if (json_type(type) != JSON_ARRAY || !json_len(type))
		return refuse(m, "needs a type", "type");
	for (type = json_first(type); type; type = json_next(type))
		if (read_type(m, node, type, schema))
			return -1;
	return 0;
}

/* Whether it is known of what types a node's values are: of one that is being
 * made, unless its schema may name several. */
static int is_known(const struct maker *m, int node)
{
	for (int i = 0; i < m->nmade; i++) {
		const struct json *s = m->made[i].schema;

		if (m->made[i].node == node)
			return m->made[i].done ||
			       !(json_type(json_get(s, "type")) == JSON_ARRAY ||
				 json_get(s, "anyOf") || json_get(s, "oneOf"));
	}
	return 1;
}

/* Alternatives of which the first byte says which it is. */
static int read_either(struct maker *m, int node, const struct json *list,
		       const char *name)
{
	if (json_type(list) != JSON_ARRAY || !json_len(list))
		return refuse(m, "needs a list", name);
	for (const struct json *j = json_first(list); j; j = json_next(j)) {
		int one = compile(m, j);

		if (one < 0)
			return -1;
		if (!is_known(m, one))
			return refuse(m, "has itself as an alternative", name);
		for (int k = 0; k < KINDS; k++) {
			int is = m->s->node[one].is[k];

			if (is >= 0 && m->s->node[node].is[k] >= 0)
				return refuse(m, "has alternatives of one "
					      "type", name);
			if (is >= 0)
				m->s->node[node].is[k] = is;
		}
	}
	return 0;
}

static const struct json *find_ref(struct maker *m, const char *ref)
{
	static const char *const where[] = { "$defs", "definitions" };
	char start[32];

	if (!strcmp(ref, "#"))
		return m->root;
	for (int i = 0; i < 2; i++) {
		size_t n = strlen(where[i]) + 3;

		strcpy(start, "#/");
		strcat(start, where[i]);
		strcat(start, "/");
		if (!strncmp(ref, start, n))
			return json_get(json_get(m->root, where[i]), ref + n);
	}
	return NULL;
}

/* What a keyword speaks of. */
enum { OF_OBJECT = 1, OF_ARRAY = 2, OF_STRING = 4, OF_TYPE = 8, OF_VALUES = 16,
       OF_EITHER = 32, OF_REF = 64, OF_NOTHING = 128 };

/* 0: the keyword is not known. */
static int speaks_of(const char *word)
{
	static const struct { const char *name; int of; } known[] = {
		{ "type", OF_TYPE }, { "enum", OF_VALUES },
		{ "const", OF_VALUES }, { "properties", OF_OBJECT },
		{ "required", OF_OBJECT },
		{ "additionalProperties", OF_OBJECT }, { "items", OF_ARRAY },
		{ "minItems", OF_ARRAY }, { "maxItems", OF_ARRAY },
		{ "minLength", OF_STRING }, { "maxLength", OF_STRING },
		{ "anyOf", OF_EITHER }, { "oneOf", OF_EITHER },
		{ "$ref", OF_REF }, { "$defs", OF_NOTHING },
		{ "definitions", OF_NOTHING }, { "title", OF_NOTHING },
		{ "description", OF_NOTHING }, { "default", OF_NOTHING },
		{ "examples", OF_NOTHING }, { "example", OF_NOTHING },
		{ "$schema", OF_NOTHING }, { "$id", OF_NOTHING },
		{ "$comment", OF_NOTHING }, { "deprecated", OF_NOTHING },
		{ "readOnly", OF_NOTHING }, { "writeOnly", OF_NOTHING },
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(known[i].name, word))
			return known[i].of;
	return 0;
}

/* What a schema's keywords speak of; -1 with a fault about one that is not
 * known. */
static int all_it_speaks_of(struct maker *m, const struct json *schema)
{
	int all = 0;

	for (const struct json *j = json_first(schema); j; j = json_next(j)) {
		int of = speaks_of(json_key(j));

		if (!of)
			return refuse(m, "has a keyword that is not supported",
				      json_key(j));
		all |= of;
	}
	return all;
}

/* Refuses a keyword that speaks of something else. */
static int only(struct maker *m, const struct json *schema, int of,
		const char *why)
{
	for (const struct json *j = json_first(schema); j; j = json_next(j))
		if (!(speaks_of(json_key(j)) & (of | OF_NOTHING)))
			return refuse(m, why, json_key(j));
	return 0;
}

/* A schema without a type: that which all of its keywords are for. */
static int read_untyped(struct maker *m, int node, int of,
			const struct json *schema)
{
	switch (of & ~OF_NOTHING) {
	case OF_OBJECT: return add_type(m, node, KIND_OBJECT, 0, schema);
	case OF_ARRAY: return add_type(m, node, KIND_ARRAY, 0, schema);
	case OF_STRING: return add_type(m, node, KIND_STRING, 0, schema);
	case 0: break;
	default: return refuse(m, "has keywords of several types and needs",
			       "type");
	}
	for (int k = 0, to = any_node(m); k < KINDS; k++)
		m->s->node[node].is[k] = to;
	return m->any < 0 ? -1 : 0;
}

static int fill_node(struct maker *m, int node, const struct json *schema)
{
	const struct json *any = json_get(schema, "anyOf");
	const struct json *one = json_get(schema, "oneOf");
	int of = all_it_speaks_of(m, schema);

	if (of < 0)
		return -1;
	if (any && one)
		return refuse(m, "has both", "anyOf and oneOf");
	if (any || one)
		return only(m, schema, OF_EITHER, "has beside its "
			    "alternatives what is not supported there") ? -1 :
		       read_either(m, node, any ? any : one,
				   any ? "anyOf" : "oneOf");
	if (of & OF_VALUES)
		return only(m, schema, OF_VALUES | OF_TYPE, "has beside its "
			    "values what is not supported there") ? -1 :
		       read_enum(m, node, schema);
	return of & OF_TYPE ? read_types(m, node, schema) :
	       read_untyped(m, node, of, schema);
}

static int begin_made(struct maker *m, const struct json *schema, int node)
{
	struct made *p = realloc(m->made,
				 (size_t)(m->nmade + 1) * sizeof *p);

	if (!p)
		return no_memory(m);
	m->made = p;
	p[m->nmade++] = (struct made){ schema, node, 0 };
	return m->nmade - 1;
}

static int too_large(struct maker *m)
{
	return refuse(m, "is too large or too deep", "schema");
}

/* The schema that a chain of references ends at; NULL with a fault. */
static const struct json *resolve(struct maker *m, const struct json *schema)
{
	const char *ref = json_get_str(schema, "$ref", NULL);

	for (int hops = 0; ref; hops++) {
		if (all_it_speaks_of(m, schema) < 0 ||
		    only(m, schema, OF_REF, "has beside a $ref what is not "
			 "supported there"))
			return NULL;
		schema = hops < MOST_HOPS ? find_ref(m, ref) : NULL;
		m->steps++;
		if (!schema) {
			refuse(m, "refers to what is not there", ref);
			return NULL;
		}
		ref = json_get_str(schema, "$ref", NULL);
	}
	return schema;
}

static int make(struct maker *m, const struct json *schema)
{
	int node, at, rc;

	for (int i = 0; i < m->nmade; i++)
		if (m->made[i].schema == schema)
			return m->made[i].node;
	node = new_node(m);
	if (node < 0 || (at = begin_made(m, schema, node)) < 0)
		return -1;
	rc = fill_node(m, node, schema);
	m->made[at].done = 1;
	return rc ? -1 : node;
}

/* The node of a schema, or -1. */
static int compile(struct maker *m, const struct json *schema)
{
	int node;

	if (++m->steps > MOST_STEPS || m->deep == MOST_DEEP)
		return too_large(m);
	schema = resolve(m, schema);
	if (!schema)
		return -1;
	if (json_type(schema) == JSON_BOOL && json_bool(schema, 0))
		return any_node(m);
	if (json_type(schema) != JSON_OBJECT)
		return refuse(m, "is none", json_key(schema) ?
			      json_key(schema) : "schema");
	m->deep++;
	node = make(m, schema);
	m->deep--;
	return node;
}

/* The node of a schema that references are looked up in. */
static int compile_root(struct maker *m, const struct json *schema)
{
	if (json_len(json_get(schema, "$defs")) > MOST_DEFS ||
	    json_len(json_get(schema, "definitions")) > MOST_DEFS)
		return too_large(m);
	m->root = schema;
	return compile(m, schema);
}

static struct shape *finish(struct maker *m, int root)
{
	free(m->made);
	m->s->root = root;
	if (root >= 0 && shape_needs(m->s) <= SHAPE_DEPTH)
		return m->s;
	if (root >= 0)
		refuse(m, "has no value that ends within a depth of 32",
		       "schema");
	shape_free(m->s);
	return NULL;
}

static int start(struct maker *m, const char *param, struct fault *f)
{
	*m = (struct maker){ .param = param, .f = f, .any = -1 };
	m->s = calloc(1, sizeof *m->s);
	return m->s ? 0 : no_memory(m);
}

/* A node of objects with any members. */
static int free_object(struct maker *m)
{
	int node = new_node(m), any = any_node(m);

	if (node < 0 || any < 0)
		return -1;
	m->s->node[node].is[KIND_OBJECT] = node;
	m->s->node[node].extra = any;
	return node;
}

struct shape *shape_json(const struct json *schema, const char *param,
			 struct fault *f)
{
	struct maker m;

	if (start(&m, param, f))
		return NULL;
	return finish(&m, schema ? compile_root(&m, schema) :
		      free_object(&m));
}

/* A node of objects, whatever else the schema allows. */
static int arguments_of(struct maker *m, const struct json *function)
{
	const struct json *schema = json_get(function, "parameters");
	int node, is, own;

	if (!json_get_bool(function, "strict", 0) ||
	    json_type(schema) != JSON_OBJECT)
		return free_object(m);
	node = compile_root(m, schema);
	if (node < 0)
		return -1;
	is = m->s->node[node].is[KIND_OBJECT];
	if (is < 0)
		return refuse(m, "is no object", "parameters");
	own = new_node(m);
	if (own >= 0)
		m->s->node[own].is[KIND_OBJECT] = is;
	return own;
}

static int add_call(struct maker *m, int node, const struct json *function,
		    int markers)
{
	const char *name = json_get_str(function, "name", "");
	struct str head = STR_INIT;
	int next = arguments_of(m, function), rc = -1;
	struct jw w;

	str_adds(&head, markers ? "<tool_call>\n{\"name\": " : "{\"name\": ");
	jw_init(&w, &head);
	jw_str(&w, name);
	str_adds(&head, markers ? ", \"arguments\": " : ", \"parameters\": ");
	if (next >= 0 && !head.failed)
		rc = add_text(m, node, head.buf, head.len, next);
	str_release(&head);
	return rc < 0 ? -1 : 0;
}

struct shape *shape_call(const struct json *tools, const char *name,
			 int markers, struct fault *f)
{
	struct maker m;
	int node, rc = 0;

	if (start(&m, "tools", f))
		return NULL;
	m.s->tail = markers ? "}\n</tool_call>" : "}";
	node = new_node(&m);
	if (!name && json_len(tools) > SHAPE_MOST)
		rc = fault_set(f, 400, "invalid_value", "tools", "a call can "
			       "be forced among at most %d tools", SHAPE_MOST);
	for (const struct json *j = json_first(tools); j && node >= 0 && !rc;
	     j = json_next(j)) {
		const struct json *function = json_get(j, "function");

		if (!name || !strcmp(json_get_str(function, "name", ""), name))
			rc = add_call(&m, node, function, markers);
	}
	if (!rc && node >= 0 && !m.s->node[node].ntexts)
		rc = fault_set(f, 400, "invalid_value", "tool_choice",
			       "there is no tool '%.64s'", name ? name : "");
	return finish(&m, rc ? -1 : node);
}

void shape_free(struct shape *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->n; i++) {
		for (int k = 0; k < s->node[i].ntexts; k++)
			free(s->node[i].text[k].p);
		free(s->node[i].text);
	}
	free(s->node);
	free(s);
}
