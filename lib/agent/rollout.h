/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one rollout.  It changes by events only (state_apply), which
 * are in the log before they count, so that a replayed log gives the state
 * that wrote it.  Not for other modules.
 */
#ifndef CA_AGENT_ROLLOUT_H
#define CA_AGENT_ROLLOUT_H

#include "agent/agent.h"
#include "agent/call.h"
#include "agent/log.h"
#include "agent/loop.h"
#include "agent/model.h"
#include "agent/place.h"
#include "agent/shell.h"
#include "agent/try.h"
#include "cu/lease.h"

/* What the last answer was, once it is dealt with. */
enum said { SAID_NONE, SAID_CALLS, SAID_TEXT, SAID_NOTHING, SAID_CUT };

/* A verdict on a candidate. */
struct evaluation {
	int turn;
	enum ask stage;
	char graded[8];		/* "final", "best" or "" */
	char id[REC_ID_LEN];
	char *line;		/* the candidate, whole */
	int verified;		/* verify.status is ok */
	double speedup;		/* over compile; 0: not known */
	double wall_s, gpu_s;	/* since the start of the rollout */
	int committed;		/* the call that asked for it has ended */
	int bare;		/* there was no room for the candidate */
};

/* Parts of a text. */
struct spans {
	struct span {
		size_t from, to;
	} *v;
	size_t n;
};

/* Bytes of messages that are as good as a full context: what a record can
 * hold is several times that. */
#define HISTORY_MAX ((size_t)4 << 20)
/* Of candidates that were tried; of further ones only the verdict is kept. */
#define TRIED_MAX ((size_t)64 << 20)

struct state {
	struct str messages;	/* JSON, separated by commas, as recorded */
	struct str turns;	/* likewise: finished turns */
	struct str segments;	/* likewise */
	struct spans unsent;	/* what of messages the model is not sent */
	struct spans tokens;	/* members of turns that hold ids */
	int turn;		/* of the last answer; 0: none yet */
	struct calls calls;	/* of that answer */
	size_t next;		/* the first that has no result */
	int begun;		/* call `next` was begun before a restart */
	struct str head, results;	/* of the turn's record, unfinished */
	struct span ids;	/* the member `tokens` of head */
	struct str deferred;	/* texts for one user message at turn's end */
	struct evaluation *eval;
	size_t neval, alloc, tried;	/* bytes of their candidates */
	enum said said;
	struct str text;	/* of the last answer */
	int empties;		/* answers in a row that did nothing */
	struct loop loop;
	int redundant, nudged;
	enum stop stop;
	char why[512];		/* with api_error, infra_error */
	char none[512];		/* why no candidate was graded */
	char digest[HASH_HEX];	/* of the tree, after the last event */
	char cwd[4096];
	int shells;		/* commands started so far */
	int64_t prompt_last, prompt_sum, completion_sum, requests;
	int estimated;		/* some of these, as nobody told them */
	int64_t gpu_calls;
	int violations;
	double wall_s, model_s, gpu_s;	/* spent before this process */
	int64_t ids_known;	/* tokens of the open segment; 0: none open */
	char ids_hash[HASH_HEX];	/* of these */
	int segment;		/* how many were opened */
	int eval_mode;		/* one nudge out of a circle */
	int no_prov;		/* records hold no timings */
	char weights[128];	/* system_fingerprint of the last answer */
	char logprobs[16];	/* its logprobs_mode: of what they are */
	int started, finished;
};

struct rollout {
	const struct agent_opts *o;
	const struct agent_task *t;
	char dir[4096], work[4200];
	int64_t began, deadline;
	double before_s;	/* spent by earlier processes */
	int uid;
	struct state s;
	struct log log;
	struct place place;
	struct tries *tries;
	struct shells *shells;
	struct model *model;
	struct net_idle thinking;	/* while the model is */
	struct lease cpu;	/* opened where the device is one */
	struct str body;	/* of the request */
};

void state_init(struct state *s);
/* The budget of tokens or turns that is used up; STOP_NONE. */
enum stop state_used_up(const struct state *s, const struct agent_opts *o);
/* Appends the messages as the model is sent them. */
void state_sent(const struct state *s, struct str *out);
/* Appends a text but for some parts of it. */
void spans_leave_out(const struct spans *spans, const struct str *text,
		     struct str *out);
void state_release(struct state *s);

/* An event changes the state; ctx is the struct state. */
int state_apply(void *ctx, const struct json *event, struct err *e);
/* The verdict on the candidate that was graded as "final" or "best"; NULL. */
const struct evaluation *state_graded(const struct state *s,
				      const char *which);
/* After a replay: forgets verdicts of a call that has no result. */
void state_settle(struct state *s);

/* Begins an event of this rollout, and ends it: log, then state. */
struct jw *event_begin(struct rollout *r, const char *name);
int event_end(struct rollout *r, struct err *e);

/* Executes call s.next and logs its result. */
int act(struct rollout *r, struct err *e);

/* Asks the model and logs its answer, or the stop.  All turns before are on
 * the disk then. */
int ask_model(struct rollout *r, struct err *e);
/* The members of --body, into the object that w is in. */
void body_write(const struct agent_opts *o, struct jw *w);
/* What is to be done while it thinks. */
void ask_idle(struct rollout *r, struct net_idle *idle);

/* Members `tokens` of a turn's event, where the server gave ids. */
void tokens_write(struct jw *w, const struct chat_answer *a,
		  const struct state *s);

/* What was reached: grades, and logs it. */
int grade(struct rollout *r, struct err *e);
/* Logs a verdict. */
int log_verdict(struct rollout *r, enum ask s, const char *graded,
		const struct rec *c, int64_t wall_ns, struct err *e);

/* Takes the fenced blocks of the only answer as files; 0, or -1 with `e` when
 * it is not made of them. */
int single_files(struct rollout *r, const char *text, struct err *e);

/* Writes the record of the finished rollout. */
int record_write(struct rollout *r, struct err *e);

double spent_s(const struct rollout *r);

#endif
