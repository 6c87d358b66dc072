/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rec/status.h"
#include "reward/reward.h"

#define NO_VERDICT "the judge gave no verdict: "

void answer_id(const struct rec *r, char id[REC_ID_LEN + 2])
{
	size_t len;
	const char *text = rec_text(r, "id", &len);

	snprintf(id, REC_ID_LEN + 2, "%.*s", text && len == REC_ID_LEN + 1 ?
		 (int)len : 0, text ? text : "");
}

static enum status status_of(const struct rec *r, const char *field)
{
	return status_parse(json_get_str(rec_get(r, field), "status", NULL));
}

static int same_id(const struct question *q, const struct rec *r)
{
	char id[REC_ID_LEN + 2];

	answer_id(r, id);
	return !strcmp(id, q->id);
}

/* What is hashed is text; nothing else may stand beside it. */
static int all_texts(const struct json *files)
{
	const struct json *m = json_first(files);

	while (m && json_type(m) == JSON_STRING)
		m = json_next(m);
	return json_type(files) == JSON_OBJECT && !m;
}

/* Whether the candidate is the one that was sent: its id, said to be q's, is
 * a hash over the task's code and the files. */
static int same_candidate(const struct question *q, struct rec *r)
{
	const char *rules = json_str(rec_get(r, "rules"), "");

	return json_get_str(rec_get(r, "task"), "code", NULL) &&
	       all_texts(rec_get(r, "files")) && !rec_true_ids(r) &&
	       same_id(q, r) && !strcmp(rules, q->rules ? q->rules : "");
}

/* A judge that writes more or less than a line for each that it reads is soon
 * at another question. */
static int same_stage(const struct question *q, const struct rec *r)
{
	const char *stage = json_get_str(rec_get(r, "ask"), "stage", NULL);

	return !stage || !strcmp(stage, ask_name(q->stage));
}

static const char *no_status(enum ask stage, const struct rec *r)
{
	if (stage == ASK_COMPILE)
		return status_of(r, "build") == ST_NONE ?
		       NO_VERDICT "'build' has no known status" : NULL;
	if (stage == ASK_REFERENCE)
		return status_of(r, "reference") == ST_NONE ?
		       NO_VERDICT "'reference' has no known status" : NULL;
	if (status_of(r, "verify") == ST_NONE)
		return NO_VERDICT "'verify' has no known status";
	if (stage == ASK_PROFILE && status_of(r, "verify") == ST_OK &&
	    status_of(r, "profile") == ST_NONE)
		return NO_VERDICT "'profile' has no known status";
	return NULL;
}

static int is_of_scheme(const struct json *reward, double v)
{
	if (!strcmp(json_get_str(reward, "scheme", ""), "raw"))
		return isfinite(v) && (v == -1 || v >= 0);
	return v == -1 || v == 1 || v == 2 || v == 3;
}

/* Whether the stages that are there let a candidate be worth something. */
static int all_right(const struct rec *r)
{
	return status_of(r, "verify") == ST_OK &&
	       (!rec_get(r, "build") || status_of(r, "build") == ST_OK) &&
	       (!rec_get(r, "profile") ||
		reward_worth(status_of(r, "profile")) == WORTH_MILESTONE ||
		reward_worth(status_of(r, "profile")) == WORTH_BOUND);
}

static const char *bad_reward(const struct rec *r)
{
	const struct json *reward = rec_get(r, "reward");
	const struct json *value = json_get(reward, "value");

	if (value && json_type(value) == JSON_NULL)
		return NULL;
	if (!value || json_type(value) != JSON_NUMBER)
		return NO_VERDICT "'reward' has no value";
	if (!is_of_scheme(reward, json_num(value, 0)))
		return NO_VERDICT "the value of 'reward' is none of its "
		       "scheme";
	if (json_num(value, 0) > -1 && !all_right(r))
		return NO_VERDICT "'reward' does not go with the statuses";
	return NULL;
}

const char *answer_fault(const struct question *q, struct rec *r)
{
	const char *why;

	if (r->kind == REC_ERROR)
		return json_str(rec_get(r, "message"), "the judge failed");
	if (r->kind != REC_CANDIDATE)
		return NO_VERDICT "its line is no candidate";
	if (!same_id(q, r) || !same_stage(q, r))
		return "the judge answered another question";
	if (!same_candidate(q, r))
		return NO_VERDICT "task, rules or files are not those that it "
		       "was sent";
	why = no_status(q->stage, r);
	return why || q->stage != ASK_REWARD ? why : bad_reward(r);
}

static int unpaid(const struct rec *r)
{
	return json_type(json_get(rec_get(r, "reward"), "value")) !=
	       JSON_NUMBER;
}

int answer_infra(const struct rec *r)
{
	return unpaid(r) && (status_of(r, "verify") == ST_INFRA_ERROR ||
			     status_of(r, "profile") == ST_INFRA_ERROR);
}

int answer_contended(const struct rec *r)
{
	return unpaid(r) &&
	       json_get_bool(rec_get(r, "profile"), "contended", 0);
}
