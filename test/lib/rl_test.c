/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/rl without a model: advantages and losses against the golden vectors
 * (made with verl's core_algos), packing, reading of trajectories, sums over
 * ranks.  test/models/rl.bats compares gradients with PyTorch.
 */
#include "tests.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "rl/gae.h"
#include "rl/loss.h"
#include "rl/ranks.h"
#include "rl/rows.h"

#define N 8

static const double reward[N] = { 0, 0, 0, 0, 0, 0, 3, 0 };
static const double value[N] = { .1, .2, 9, 9, .3, .4, .5, 7 };
static const uint8_t agent[N] = { 1, 1, 0, 0, 1, 1, 1, 0 };

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-6))
		fail_msg("%.9f instead of %.9f", got, want);
}

/* Only what is the agent's, in order. */
static size_t pick(const double *x, double *out)
{
	size_t n = 0;

	for (size_t i = 0; i < N; i++)
		if (agent[i])
			out[n++] = x[i];
	return n;
}

static void golden_advantages(void **state)
{
	static const double want[] = { 2.4072528, 2.4286873, 2.4512498,
				       2.4749999, 2.5 };
	static const double target[] = { 2.5072527, 2.6286874, 2.7512498,
					 2.8750, 3.0 };
	static const double white[] = { -1.2322471, -.6477070, -.0324015,
					.6152884, 1.2970672 };
	const struct gae_opts o = { GAE_SKIP, 1, .95 };
	double a[N], r[N], x[N];

	(void)state;
	gae(&o, N, agent, reward, value, a, r);
	assert_int_equal(pick(a, x), 5);
	for (int i = 0; i < 5; i++)
		near(x[i], want[i]);
	whiten(5, x);
	for (int i = 0; i < 5; i++)
		near(x[i], white[i]);
	pick(r, x);
	for (int i = 0; i < 5; i++)
		near(x[i], target[i]);
	for (size_t i = 0; i < N; i++)
		if (!agent[i])
			assert_true(a[i] == 0 && r[i] == 0);
}

/* The printed formula as it is printed: a sum over all later steps. */
static void every_token_as_printed(void **state)
{
	const struct gae_opts o = { GAE_ALL, .9, .8 };
	double a[N], r[N];

	(void)state;
	gae(&o, N, agent, reward, value, a, r);
	for (int t = 0; t < N; t++) {
		double sum = 0, weight = 1;

		for (int i = t; i < N; i++, weight *= .9 * .8)
			sum += weight * (reward[i] - value[i] +
					 (i + 1 < N ? .9 * value[i + 1] : 0));
		near(a[t], sum);
		near(r[t], sum + value[t]);
	}
}

static void turns_are_steps(void **state)
{
	const struct gae_opts o = { GAE_TURN, .9, .8 };
	double a[N], r[N], second = 3 - .3;
	double first = .9 * .3 - .1 + .9 * .8 * second;

	(void)state;
	gae(&o, N, agent, reward, value, a, r);
	for (size_t i = 0; i < N; i++) {
		near(a[i], !agent[i] ? 0 : i < 2 ? first : second);
		near(r[i], !agent[i] ? 0 : i < 2 ? first + .1 : 3);
	}
}

/* What the environment says between them must not matter, not even NaN. */
static void skipped_tokens_are_not_read(void **state)
{
	const struct gae_opts o = { GAE_SKIP, 1, .95 };
	double v[N], a[N], r[N], b[N];

	(void)state;
	gae(&o, N, agent, reward, value, a, r);
	for (int i = 0; i < N; i++)
		v[i] = agent[i] ? value[i] : (double)NAN;
	gae(&o, N, agent, reward, v, b, r);
	assert_memory_equal(a, b, sizeof a);
}

static void one_advantage_alone(void **state)
{
	double one = 2.5;

	(void)state;
	whiten(1, &one);
	assert_true(one == 0);
	whiten(0, NULL);
}

static void golden_policy_loss(void **state)
{
	static const double a[] = { -1.2322471, -.6477070, -.0324015,
				    .6152884, 1.2970672 };
	static const double old[] = { -1, -2, -.5, -.7, -.1 };
	static const double by[] = { .3, -.3, .5, -1.5, 2 };
	const struct ppo_opts o = { .2, .28, 3 };
	double loss = 0, kl = 0;
	int clipped = 0;

	(void)state;
	for (int i = 0; i < 5; i++) {
		struct term t = ppo_term(&o, old[i] + by[i], old[i], a[i]);

		loss += t.loss / 5;
		kl -= log_ratio(old[i] + by[i], old[i]) / 5;
		clipped += t.clipped;
	}
	/* TRAINING's .0874795 is verl's in fp32; in double precision the
	 * same numbers give this. */
	near(loss, .0874822);
	near(kl, -.2);
	assert_int_equal(clipped, 2);
}

static void golden_value_loss(void **state)
{
	static const double v[] = { .1, .2, .3, .4, .5 };
	static const double target[] = { 2.5072527, 2.6286874, 2.7512498,
					 2.8750, 3.0 };
	double sum = 0;

	(void)state;
	for (int i = 0; i < 5; i++)
		sum += value_term(v[i] + .7, v[i], target[i], .5).loss;
	near(sum, 9.5327244);
	near(sum * agg_weight(AGG_TOKEN_MEAN, 5, 5, 1), 1.9065449);
	near(sum * agg_weight(AGG_SEQ_MEAN, 5, 5, 1), 1.9065449);
	near(sum * agg_weight(AGG_TOKEN_SUM, 5, 5, 1), 9.5327244);
}

/* Derivatives against differences, on both sides of each bend. */
static void derivatives(void **state)
{
	const struct ppo_opts o = { .2, .28, 3 };
	const double h = 1e-6;

	(void)state;
	for (double a = -2; a <= 2; a += .5)
		for (double d = -2.05; d < 2.1; d += .1) {
			struct term t = ppo_term(&o, d - 1, -1, a);
			double up = ppo_term(&o, d - 1 + h, -1, a).loss;
			double low = ppo_term(&o, d - 1 - h, -1, a).loss;

			if (fabs(t.grad - (up - low) / 2 / h) > 1e-5)
				fail_msg("A %g, log rho %g", a, d);
			t = value_term(d, .3, a, .5);
			up = value_term(d + h, .3, a, .5).loss;
			low = value_term(d - h, .3, a, .5).loss;
			if (fabs(t.grad - (up - low) / 2 / h) > 1e-5)
				fail_msg("v %g, target %g", d, a);
		}
	assert_true(ppo_term(&o, 0, -1000, 1).grad == 0);
	assert_true(isfinite(ppo_term(&o, 0, -1000, -1).loss));
}

/* n tokens, of which mask says which are the agent's. */
static void make(struct traj *t, const char *mask)
{
	struct err e = ERR_INIT;

	if (!t->nseg)
		assert_int_equal(traj_open(t, &e), 0);
	for (int32_t i = 0; mask[i]; i++) {
		float lp = -(float)i;

		if (mask[i] == '|') {
			assert_int_equal(traj_open(t, &e), 0);
			continue;
		}
		assert_int_equal(traj_add(t, &i, 1, mask[i] == 'a', &lp, &e),
				 0);
	}
}

static void rows_of_segments(void **state)
{
	struct traj t[3] = { 0 };
	struct rows r;
	struct err e = ERR_INIT;

	(void)state;
	make(&t[0], ".aa..a..|.a");
	make(&t[1], "..");
	make(&t[2], ".a");
	assert_int_equal(rows_make(&r, t, 3, 0, &e), 0);
	assert_int_equal(r.nseq, 3);
	assert_int_equal(r.n, 5);
	assert_int_equal(r.first[1], 4);
	assert_int_equal(r.first[2], 4);
	/* The last of a sequence is predicted, not computed. */
	assert_int_equal(r.seq[0].n, 5);
	assert_int_equal(r.seq[1].n, 1);
	assert_int_equal(r.row[2], 4);
	assert_int_equal(r.target[2], 5);
	assert_true(r.logprob[2] == -5);
	/* A sequence opens, though its row may follow the one before. */
	assert_int_equal(r.opens[0], 1);
	assert_int_equal(r.opens[2], 0);
	assert_int_equal(r.opens[3], 1);
	assert_int_equal(r.tokens, 7);
	rows_release(&r);
	assert_int_equal(rows_make(&r, t, 3, 1, &e), 0);
	assert_int_equal(r.n, 7);
	assert_int_equal(r.agent[2], 0);
	rows_release(&r);
	for (int i = 0; i < 3; i++)
		traj_release(&t[i]);
}

static void packing(void **state)
{
	struct traj t[6] = { 0 };
	static const char *const mask[] = { ".aaaaa", ".aa", ".aaaa", ".a",
					    ".aaaaaaa", ".aaa" };
	size_t seen[6] = { 0 };
	struct err e = ERR_INIT;
	struct rows r;
	struct pack p;

	(void)state;
	for (int i = 0; i < 6; i++)
		make(&t[i], mask[i]);
	assert_int_equal(rows_make(&r, t, 6, 0, &e), 0);
	assert_int_equal(pack_make(&p, &r, 8, 3, 2, &e), 0);
	for (size_t b = 0; b < p.n; b++) {
		size_t tokens = 0;

		assert_true(p.first[b + 1] - p.first[b] <= 3);
		assert_true(p.rank[b] == 0 || p.rank[b] == 1);
		for (size_t i = p.first[b]; i < p.first[b + 1]; i++) {
			tokens += r.seq[p.seq[i]].n;
			seen[p.seq[i]]++;
		}
		assert_true(tokens <= 8);
	}
	for (int i = 0; i < 6; i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(p.n, 3);
	pack_release(&p);
	assert_int_equal(pack_make(&p, &r, 6, 3, 2, &e), -1);
	assert_int_equal(e.code, CA_DATAERR);
	rows_release(&r);
	for (int i = 0; i < 6; i++)
		traj_release(&t[i]);
}

/* A record of one turn, as ca-agent writes it; `change` is put in place of
 * "total". */
static struct json *record(int32_t *ids, const float *lp, int n,
			   const char *outcome, const char *change)
{
	struct str s = STR_INIT;
	struct json *j;
	struct jw w;
	char hash[HASH_HEX];

	sha256_hex(ids, (size_t)(2 + n) * sizeof *ids, hash);
	jw_init(&w, &s);
	str_addf(&s, "{\"kind\":\"trajectory\",\"v\":1,\"outcome\":%s,"
		 "\"turns\":[{\"turn\":1,\"finish\":\"stop\",\"calls\":"
		 "[{\"schema_violation\":false}],\"tokens\":{"
		 "\"opens\":\"start\",\"prompt_new\":2,\"n\":%d,"
		 "\"hash\":\"%s\",\"prompt_ids\":", outcome, n, hash);
	jw_b64(&w, ids, 2 * sizeof *ids);
	str_adds(&s, ",\"ids\":");
	w.comma = 0;
	jw_b64(&w, ids + 2, (size_t)n * sizeof *ids);
	str_adds(&s, ",\"logprobs\":");
	w.comma = 0;
	jw_b64(&w, lp, (size_t)n * sizeof *lp);
	str_addf(&s, ",%s}}]}", change);
	j = json_parse(s.buf, s.len, JSON_MAX_LINE, NULL, NULL);
	assert_non_null(j);
	str_release(&s);
	return j;
}

static void reading(void **state)
{
	static const struct {
		const char *outcome, *change;
		int want;
	} row[] = {
		{ "{\"reward\":2}", "\"mask\":[[2,5]],\"total\":5", TRAJ_OK },
		{ "{\"reward\":null}", "\"mask\":[[2,5]],\"total\":5",
		  TRAJ_NO_REWARD },
		{ "{\"reward\":1,\"trainable\":false}",
		  "\"mask\":[[2,5]],\"total\":5", TRAJ_NO_REWARD },
		{ "{\"reward\":-1}", "\"mask\":[[1,5]],\"total\":5",
		  TRAJ_BAD_IDS },
		{ "{\"reward\":-1}", "\"mask\":[],\"total\":5",
		  TRAJ_BAD_IDS },
		{ "{\"reward\":-1}", "\"mask\":[[2,5]],\"total\":6",
		  TRAJ_BAD_IDS },
		{ "{\"reward\":-1}",
		  "\"mask\":[[2,5]],\"total\":5,\"missing\":\"none\"",
		  TRAJ_NO_IDS },
		{ "{\"reward\":1},\"omitted\":\"messages\"",
		  "\"mask\":[[2,5]],\"total\":5", TRAJ_OMITTED },
		{ "{\"reward\":1},\"omitted\":\"candidates\"",
		  "\"mask\":[[2,5]],\"total\":5", TRAJ_OK },
	};
	int32_t ids[] = { 5, 6, 7, 8, 9 };
	const float lp[] = { -1, 0, -2 };

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct json *j = record(ids, lp, 3, row[i].outcome,
					row[i].change);
		struct err e = ERR_INIT;
		struct traj t;

		assert_int_equal(traj_read(&t, j, 1, &e), row[i].want);
		assert_int_equal(e.code, row[i].want ? CA_DATAERR : 0);
		if (!row[i].want) {
			assert_int_equal(t.seg[0].n, 5);
			assert_int_equal(t.agent, 3);
			assert_int_equal(traj_longest(&t), 5);
			assert_memory_equal(t.seg[0].id, ids, sizeof ids);
			assert_int_equal(traj_kept(&t), TRAJ_OK);
		}
		traj_release(&t);
		json_free(j);
	}
}

static void bad_logprobs_mask_their_tokens(void **state)
{
	int32_t ids[] = { 5, 6, 7, 8, 9, 10 };
	const float lp[] = { -1, NAN, .5f, -INFINITY };
	struct json *j = record(ids, lp, 4, "{\"reward\":2}",
				"\"mask\":[[2,6]],\"total\":6");
	struct err e = ERR_INIT;
	struct traj t;

	(void)state;
	assert_int_equal(traj_read(&t, j, 1, &e), TRAJ_OK);
	assert_int_equal(t.agent, 1);
	assert_int_equal(t.bad_logprobs, 3);
	assert_int_equal(t.seg[0].agent[2], 1);
	assert_int_equal(t.seg[0].agent[3], 0);
	traj_release(&t);
	/* For fine-tuning they do not matter. */
	assert_int_equal(traj_read(&t, j, 0, &e), TRAJ_OK);
	assert_int_equal(t.agent, 4);
	traj_release(&t);
	json_free(j);
}

static void base64(void **state)
{
	static const char text[] = "[\"AAEC\",\"AAE=\",\"AA==\",\"AB==\","
				   "\"AAE\",\"A*EC\",\"\"]";
	struct json *j = json_parse(text, sizeof text - 1, 100, NULL, NULL);
	const struct json *s = json_first(j);
	unsigned char out[3];

	(void)state;
	assert_int_equal(json_b64(s, out, 3), 0);
	assert_int_equal(out[2], 2);
	assert_int_equal(json_b64(s, out, 2), -1);
	s = json_next(s);
	assert_int_equal(json_b64(s, out, 2), 0);
	assert_int_equal(json_b64(s, out, 3), -1);
	s = json_next(s);
	assert_int_equal(json_b64(s, out, 1), 0);
	s = json_next(s);
	assert_int_equal(json_b64(s, out, 1), -1);
	s = json_next(s);
	assert_int_equal(json_b64(s, out, 2), -1);
	s = json_next(s);
	assert_int_equal(json_b64(s, out, 3), -1);
	s = json_next(s);
	assert_int_equal(json_b64(s, out, 0), 0);
	json_free(j);
}

/* Runs in ranks of its own, which end here. */
static int sums(void)
{
	enum { MANY = 300000 };
	static float x[MANY];
	struct err e = ERR_INIT;
	struct ranks *r;
	struct comm *c;
	int flag, bad = 0;

	if (ranks_start(&r, 3, &e))
		return 1;
	c = ranks_comm(r);
	for (size_t i = 0; i < MANY; i++)
		x[i] = (float)(comm_mine(c) + 1) * (float)(i % 7);
	bad |= comm_sum(c, x, MANY, &e);
	for (size_t i = 0; i < MANY; i++)
		bad |= x[i] != 6 * (float)(i % 7);
	flag = comm_mine(c) == 2;
	bad |= comm_any(c, &flag, &e) || !flag;
	flag = 0;
	bad |= comm_any(c, &flag, &e) || flag;
	if (comm_mine(c)) {
		char line[8] = "";

		bad |= read_full(0, line, 8, &e) != 6 ||
		       memcmp(line, "hello\n", 6);
		ranks_finish(r, 0, &e);
		_exit(bad);
	}
	bad |= ranks_tell(r, "hello", 5, &e);
	bad |= ranks_finish(r, 0, &e);
	return bad;
}

static void sums_over_ranks(void **state)
{
	(void)state;
	assert_int_equal(sums(), 0);
}

/* More than one window of each, and one that is not full. */
static int parts(void)
{
	enum { PART = 200001, RANKS = 3 };
	static float x[PART * RANKS];
	struct err e = ERR_INIT;
	struct ranks *r;
	struct comm *c;
	int bad = 0, all[RANKS], said;
	size_t from;

	if (ranks_start(&r, RANKS, &e))
		return 1;
	c = ranks_comm(r);
	for (size_t i = 0; i < PART * RANKS; i++)
		x[i] = (float)(comm_mine(c) + 1) * (float)(i % 1009);
	from = (size_t)comm_mine(c) * PART;
	bad |= comm_reduce_scatter(c, x, PART, &e);
	for (size_t i = from; i < from + PART; i++)
		bad |= x[i] != 6 * (float)(i % 1009);
	bad |= comm_all_gather(c, x, PART * sizeof *x, &e);
	for (size_t i = 0; i < PART * RANKS; i++)
		bad |= x[i] != 6 * (float)(i % 1009);
	said = 10 + comm_mine(c);
	bad |= comm_gather(c, &said, sizeof said, all, &e);
	for (int i = 0; i < RANKS; i++)
		bad |= all[i] != 10 + i;
	if (comm_mine(c))
		_exit(bad);
	bad |= ranks_finish(r, 0, &e);
	return bad;
}

static void parts_over_ranks(void **state)
{
	(void)state;
	assert_int_equal(parts(), 0);
}

/* Three ranks, the last of which does what it should not; what rank 0 says of
 * it.  The others stop too. */
static void with_a_bad_one(void (*bad)(struct comm *c), struct err *e)
{
	struct ranks *r;
	float x = 1;

	assert_int_equal(ranks_start(&r, 3, e), 0);
	if (comm_mine(ranks_comm(r)) == 2)
		bad(ranks_comm(r));
	if (comm_mine(ranks_comm(r)))
		_exit(comm_sum(ranks_comm(r), &x, 1, e) == -1 ? 3 : 0);
	assert_int_equal(comm_sum(ranks_comm(r), &x, 1, e), -1);
	assert_int_equal(ranks_finish(r, 1, NULL), 0);
}

static void ends(struct comm *c)
{
	(void)c;
	_exit(7);
}

static void is_killed(struct comm *c)
{
	(void)c;
	kill(getpid(), SIGKILL);
}

static void stops(struct comm *c)
{
	(void)c;
	kill(getpid(), SIGSTOP);
}

static void has_no_room(struct comm *c)
{
	struct err e = ERR_INIT;

	err_set(&e, CA_UNAVAILABLE, "80 MiB are needed, 7 are free");
	comm_fail(c, &e);
	_exit(CA_UNAVAILABLE);
}

static void a_bad_rank_is_named(void **state)
{
	static const struct {
		void (*bad)(struct comm *c);
		const char *said;
	} row[] = {
		{ ends, "rank 2: it ended with status 7" },
		{ is_killed, "rank 2: it ended by signal 9" },
		{ has_no_room, "rank 2: 80 MiB are needed, 7 are free" },
		{ stops, "rank 2: it hangs: no progress for 1 s" },
	};

	(void)state;
	setenv("CA_RANK_PATIENCE", "1", 1);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct err e = ERR_INIT;

		with_a_bad_one(row[i].bad, &e);
		assert_int_equal(e.code, CA_UNAVAILABLE);
		assert_string_equal(e.msg, row[i].said);
	}
	unsetenv("CA_RANK_PATIENCE");
}

/* What it is told does not go through a pipe that nobody reads. */
static void a_rank_that_does_not_read_is_named(void **state)
{
	static char line[100000];
	struct err e = ERR_INIT;
	struct ranks *r;

	(void)state;
	setenv("CA_RANK_PATIENCE", "1", 1);
	assert_int_equal(ranks_start(&r, 2, &e), 0);
	if (comm_mine(ranks_comm(r)))
		for (;;)
			pause();
	memset(line, 'x', sizeof line);
	assert_int_equal(ranks_tell(r, line, sizeof line, &e), -1);
	assert_string_equal(e.msg, "rank 1: it hangs: no progress for 1 s");
	ranks_finish(r, 1, NULL);
	unsetenv("CA_RANK_PATIENCE");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_advantages),
		cmocka_unit_test(every_token_as_printed),
		cmocka_unit_test(turns_are_steps),
		cmocka_unit_test(skipped_tokens_are_not_read),
		cmocka_unit_test(one_advantage_alone),
		cmocka_unit_test(golden_policy_loss),
		cmocka_unit_test(golden_value_loss),
		cmocka_unit_test(derivatives),
		cmocka_unit_test(rows_of_segments),
		cmocka_unit_test(packing),
		cmocka_unit_test(reading),
		cmocka_unit_test(bad_logprobs_mask_their_tokens),
		cmocka_unit_test(base64),
		cmocka_unit_test(sums_over_ranks),
		cmocka_unit_test(parts_over_ranks),
		cmocka_unit_test(a_bad_rank_is_named),
		cmocka_unit_test(a_rank_that_does_not_read_is_named),
	};

	return RUN_TESTS(tests);
}
