/* SPDX-License-Identifier: Apache-2.0 */
#include "rl/traj.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define TOKENS_MAX ((size_t)1 << 24)	/* of one answer or prompt */

static const char *const drops[] = {
	[TRAJ_OK] = "ok", [TRAJ_NO_IDS] = "no_ids",
	[TRAJ_NO_REWARD] = "no_reward", [TRAJ_NO_TOKENS] = "no_agent_tokens",
	[TRAJ_TOO_LONG] = "too_long", [TRAJ_BAD_IDS] = "bad_ids",
	[TRAJ_FOREIGN] = "other_tokenizer", [TRAJ_OMITTED] = "omitted",
	[TRAJ_LOW_REWARD] = "low_reward",
	[TRAJ_LOOP] = "redundant_loop", [TRAJ_SCHEMA] = "schema_violation",
};

const char *traj_drop_name(enum traj_drop d)
{
	return drops[d];
}

void traj_release(struct traj *t)
{
	for (size_t i = 0; i < t->nseg; i++) {
		free(t->seg[i].id);
		free(t->seg[i].agent);
		free(t->seg[i].logprob);
	}
	free(t->seg);
	t->seg = NULL;
	t->nseg = 0;
}

int traj_open(struct traj *t, struct err *e)
{
	struct traj_seg *s = realloc(t->seg, (t->nseg + 1) * sizeof *s);

	if (!s)
		return err_set(e, CA_SOFTWARE, "no memory");
	t->seg = s;
	memset(&s[t->nseg++], 0, sizeof *s);
	return 0;
}

static int grow(struct traj_seg *s, size_t n, struct err *e)
{
	size_t want = s->n + n;
	void *p;

	if (want <= s->alloc)
		return 0;
	want += want / 2;
	p = realloc(s->id, want * sizeof *s->id);
	if (p)
		s->id = p;
	if (p && (p = realloc(s->agent, want)))
		s->agent = p;
	if (p && (p = realloc(s->logprob, want * sizeof *s->logprob)))
		s->logprob = p;
	if (!p)
		return err_set(e, CA_SOFTWARE, "no memory");
	s->alloc = want;
	return 0;
}

int traj_add(struct traj *t, const int32_t *id, size_t n, int agent,
	     const float *logprob, struct err *e)
{
	struct traj_seg *s = &t->seg[t->nseg - 1];

	if (!n)
		return 0;
	if (grow(s, n, e))
		return -1;
	memcpy(s->id + s->n, id, n * sizeof *id);
	memset(s->agent + s->n, agent, n);
	for (size_t i = 0; i < n; i++)
		s->logprob[s->n + i] = logprob ? logprob[i] : 0;
	s->n += n;
	if (agent)
		t->agent += n;
	return 0;
}

/* n numbers of 4 bytes; malloc'd (n is at least 1 then), or NULL. */
static void *numbers(const struct json *j, size_t n)
{
	void *p = malloc(n ? n * 4 : 1);

	if (p && json_b64(j, p, n * 4)) {
		free(p);
		return NULL;
	}
	return p;
}

static int bad(struct err *e, const struct json *turn, const char *what)
{
	err_set(e, CA_DATAERR, "turn %lld: %s",
		(long long)json_get_int(turn, "turn", 0), what);
	return TRAJ_BAD_IDS;
}

/* Whether the mask says that the answer is the last n of `end` tokens. */
static int mask_fits(const struct json *mask, size_t n, size_t end)
{
	const struct json *span = json_first(mask);
	const struct json *from = json_first(span);

	return json_len(mask) == 1 && json_len(span) == 2 &&
	       json_int(from, -1) == (int64_t)(end - n) &&
	       json_int(json_next(from), -1) == (int64_t)end;
}

static int hash_fits(const struct traj_seg *s, const char *want)
{
	char text[HASH_HEX];

	if (!want)
		return 1;
	sha256_hex(s->id, s->n * sizeof *s->id, text);
	return !strcmp(text, want);
}

/* Tokens that have no proper log-probability are no longer the agent's. */
static void mask_bad(struct traj *t, struct traj_seg *s, size_t n)
{
	for (size_t i = s->n - n; i < s->n; i++)
		if (!(s->logprob[i] <= 0) || isinf(s->logprob[i])) {
			s->agent[i] = 0;
			s->logprob[i] = 0;
			t->agent--;
			t->bad_logprobs++;
		}
}

static int add_turn(struct traj *t, const struct json *turn, int logprobs,
		    struct err *e)
{
	const struct json *k = json_get(turn, "tokens");
	int64_t np = json_get_int(k, "prompt_new", -1);
	int64_t n = json_get_int(k, "n", -1);
	int32_t *prompt, *id;
	float *lp;
	struct traj_seg *s;
	int rc;

	if (np < 0 || n < 1 || (size_t)np > TOKENS_MAX ||
	    (size_t)n > TOKENS_MAX)
		return bad(e, turn, "counts of tokens are missing");
	if ((json_get_str(k, "opens", NULL) || !t->nseg) && traj_open(t, e))
		return -1;
	prompt = numbers(json_get(k, "prompt_ids"), (size_t)np);
	id = numbers(json_get(k, "ids"), (size_t)n);
	lp = numbers(json_get(k, "logprobs"), (size_t)n);
	if (!prompt || !id || !lp)
		rc = bad(e, turn, "ids or log-probabilities are not as many "
			 "as stated");
	else
		rc = traj_add(t, prompt, (size_t)np, 0, NULL, e) ||
		     traj_add(t, id, (size_t)n, 1, lp, e) ? -1 : TRAJ_OK;
	free(prompt);
	free(id);
	free(lp);
	if (rc)
		return rc;
	s = &t->seg[t->nseg - 1];
	if (s->n == (size_t)n)
		return bad(e, turn, "an answer has no prompt");
	if (!mask_fits(json_get(k, "mask"), (size_t)n, s->n) ||
	    json_get_int(k, "total", -1) != (int64_t)s->n)
		return bad(e, turn, "mask and ids disagree");
	if (!hash_fits(s, json_get_str(k, "hash", NULL)))
		return bad(e, turn, "the ids are not those that were hashed");
	for (size_t i = 0; i < s->n; i++)
		if (s->id[i] < 0)
			return bad(e, turn, "a token is negative");
	if (logprobs)
		mask_bad(t, s, (size_t)n);
	return TRAJ_OK;
}

static int add_turns(struct traj *t, const struct json *turns, int logprobs,
		     const char *none, struct err *e)
{
	const struct json *m;
	const char *why = NULL;
	int rc = TRAJ_OK;

	/* What the model said in a turn without ids is not learned, as what
	 * the environment says. */
	for (m = json_first(turns); m && !rc; m = json_next(m)) {
		const struct json *k = json_get(m, "tokens");

		if (json_type(k) == JSON_OBJECT && !json_get(k, "missing")) {
			rc = add_turn(t, m, logprobs, e);
			continue;
		}
		t->missing++;
		why = json_get_str(k, "missing", none);
	}
	if (!rc && !t->nseg && t->missing) {
		err_set(e, CA_DATAERR, "it has no token ids: %s", why);
		rc = TRAJ_NO_IDS;
	}
	return rc;
}

static void copy(char *to, size_t n, const char *from)
{
	snprintf(to, n, "%s", from ? from : "");
}

static void read_facts(struct traj *t, const struct json *root)
{
	const struct json *o = json_get(root, "outcome"), *m;
	const struct json *s = json_path(root, "model.sampling");

	copy(t->id, sizeof t->id, json_get_str(root, "id", NULL));
	copy(t->task, sizeof t->task,
	     json_str(json_path(root, "task.id"), NULL));
	copy(t->version, sizeof t->version,
	     json_str(json_path(root, "model.weight_version"), NULL));
	t->reward = json_get_num(o, "reward", NAN);
	if (!json_get_bool(o, "trainable", 1))
		t->reward = NAN;
	t->temperature = json_get_num(s, "temperature", NAN);
	t->top_p = json_get_num(s, "top_p", NAN);
	t->min_p = json_get_num(s, "min_p", NAN);
	t->top_k = json_get_int(s, "top_k", 0);
	copy(t->logprobs, sizeof t->logprobs,
	     json_get_str(s, "logprobs", NULL));
	t->redundant = json_get_bool(root, "redundant_loop", 0);
	t->violations = json_get_int(root, "schema_violations", 0);
	m = json_first(json_get(root, "turns"));
	for (; m; m = json_next(m)) {
		const struct json *c = json_first(json_get(m, "calls"));

		t->turns++;
		t->cut |= !strcmp(json_get_str(m, "finish", ""), "length");
		for (; c && !t->violations; c = json_next(c))
			t->violations += json_get_bool(c, "schema_violation",
						       0);
	}
}

int traj_read(struct traj *t, const struct json *root, int logprobs,
	      struct err *e)
{
	const char *less = json_get_str(root, "omitted", "");
	int rc;

	memset(t, 0, sizeof *t);
	read_facts(t, root);
	if (isnan(t->reward)) {
		err_set(e, CA_DATAERR, "it has no reward (stopped by '%s')",
			json_str(json_path(root, "outcome.stop_reason"),
				 "?"));
		return TRAJ_NO_REWARD;
	}
	if (!strcmp(less, "messages")) {
		err_set(e, CA_DATAERR, "its messages were left out, since it "
			"is too long for a record");
		return TRAJ_OMITTED;
	}
	rc = add_turns(t, json_get(root, "turns"), logprobs,
		       strcmp(less, "tokens") ? "none written" :
		       "left out, since it is too long for a record", e);
	if (!rc && !t->agent) {
		err_set(e, CA_DATAERR, "it has no tokens of the agent");
		rc = TRAJ_NO_TOKENS;
	}
	if (rc)
		traj_release(t);
	return rc;
}

size_t traj_longest(const struct traj *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->nseg; i++)
		n = t->seg[i].n > n ? t->seg[i].n : n;
	return n;
}

enum traj_drop traj_kept(const struct traj *t)
{
	if (!(t->reward > 0))
		return TRAJ_LOW_REWARD;
	if (t->redundant)
		return TRAJ_LOOP;
	return t->violations ? TRAJ_SCHEMA : TRAJ_OK;
}
