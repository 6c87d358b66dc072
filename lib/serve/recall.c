/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/recall.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nn/keep.h"

#define MOST_BYTES  ((size_t)128 << 20)
#define LONG_TEXT   1024	/* bytes whose sum is looked up, not computed */
#define LONG_BYTES  ((size_t)32 << 20)

struct recall {
	pthread_mutex_t lock;
	struct keep *keep;		/* the replica is the tag */
	struct keep *sums;		/* SHA-256 of long texts */
};

struct recall *recall_new(void)
{
	struct recall *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	pthread_mutex_init(&r->lock, NULL);
	r->keep = keep_new(MOST_BYTES);
	r->sums = keep_new(LONG_BYTES);
	if (r->keep && r->sums)
		return r;
	recall_free(r);
	return NULL;
}

void recall_free(struct recall *r)
{
	if (!r)
		return;
	keep_free(r->keep);
	keep_free(r->sums);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* A conversation that is being read. */
struct reading {
	struct recall *r;
	struct hash *h;
};

/* What was said before is said again at every turn. */
static void find_sum(struct recall *r, const char *s, size_t len,
		     uint8_t sum[HASH_LEN])
{
	struct tok_ids kept = TOK_IDS_INIT;
	int32_t words[HASH_LEN / sizeof(int32_t)];

	pthread_mutex_lock(&r->lock);
	keep_get(r->sums, s, len, &kept, NULL);
	pthread_mutex_unlock(&r->lock);
	if (kept.n * sizeof *kept.id == HASH_LEN) {
		memcpy(sum, kept.id, HASH_LEN);
	} else {
		sha256(s, len, sum);
		memcpy(words, sum, HASH_LEN);
		pthread_mutex_lock(&r->lock);
		keep_put(r->sums, s, len, words, sizeof words / sizeof *words,
			 0);
		pthread_mutex_unlock(&r->lock);
	}
	tok_ids_release(&kept);
}

/* Texts go in by their sums. */
static void add_part(const struct reading *x, const char *s, size_t len)
{
	uint8_t sum[HASH_LEN];

	if (len >= LONG_TEXT)
		find_sum(x->r, s, len, sum);
	else
		sha256(s, len, sum);
	hash_add(x->h, sum, sizeof sum);
}

static void add_text(const struct reading *x, const char *s)
{
	add_part(x, s, strlen(s));
}

/* -1: no memory. */
static int add_node(const struct reading *x, const struct json *j)
{
	struct str text = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &text);
	jw_node(&w, j);
	rc = text.failed ? -1 : 0;
	add_part(x, text.buf ? text.buf : "", text.len);
	str_release(&text);
	return rc;
}

/* White space at the end is not told apart: clients strip it. */
static int add_content(const struct reading *x, const struct json *j)
{
	const char *s = json_str(j, "");
	size_t n = strlen(s);

	if (json_type(j) == JSON_ARRAY)
		return add_node(x, j);
	while (n && strchr(" \t\r\n", s[n - 1]))
		n--;
	add_part(x, s, n);
	return 0;
}

/* Names and arguments: clients may give them other ids. */
static int add_calls(const struct reading *x, const struct json *calls)
{
	const struct json *c = json_first(calls);
	size_t n = json_len(calls);
	int rc = 0;

	hash_add(x->h, &n, sizeof n);
	for (; c && !rc; c = json_next(c)) {
		const struct json *f = json_get(c, "function");

		add_text(x, json_get_str(f, "name", ""));
		rc = add_node(x, json_get(f, "arguments"));
	}
	return rc;
}

/* A member that every answer of ours has, or is known by what it says. */
static int is_own(const struct json *j)
{
	static const char *const known[] = { "role", "content", "refusal",
		"tool_calls" };

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(json_key(j), known[i]))
			return 1;
	return 0;
}

static int add_answer(const struct reading *x, const struct json *message)
{
	const struct json *j;

	add_text(x, "assistant");
	if (add_content(x, json_get(message, "content")) ||
	    add_calls(x, json_get(message, "tool_calls")))
		return -1;
	for (j = json_first(message); j; j = json_next(j)) {
		if (is_own(j) || json_type(j) == JSON_NULL)
			continue;
		add_text(x, json_key(j));
		if (add_node(x, j))
			return -1;
	}
	return 0;
}

int recall_begin(struct recall *r, struct recall_key *k,
		 const struct json *tools)
{
	const struct reading x = { r, hash_new() };
	int rc;

	if (!x.h)
		return -1;
	rc = tools ? add_node(&x, tools) : 0;
	hash_end(x.h, k->sum);
	return rc;
}

int recall_add(struct recall *r, struct recall_key *k,
	       const struct json *message)
{
	const struct reading x = { r, hash_new() };
	int rc;

	if (!x.h)
		return -1;
	hash_add(x.h, k->sum, sizeof k->sum);
	rc = strcmp(json_get_str(message, "role", ""), "assistant") ?
	     add_node(&x, message) : add_answer(&x, message);
	hash_end(x.h, k->sum);
	return rc;
}

void recall_put(struct recall *r, const struct recall_key *k,
		const struct tok_ids *prompt, const int32_t *answer, int n,
		int home)
{
	struct tok_ids all = TOK_IDS_INIT;

	if (!tok_ids_join(&all, prompt->id, prompt->n) &&
	    !tok_ids_join(&all, answer, (size_t)n)) {
		pthread_mutex_lock(&r->lock);
		keep_put(r->keep, k->sum, sizeof k->sum, all.id, all.n, home);
		pthread_mutex_unlock(&r->lock);
	}
	tok_ids_release(&all);
}

int recall_get(struct recall *r, const struct recall_key *k,
	       struct tok_ids *out, int *home)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = keep_get(r->keep, k->sum, sizeof k->sum, out, home);
	pthread_mutex_unlock(&r->lock);
	return rc > 0;
}
