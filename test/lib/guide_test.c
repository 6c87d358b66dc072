/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens may come, against each of them tried byte by byte.
 */
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rand.h"
#include "base/utf8.h"
#include "serve/guide.h"

#define WORDS 40

/* Beside all bytes: what reaches over ends and bounds. */
static const char *const words[WORDS] = { "ab", "abc", "abcdefgh", "\":",
	"\": ", "\",", "\"}", "{\"", "{\"a", "{\"a\":", "[[", "]]", "],[",
	"[\"", "\"]", "}}", "}, {", "\\n", "\\u00", "u00e9", "00", "12", "1.5",
	"e-0", "tru", "true", "null", "nul", "l}", " \n", "  ", "\xc3\xa9",
	"zz", "\xa9\"", "x\xe2\x82", "\xac\xc3\xa9", ",\"", "name",
	"\"name\"", "\n{\"name\": \"" };

/* As byte-level vocabularies spell a byte. */
static void spell(struct str *s, unsigned char c)
{
	int plain = (c > 32 && c < 127) || (c > 160 && c != 173);
	unsigned long cp = c;
	char out[4];

	if (!plain)
		cp = 256 + (c <= 32 ? c : c < 161 ? c - 127 + 33UL : 67);
	if (cp == '"' || cp == '\\')
		str_addc(s, '\\');
	str_add(s, out, utf8_put(cp, out));
}

/* A vocabulary without byte `without`; <call> is added, <e> special. */
static struct tok *vocabulary(int without)
{
	struct str s = STR_INIT;
	struct err e = ERR_INIT;
	struct tok *t;
	int id = 0;

	str_adds(&s, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
	for (int c = 0; c < 256 + WORDS; c++) {
		const char *p = c < 256 ? (char[]){ (char)c, 0 } :
				words[c - 256];

		if (c == without)
			continue;
		str_adds(&s, id ? ",\"" : "\"");
		for (size_t i = 0; !i || p[i]; i++)
			spell(&s, (unsigned char)p[i]);
		str_addf(&s, "\":%d", id++);
	}
	str_addf(&s, "}},\"added_tokens\":[{\"id\":%d,\"content\":"
		 "\"<tool_call>\",\"special\":false},{\"id\":%d,\"content\":"
		 "\"<e>\",\"special\":true}],\"pre_tokenizer\":{\"type\":"
		 "\"ByteLevel\",\"add_prefix_space\":false}}", id, id + 1);
	t = tok_parse(s.buf, s.len, &e);
	if (!t)
		print_error("%s\n", e.msg);
	assert_non_null(t);
	str_release(&s);
	return t;
}

struct kit {
	struct tok *t;
	struct words *w;
	int32_t n, eos;
	struct shape *s;
	struct guide *g;
	float *logits;
};

static void begin(struct kit *k, int without, const char *schema, int neos,
		  int eos)
{
	struct fault f = { 0 };
	struct json *j = json_parse(schema, strlen(schema), JSON_MAX_LINE,
				    NULL, NULL);

	k->t = vocabulary(without);
	k->n = tok_count(k->t);
	k->eos = k->n - 1;
	k->w = words_new(k->t, &k->eos, neos);
	k->s = json_type(j) == JSON_ARRAY ? shape_call(j, NULL, 1, &f) :
	       shape_json(j, "x", &f);
	if (!k->s)
		print_error("%s: %s\n", schema, f.text);
	assert_non_null(k->s);
	k->g = guide_new(k->w, k->s, eos);
	k->logits = calloc((size_t)k->n, sizeof *k->logits);
	json_free(j);
}

static void end(struct kit *k)
{
	free(k->logits);
	guide_free(k->g);
	shape_free(k->s);
	words_free(k->w);
	tok_free(k->t);
}

/* Whether a token may come, tried by itself. */
static int may_come(const struct kit *k, const struct shape_at *at,
		    int32_t id, int eos)
{
	struct str s = STR_INIT;
	struct shape_at now;
	size_t i = 0;
	int ok;

	if (id == k->eos)
		return eos && shape_whole(k->s, at);
	if (tok_added(k->t, id) && !shape_marks(k->s, at))
		return 0;
	memcpy(&now, at, sizeof now);
	tok_decode(k->t, &id, 1, 0, &s);
	while (i < s.len && shape_step(k->s, &now, (unsigned char)s.buf[i]))
		i++;
	ok = i == s.len;
	str_release(&s);
	return ok;
}

static int mask(struct kit *k, const struct shape_at *at, struct err *e)
{
	for (int32_t id = 0; id < k->n; id++)
		k->logits[id] = 1;
	return guide_mask(k->g, at, k->logits, k->n, e);
}

/* A token among those that may come; likelier one of several bytes. */
static int32_t choose(const struct kit *k, struct rng *r)
{
	int32_t from = (int32_t)rng_below(r, 2) * 255;
	int32_t id = from + (int32_t)rng_below(r, (uint64_t)(k->n - from));

	while (k->logits[id] < 0)
		id = (id + 1) % k->n;
	return id;
}

static void masks_are_right(void **state)
{
	static const char *const schemas[] = { "{}",
		"{\"minLength\":3,\"maxLength\":7}",
		"{\"items\":{\"minLength\":70,\"maxLength\":75},"
		"\"minItems\":2,\"maxItems\":3}",
		"{\"properties\":{\"name\":{\"type\":\"string\"},\"a\":"
		"{\"items\":{\"type\":[\"integer\",\"null\"]}},\"n\":"
		"{\"type\":\"number\"}},\"required\":[\"a\"]}",
		"[{\"function\":{\"name\":\"ab\"}},{\"function\":{\"name\":"
		"\"abc\",\"strict\":true,\"parameters\":{\"enum\":"
		"[{\"a\":1}]}}}]" };
	struct err e = ERR_INIT;
	struct kit k;
	struct rng r;

	(void)state;
	rng_seeded(&r, 5);
	for (size_t i = 0; i < sizeof schemas / sizeof *schemas * 4; i++) {
		struct shape_at at;

		begin(&k, -1, schemas[i / 4], 1, 1);
		shape_begin(k.s, &at);
		for (int step = 0; step < 150; step++) {
			int32_t id;

			assert_int_equal(mask(&k, &at, &e), 0);
			for (id = 0; id < k.n; id++)
				if ((k.logits[id] > 0) !=
				    may_come(&k, &at, id, 1))
					fail_msg("%s: step %d, token %d",
						 schemas[i / 4], step, id);
			id = choose(&k, &r);
			assert_int_equal(guide_take(k.g, &at, id), 0);
			if (id == k.eos)
				break;
		}
		end(&k);
	}
}

static void take(struct kit *k, struct shape_at *at, const char *text,
		 int last)
{
	for (; *text; text++)
		assert_int_equal(guide_take(k->g, at, (unsigned char)*text),
				 last && !text[1]);
}

/* Behind a whole answer the token that says so comes, and nothing else. */
static void ends_are_drawn(void **state)
{
	struct err e = ERR_INIT;
	struct shape_at at;
	struct kit k;

	(void)state;
	begin(&k, -1, "{\"properties\":{\"a\":{}}}", 1, 1);
	shape_begin(k.s, &at);
	take(&k, &at, "{\"a\":[1]}", 0);
	assert_int_equal(mask(&k, &at, &e), 0);
	for (int32_t id = 0; id < k.n; id++)
		assert_int_equal(k.logits[id] > 0, id == k.eos);
	end(&k);
}

/* Where there is none, or it would be ignored, the answer ends as soon as it
 * may. */
static void without_one_it_ends_by_itself(void **state)
{
	struct shape_at at;
	struct kit k;

	(void)state;
	for (int neos = 0; neos < 2; neos++) {
		begin(&k, -1, "{\"type\":[\"object\",\"integer\"]}", neos,
		      !neos);
		shape_begin(k.s, &at);
		take(&k, &at, "{\"a\":[1]}", 1);
		shape_begin(k.s, &at);
		take(&k, &at, "7", 1);
		end(&k);
	}
}

/* Rather than to draw what does not fit. */
static void where_no_token_may_come_it_fails(void **state)
{
	struct err e = ERR_INIT;
	struct shape_at at;
	struct kit k;

	(void)state;
	begin(&k, 'q', "{\"enum\":[\"q\"]}", 1, 1);
	shape_begin(k.s, &at);
	take(&k, &at, "\"", 0);
	assert_int_equal(mask(&k, &at, &e), -1);
	assert_non_null(strstr(e.msg, "no token"));
	end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(masks_are_right),
		cmocka_unit_test(ends_are_drawn),
		cmocka_unit_test(without_one_it_ends_by_itself),
		cmocka_unit_test(where_no_token_may_come_it_fails),
	};

	return RUN_TESTS(tests);
}
