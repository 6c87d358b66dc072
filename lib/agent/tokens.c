/* SPDX-License-Identifier: Apache-2.0
 *
 * Token ids and log-probabilities of an answer, packed, and whether the
 * prompt goes on where the last one ended.  Nothing is ever re-tokenised:
 * what does not add up is left out and said so.
 */
#include "agent/rollout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ids {
	int32_t *v;
	size_t n;
};

/* An array of integers; n is 0 when there is none or it holds others. */
static struct ids read_ids(const struct json *a)
{
	struct ids r = { NULL, 0 };
	size_t n = json_len(a);
	const struct json *m;

	if (json_type(a) != JSON_ARRAY || !n)
		return r;
	r.v = malloc(n * sizeof(*r.v));
	for (m = json_first(a); r.v && m; m = json_next(m)) {
		int64_t v = json_int(m, -1);

		if (v < 0 || v > INT32_MAX) {
			r.n = 0;
			break;
		}
		r.v[r.n++] = (int32_t)v;
	}
	return r;
}

static void hash_ids(const int32_t *v, size_t n, const int32_t *w, size_t m,
		     char out[HASH_HEX])
{
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];

	out[0] = '\0';
	if (!h)
		return;
	hash_add(h, v, n * sizeof(*v));
	if (m)
		hash_add(h, w, m * sizeof(*w));
	hash_end(h, sum);
	hex(sum, HASH_LEN, out);
}

/* Log-probabilities in the order of the tokens; NaN where the server gave
 * none.  NULL unless there are n. */
static float *read_logprobs(const struct json *content, size_t n)
{
	const struct json *m;
	float *v;
	size_t i = 0;

	if (!n || json_len(content) != n)
		return NULL;
	v = malloc(n * sizeof(*v));
	for (m = json_first(content); v && m; m = json_next(m))
		v[i++] = (float)json_get_num(m, "logprob", NAN);
	return v;
}

static void add_ascii(struct str *s, const char *text)
{
	for (; *text; text++)
		if (!((unsigned char)*text & 0x80))
			str_addc(s, *text);
}

/*
 * Whether the tokens' texts contain what was said.  Only ASCII is looked at:
 * servers spell a character that several tokens make up, or bytes that are
 * none, as U+FFFD, as nothing, or as the whole in the last of them.
 */
static int decodes(const struct json *content, const char *text)
{
	struct str all = STR_INIT, said = STR_INIT;
	const struct json *m;
	int ok;

	for (m = json_first(content); m; m = json_next(m))
		add_ascii(&all, json_get_str(m, "token", ""));
	add_ascii(&said, text);
	ok = !said.len || (all.buf && strstr(all.buf, said.buf));
	str_release(&all);
	str_release(&said);
	return ok;
}

static void write_found(struct jw *w, const struct ids *prompt,
			const struct ids *got, const float *logprobs,
			const struct state *s)
{
	char hash[HASH_HEX];
	const char *opens = NULL;
	size_t skip = (size_t)s->ids_known;

	if (!skip) {
		opens = s->segment ? "ids were missing" : "start";
	} else {
		if (prompt->n >= skip)
			hash_ids(prompt->v, skip, NULL, 0, hash);
		if (prompt->n < skip || strcmp(hash, s->ids_hash))
			opens = "the prompt does not go on where the last "
				"answer ended";
	}
	skip = opens ? 0 : skip;
	hash_ids(prompt->v, prompt->n, got->v, got->n, hash);
	jw_key(w, "tokens");
	jw_obj(w);
	if (opens)
		jw_kstr(w, "opens", opens);
	jw_kint(w, "segment", s->segment - (opens ? 0 : 1));
	jw_kint(w, "prompt_new", (int64_t)(prompt->n - skip));
	jw_key(w, "prompt_ids");
	jw_b64(w, prompt->v + skip, (prompt->n - skip) * sizeof(*prompt->v));
	jw_kint(w, "n", (int64_t)got->n);
	jw_key(w, "ids");
	jw_b64(w, got->v, got->n * sizeof(*got->v));
	jw_key(w, "logprobs");
	jw_b64(w, logprobs, got->n * sizeof(*logprobs));
	jw_key(w, "mask");
	jw_arr(w);
	jw_arr(w);
	jw_int(w, (int64_t)prompt->n);
	jw_int(w, (int64_t)(prompt->n + got->n));
	jw_end_arr(w);
	jw_end_arr(w);
	jw_kint(w, "total", (int64_t)(prompt->n + got->n));
	jw_kstr(w, "hash", hash);
	jw_end_obj(w);
}

static void write_missing(struct jw *w, const char *why)
{
	jw_key(w, "tokens");
	jw_obj(w);
	jw_kstr(w, "missing", why);
	jw_end_obj(w);
}

void tokens_write(struct jw *w, const struct chat_answer *a,
		  const struct state *s)
{
	const struct json *choice = json_first(json_get(a->root, "choices"));
	const struct json *content = json_path(choice, "logprobs.content");
	const struct json *pids = json_get(a->root, "prompt_token_ids");
	struct ids prompt = read_ids(pids ? pids : json_get(choice,
						"prompt_token_ids"));
	struct ids got = read_ids(json_get(choice, "token_ids"));
	float *logprobs = read_logprobs(content, got.n);

	if (!prompt.n || !got.n)
		write_missing(w, "the server gave no ids");
	else if (!logprobs)
		write_missing(w, "ids and log-probabilities differ in number");
	else if ((int64_t)got.n != a->completion_tokens)
		write_missing(w, "ids and usage differ in number");
	else if (!decodes(content, json_get_str(a->message, "content", "")))
		write_missing(w, "the tokens do not spell the text");
	else
		write_found(w, &prompt, &got, logprobs, s);
	free(prompt.v);
	free(got.v);
	free(logprobs);
}
