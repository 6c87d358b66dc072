/* SPDX-License-Identifier: Apache-2.0
 *
 * Rollouts: a model works on a task in a work directory of its own, and what
 * happened becomes a trajectory record.
 */
#ifndef CA_AGENT_AGENT_H
#define CA_AGENT_AGENT_H

#include <stdint.h>

#include "base/err.h"
#include "rec/rec.h"

struct agent_opts {
	/* the model */
	const char *model_cmd;	/* NULL: an endpoint */
	const char *model;	/* its name; "" for model_cmd */
	const char *key;	/* of the endpoints; NULL: none */
	const char *body;	/* JSON object of further request members */
	double temperature, top_p;	/* < 0: not sent */
	int64_t top_k;			/* < 0: not sent */
	int token_ids;		/* ask for ids and log-probabilities */
	double connect_s, first_s, idle_s;
	int64_t retries;
	/* the rollout */
	int single_turn, eval;
	int64_t turns, ctx, max_tokens, out_tokens, gpu_calls;	/* < 0: any */
	double wall_s;		/* <= 0: any */
	double judge_s;
	int64_t disk;
	int seeded;
	uint64_t seed;
	int no_prov;
	/* where it works */
	const char *device;	/* "cpu", "cuda", … */
	const char *rules;	/* that candidates are judged by */
	const char *grading;	/* of our own judges, in words */
	const char *skill;	/* directory */
	const char *skill_id;	/* what it says and holds */
	const char *fixed;	/* what of it work directories hold */
	const char *cwd;	/* of the caller; for model_cmd */
	const char *dir;	/* of all rollouts, absolute */
	const char *python;	/* of the venv; NULL: none */
};

/* One rollout that is to be made. */
struct agent_task {
	char id[REC_ID_LEN];	/* of the rollout */
	const char *task;	/* id of the task */
	const char *code;	/* its model.py */
	const char *endpoint;	/* of its model; NULL: model_cmd */
	uint64_t seed;
	int resume;		/* its directory is there */
	int judge;		/* socket to the pool */
};

/*
 * The rollout's id: over task, seed, number among its k, and what of the
 * options makes it another rollout: model, sampling, budgets, mode, rules,
 * kind of device, grading, what the skill says and holds.
 */
void agent_id(const struct agent_opts *o, const char *task, int64_t k,
	      char out[REC_ID_LEN]);

/*
 * In a process of its own: makes (or resumes) the rollout in DIR/<id> and
 * leaves its record there as trajectory.json.  0; -1 with `e` when it could
 * not be brought to an end (CA_TEMPFAIL: interrupted, can be resumed).
 */
int rollout_run(const struct agent_opts *o, const struct agent_task *t,
		struct err *e);

/* What ended a rollout, and the words for it in records. */
enum stop { STOP_NONE, STOP_FINAL, STOP_MAX_TURNS, STOP_CONTEXT, STOP_WALL,
	    STOP_FORMAT, STOP_COST, STOP_API_ERROR, STOP_INFRA_ERROR,
	    STOP_KILLED, STOP_COUNT };
const char *stop_name(enum stop s);
enum stop stop_parse(const char *name);
/* Whether that is nobody's merit or fault: no reward, not for training, and
 * made again by --resume. */
int stop_is_fault(enum stop s);

#define ROLLOUT_RECORD "trajectory.json"
#define ROLLOUT_LOG "log.ndjson"

/* The record of a rollout that left none, with its LF. */
void rollout_failure(const struct agent_opts *o, const struct agent_task *t,
		     enum stop s, const char *why, struct str *line);

/* The words for a model: system and first user message, as texts. */
int prompt_system(const struct agent_opts *o, struct str *out, struct err *e);
void prompt_user(const struct agent_opts *o, const char *code,
		 struct str *out);

#endif
