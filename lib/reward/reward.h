/* SPDX-License-Identifier: Apache-2.0
 *
 * What a verdict is worth (DESIGN 6).  Rules only: what they go by was
 * computed, and signed, by earlier stages.
 */
#ifndef CA_REWARD_REWARD_H
#define CA_REWARD_REWARD_H

#include "base/err.h"
#include "base/str.h"
#include "rec/mac.h"
#include "rec/rec.h"
#include "rec/status.h"

enum reward_scheme { SCHEME_MILESTONE, SCHEME_RAW };
enum reward_over { OVER_COMPILE, OVER_EAGER };
enum reward_clock { CLOCK_BRACKET, CLOCK_DEVICE_SUM };

struct reward_rules {
	enum reward_scheme scheme;
	enum reward_over over;		/* of SCHEME_RAW */
	enum reward_clock clock;
	int point_estimate;		/* medians instead of lower bounds */
	int same_math;			/* baselines in the candidate's mode */
	int no_folding;			/* folded parameters: at most 1 */
	int allow_replay;		/* --seed runs are worth something */
	int allow_shared;		/* a contended device is no matter */
	/* What else earlier stages may have been run with. */
	int allow_literal, allow_trivial, allow_no_jail;
	const char *rules;		/* of `verify`; NULL: the record's */
};

/* What a status is worth. */
enum reward_worth {
	WORTH_MILESTONE,	/* goes by the times */
	WORTH_BOUND,		/* likewise, by what its bounds clear */
	WORTH_NOTHING,		/* null: not the candidate's doing */
	WORTH_FAILURE		/* -1 */
};
enum reward_worth reward_worth(enum status s);

struct reward {
	int known;		/* 0: null */
	double value;
	int provisional;	/* for tries, not for pay */
	int trivial_task;
	char reason[256];
	double eager, compile;	/* speedups that counted; NaN: none */
};

/*
 * The reward of a candidate whose fields `verify` and `profile` are believed.
 * Fields count as they stand in r (set, or as they came).
 */
void reward_compute(const struct rec *r, const struct reward_rules *rules,
		    struct reward *out);

/*
 * Whether what a reward of r goes by is signed with this key, and was made
 * under options that the rules allow: literal, allow_trivial and --no-jail
 * only when they are allowed here as well.  A `profile` is not needed where
 * `verify` already decides.
 */
int reward_believes(const struct rec *r, const struct reward_rules *rules,
		    const struct mac_key *key);

/*
 * Runs earlier stages over r, so that `verify` and `profile` stand in it.  -1
 * with `e` when the tool itself failed.  ca-reward gives judge_profile.
 */
typedef int reward_judge(void *ctx, struct rec *r, struct err *e);

/*
 * Sets `reward` of r, signed.  What is not believed is judged again first;
 * without a judge the reward is null and says so.
 */
int reward_record(struct rec *r, const struct reward_rules *rules,
		  const struct mac_key *key, reward_judge *judge, void *ctx,
		  int no_prov, struct err *e);

/* A number of r's `reward.value` as it stands; 0 when null or absent. */
int reward_value(const struct rec *r, double *value);

/* A heading, and one line for a candidate: name, verdict, time, speedups,
 * reward. */
void reward_table_head(struct str *out);
void reward_table_row(const struct rec *r, struct str *out);

#endif
