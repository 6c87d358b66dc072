/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-dedup-ast: which tasks repeat each other or a reference set?
 */
#include <stdio.h>
#include <string.h>

#include "rec/stage.h"
#include "synth/dedup.h"
#include "synth/task.h"

static struct dedup_opts opts = { .limit = 0.9 };
static struct opt_list against;
static const char *reject = "sim_paper";
static int drop, histogram;
static struct dedup *dedup;

static int record(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	return dedup_record(dedup, r, e);
}

static int keep(void *ctx, const struct rec *r)
{
	(void)ctx;
	return !drop || r->kind != REC_TASK || task_kept(r);
}

static const char *status(void *ctx, const struct rec *r)
{
	(void)ctx;
	return dedup_word(r);
}

static const struct opt table[] = {
	{ OPT_LIST, 0, "against", "FILE",
	  "compare with the tasks of this file too (may be repeated)",
	  &against, 0, 0 },
	{ OPT_CHOICE, 0, "reject", "sim_paper|sim_norm",
	  "reject by this similarity (sim_paper)", &reject, 0, 0 },
	{ OPT_NUM, 0, "limit", "X",
	  "reject what is more similar than this (0.9)", &opts.limit, 0, 1 },
	{ OPT_FLAG, 0, "verdict-only", NULL,
	  "find out whether the limit is exceeded, not by how much",
	  &opts.verdict_only, 0, 0 },
	{ OPT_FLAG, 0, "drop", NULL, "leave rejected tasks out", &drop, 0, 0 },
	{ OPT_FLAG, 0, "histogram", NULL,
	  "print the distribution of the largest similarities to stderr",
	  &histogram, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-dedup-ast",
	.operands = "[FILE ...]",
	.purpose = "find tasks that repeat each other or a reference set",
	.opts = table,
	.common = OPTS_RECORDS,
	.max_operands = -1,
};

static void print_histogram(void)
{
	struct str text = STR_INIT;

	dedup_histogram(dedup, &text);
	if (!text.failed && text.buf)
		fputs(text.buf, stderr);
	str_release(&text);
}

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.name = "ca-dedup-ast", .record = record, .wants = task_wants,
		.keep = keep, .status = status,
	};
	struct err e = ERR_INIT;
	struct common c;
	int first, rc;

	first = opt_parse(&tool, argc, argv, &c);
	if (histogram && (!against.n || opts.verdict_only))
		die(CA_USAGE, "--histogram needs --against, and no "
		    "--verdict-only");
	if (opts.verdict_only && !against.n)
		die(CA_USAGE, "--verdict-only needs --against");
	opts.against = against.item;
	opts.nagainst = against.n;
	opts.normal = !strcmp(reject, "sim_norm");
	opts.no_prov = c.no_prov;
	c.jobs = 1;
	dedup = dedup_open(&opts, &e);
	if (!dedup)
		die_err(&e);
	rc = stage_run(&ops, &c, argc, argv, first);
	if (histogram)
		print_histogram();
	dedup_close(dedup);
	opt_release(&tool);
	return rc;
}
