/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that ca-verify and ca-profile (and others that judge) share in their
 * option tables.  `o` is a static struct judge_opts.
 */
#ifndef CA_JUDGE_OPTIONS_H
#define CA_JUDGE_OPTIONS_H

#include "base/opt.h"
#include "judge/judge.h"
#include "judge/rules.h"
#include "judge/spread.h"
#include "rec/crew.h"
#include "rec/stage.h"

#define JUDGE_OPTS(o) \
	{ OPT_STR, 'd', "device", "DEV", \
	  "cpu, cuda or cuda:N (default: a GPU if there is one)", \
	  &(o).device, 0, 0 }, \
	{ OPT_CHOICE, 0, "rules", RULES_NAMES, \
	  "judge by these rules instead of the record's", &(o).rules, 0, 0 }, \
	{ OPT_INT, 0, "inputs", "N", \
	  "fresh plain inputs to verify on (default 5)", \
	  &(o).inputs, 5, 1000 }, \
	{ OPT_FLAG, 0, "literal", NULL, \
	  "leave out scaled inputs and other distributions", \
	  &(o).literal, 0, 0 }, \
	{ OPT_FLAG, 0, "allow-trivial", NULL, \
	  "judge on tasks that trivial answers pass", \
	  &(o).allow_trivial, 0, 0 }, \
	{ OPT_SECONDS, 0, "load-timeout", "TIME", \
	  "for loading a candidate (default 30s)", &(o).load_s, 0, 0 }, \
	{ OPT_SECONDS, 0, "first-timeout", "TIME", \
	  "for its first call (default 60s)", &(o).first_s, 0, 0 }, \
	{ OPT_SECONDS, 0, "timeout", "TIME", \
	  "for each later call (default 10s)", &(o).call_s, 0, 0 }, \
	{ OPT_SECONDS, 0, "task-timeout", "TIME", \
	  "for each request to the reference (default 60s)", \
	  &(o).task_s, 0, 0 }, \
	{ OPT_SECONDS, 0, "lease-timeout", "TIME", \
	  "how long to wait for the device (default 600s)", \
	  &(o).lease_s, 0, 0 }, \
	{ OPT_STR, 0, "tasks", "FILE", \
	  "tasks of candidates that hold only a task's id", \
	  &(o).tasks, 0, 0 }, \
	{ OPT_STR, 0, "trust-key", "FILE", \
	  "key that signs and checks results", &(o).trust_key, 0, 0 }, \
	{ OPT_FLAG, 0, "no-jail", NULL, \
	  "run candidates unconfined; every record says so", \
	  &(o).no_jail, 0, 0 }

/*
 * What a tool that judges keeps: the judge is opened at the first candidate,
 * so that records of other kinds cost nothing, or while waiting for it.
 */
struct judging {
	struct judge_opts *o;
	struct judge *j;
	struct torch_host *host;	/* started ahead of the judge */
	struct tasks *tasks;
	struct crew *crew;		/* who judges instead, if several do, */
	struct spread gpus;		/* and on which */
	char gpu[16];			/* in one of them: on this one */
};

/* Takes -q, --seed and --no-prov over, checks what can be checked ahead of
 * records and reads --tasks; warns loudly about --no-jail.  0 or -1. */
int judging_init(struct judging *g, struct judge_opts *o,
		 const struct common *c, struct err *e);
/*
 * Where the first record is still on its way (stdin is a pipe with nothing in
 * it), starts a torch host meanwhile, with what children of `role` need, and
 * opens the judge; where that record has to be waited for, there being no
 * operand, it also begins (judge_begin).
 */
void judging_warm(struct judging *g, const char *role, int times, int waits);
/* stage_ops.rest of a tool that has one judge; crews call it themselves. */
void judging_written(void *ctx);
/* Where nothing comes of fd for a second: begins for the next record.  For
 * ops->idle. */
void judging_rest(struct judging *g, int fd, int times);
/*
 * With -j N above 1, and without -j where several GPUs are free and neither
 * --seed nor --device names one or one candidate is all that may come: N
 * processes, or one for each GPU, judge side by side, each as this one would,
 * with judges of their own, so that one builds, prepares and verifies while
 * another times, which the device's lease orders.  Takes the place of
 * ops->record and sets c->jobs; due before stage_run and instead of
 * judging_warm.  `operands` ends with NULL.  -1 with `e`.
 */
int judging_share(struct judging *g, struct stage_ops *ops, struct common *c,
		  char *const *operands, struct err *e);
/* The judge, opened now if need be; NULL with `e`. */
struct judge *judging_open(struct judging *g, struct err *e);
void judging_close(struct judging *g);
/* Gives a candidate its task's code, if that is in --tasks. */
int judging_complete(struct judging *g, struct rec *r, struct err *e);

/* stage_ops.directory: a workdir becomes a candidate. */
int judging_directory(void *ctx, const char *path, struct rec *r,
		      struct err *e);
/* stage_ops.wants: candidates only. */
int judging_wants(void *ctx, enum rec_kind k);

/* What a person needs of a record: compiler text, or the first miss. */
void judge_explain(const struct rec *r, struct str *out);

#endif
