/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-reward: what is a judged candidate worth?
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "judge/options.h"
#include "rec/stage.h"
#include "reward/reward.h"

static struct judge_opts opts;
static struct judging judging;
static struct reward_rules rules;
static struct mac_key key;
static const char *scheme = "milestone", *over, *clock_name = "bracket";
static double required = NAN;
static int table, headed, short_of, seen, no_prov;

static int judge(void *ctx, struct rec *r, struct err *e)
{
	struct judge *j = judging_open(&judging, e);

	(void)ctx;
	return j ? judge_profile(j, r, e) : -1;
}

static int record(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	if (judging_complete(&judging, r, e))
		return -1;
	return reward_record(r, &rules, &key, judge, NULL, no_prov, e);
}

static void print_row(const struct rec *r)
{
	struct str text = STR_INIT;

	if (!headed)
		reward_table_head(&text);
	headed = 1;
	reward_table_row(r, &text);
	if (!text.failed)
		fputs(text.buf, stdout);
	if (fflush(stdout)) {
		int gone = errno == EPIPE;

		judging_close(&judging);
		if (gone)
			exit(128 + SIGPIPE);
		die(CA_IOERR, "cannot write to standard output");
	}
	str_release(&text);
}

static void name_short(const struct rec *r)
{
	struct str s = STR_INIT;
	double value;

	str_add_name(&s, rec_name(r));
	if (reward_value(r, &value))
		warn("'%s' is worth %g, less than %g", s.buf ? s.buf : "",
		     value, required);
	else
		warn("'%s' has no reward, %g is required", s.buf ? s.buf : "",
		     required);
	str_release(&s);
}

static void done(void *ctx, const struct rec *r)
{
	double value;

	(void)ctx;
	if (r->kind != REC_CANDIDATE)
		return;
	seen = 1;
	if (!isnan(required) && !(reward_value(r, &value) &&
				  value >= required)) {
		short_of = 1;
		name_short(r);
	}
	if (table)
		print_row(r);
}

static void written(void *ctx)
{
	(void)ctx;
	judging_written(&judging);
}

static const char *status(void *ctx, const struct rec *r)
{
	static const char *const words[] = { "-1", "1", "2", "3" };
	double value;

	(void)ctx;
	if (r->kind != REC_CANDIDATE)
		return NULL;
	if (!reward_value(r, &value))
		return "null";
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (value == words[i][0] - '0' || (value == -1 && !i))
			return words[i];
	return "raw";
}

static const struct opt options[] = {
	{ OPT_CHOICE, 0, "scheme", "milestone|raw",
	  "-1, 1, 2, 3, or the speedup itself", &scheme, 0, 0 },
	{ OPT_CHOICE, 0, "over", "compile|eager",
	  "baseline of --scheme raw", &over, 0, 0 },
	{ OPT_FLAG, 0, "point-estimate", NULL,
	  "go by medians, not by lower bounds", &rules.point_estimate, 0, 0 },
	{ OPT_CHOICE, 0, "clock", "bracket|device-sum",
	  "go by the judge's clock or by device times", &clock_name, 0, 0 },
	{ OPT_FLAG, 0, "same-math", NULL,
	  "go by baselines in the candidate's math mode", &rules.same_math,
	  0, 0 },
	{ OPT_FLAG, 0, "no-folding", NULL,
	  "candidates that fold parameters earn at most 1",
	  &rules.no_folding, 0, 0 },
	{ OPT_FLAG, 0, "allow-replay", NULL,
	  "results of --seed are worth something", &rules.allow_replay, 0, 0 },
	{ OPT_FLAG, 0, "allow-shared", NULL,
	  "another user of the GPU is no matter", &opts.allow_shared, 0, 0 },
	{ OPT_NUM, 0, "require", "N",
	  "exit 1 when a candidate's reward is below N or null", &required,
	  0, 0 },
	{ OPT_FLAG, 0, "table", NULL,
	  "print a table for people instead of records", &table, 0, 0 },
	JUDGE_OPTS(opts),
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-reward",
	.operands = "[FILE | DIR ...]",
	.purpose = "say what judged candidates are worth",
	.opts = options,
	.common = OPTS_RECORDS | OPTS_JOBS,
	.max_operands = -1,
};

static void set_rules(void)
{
	if (over && strcmp(scheme, "raw"))
		die(CA_USAGE, "--over is for --scheme raw");
	if (rules.same_math && opts.device && !strcmp(opts.device, "cpu"))
		die(CA_USAGE, "--same-math is for CUDA: on the CPU nothing "
		    "tells in which math a kernel computed");
	if (!strcmp(scheme, "raw"))
		rules.scheme = SCHEME_RAW;
	if (over && !strcmp(over, "eager"))
		rules.over = OVER_EAGER;
	if (strcmp(clock_name, "bracket"))
		rules.clock = CLOCK_DEVICE_SUM;
	rules.allow_shared = opts.allow_shared;
	rules.allow_literal = opts.literal;
	rules.allow_trivial = opts.allow_trivial;
	rules.allow_no_jail = opts.no_jail;
	rules.rules = opts.rules;
}

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.name = "ca-reward", .record = record,
		.directory = judging_directory, .wants = judging_wants,
		.done = done, .status = status, .rest = written,
	};
	struct err e = ERR_INIT;
	struct common c;
	int first, rc;

	judge_defaults(&opts);
	first = opt_parse(&tool, argc, argv, &c);
	set_rules();
	if (table && strcmp(c.out, "-"))
		die(CA_USAGE, "-o is for records, and --table writes none");
	if (judging_init(&judging, &opts, &c, &e) ||
	    mac_key_load(&key, opts.trust_key, &e))
		die_err(&e);
	no_prov = c.no_prov;
	/* Most often there is nothing to judge: GPUs are not looked at. */
	if (c.jobs > 1 && judging_share(&judging, &ops, &c, argv + first, &e))
		die_err(&e);
	ops.silent = table;
	rc = stage_run(&ops, &c, argc, argv, first);
	judging_close(&judging);
	opt_release(&tool);
	if (!rc && !isnan(required) && !seen) {
		warn("no candidate came, a reward of %g is required",
		     required);
		short_of = 1;
	}
	if (!rc && short_of)
		rc = CA_FALSE;
	return rc;
}
