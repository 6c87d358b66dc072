/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/recall.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nn/keep.h"

#define MOST_BYTES ((size_t)128 << 20)

struct recall {
	pthread_mutex_t lock;
	struct keep *keep;		/* the replica is the tag */
};

struct recall *recall_new(void)
{
	struct recall *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	pthread_mutex_init(&r->lock, NULL);
	r->keep = keep_new(MOST_BYTES);
	if (r->keep)
		return r;
	recall_free(r);
	return NULL;
}

void recall_free(struct recall *r)
{
	if (!r)
		return;
	keep_free(r->keep);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

static void add_text(struct hash *h, const char *s)
{
	hash_part(h, s, strlen(s));
}

/* -1: no memory. */
static int add_node(struct hash *h, const struct json *j)
{
	struct str text = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &text);
	jw_node(&w, j);
	rc = text.failed ? -1 : 0;
	hash_part(h, text.buf ? text.buf : "", text.len);
	str_release(&text);
	return rc;
}

/* White space at the end is not told apart: clients strip it. */
static int add_content(struct hash *h, const struct json *j)
{
	const char *s = json_str(j, "");
	size_t n = strlen(s);

	if (json_type(j) == JSON_ARRAY)
		return add_node(h, j);
	while (n && strchr(" \t\r\n", s[n - 1]))
		n--;
	hash_part(h, s, n);
	return 0;
}

/* Names and arguments: clients may give them other ids. */
static int add_calls(struct hash *h, const struct json *calls)
{
	const struct json *c = json_first(calls);
	size_t n = json_len(calls);
	int rc = 0;

	hash_part(h, &n, sizeof n);
	for (; c && !rc; c = json_next(c)) {
		const struct json *f = json_get(c, "function");

		add_text(h, json_get_str(f, "name", ""));
		rc = add_node(h, json_get(f, "arguments"));
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

static int add_answer(struct hash *h, const struct json *message)
{
	const struct json *j;

	add_text(h, "assistant");
	if (add_content(h, json_get(message, "content")) ||
	    add_calls(h, json_get(message, "tool_calls")))
		return -1;
	for (j = json_first(message); j; j = json_next(j)) {
		if (is_own(j) || json_type(j) == JSON_NULL)
			continue;
		add_text(h, json_key(j));
		if (add_node(h, j))
			return -1;
	}
	return 0;
}

static int end(struct hash *h, struct recall_key *k)
{
	hash_end(h, k->sum);
	return 0;
}

int recall_begin(struct recall_key *k, const struct json *tools)
{
	struct hash *h = hash_new();
	int rc;

	if (!h)
		return -1;
	rc = tools ? add_node(h, tools) : 0;
	return end(h, k) || rc ? -1 : 0;
}

int recall_add(struct recall_key *k, const struct json *message)
{
	struct hash *h = hash_new();
	int rc;

	if (!h)
		return -1;
	hash_part(h, k->sum, sizeof k->sum);
	rc = strcmp(json_get_str(message, "role", ""), "assistant") ?
	     add_node(h, message) : add_answer(h, message);
	return end(h, k) || rc ? -1 : 0;
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
