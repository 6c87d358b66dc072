/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-filter: which tasks are fit for training?
 */
#include "base/err.h"
#include "rec/stage.h"
#include "synth/filter.h"
#include "synth/task.h"

static struct filter_opts opts;
static int drop;
static struct filter *filter;

static int record(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	return filter_record(filter, r, e);
}

static int keep(void *ctx, const struct rec *r)
{
	(void)ctx;
	return !drop || r->kind != REC_TASK || task_kept(r);
}

static const char *status(void *ctx, const struct rec *r)
{
	(void)ctx;
	return filter_word(r);
}

static const struct opt table[] = {
	{ OPT_STR, 'd', "device", "DEV",
	  "cpu, cuda or cuda:N (default: a GPU if there is one)",
	  &opts.device, 0, 0 },
	{ OPT_STR, 0, "checks", "NAMES",
	  "make only these checks, named with commas between", &opts.checks,
	  0, 0 },
	{ OPT_FLAG, 0, "exhaustive", NULL,
	  "go on after the first check that fails", &opts.exhaustive, 0, 0 },
	{ OPT_FLAG, 0, "drop", NULL, "leave rejected tasks out", &drop, 0, 0 },
	{ OPT_NUM, 0, "min-ms", "MS", "least time of eager PyTorch (1)",
	  &opts.min_ms, 0, 1e9 },
	{ OPT_NUM, 0, "max-ms", "MS", "most time of eager PyTorch (100)",
	  &opts.max_ms, 0, 1e9 },
	{ OPT_SIZE, 0, "max-mem", "SIZE", "most memory of a call (8G)",
	  &opts.max_mem, 0, 0 },
	{ OPT_SECONDS, 0, "task-timeout", "TIME",
	  "for each request to a task (default 60s)", &opts.task_s, 0, 0 },
	{ OPT_SECONDS, 0, "compile-timeout", "TIME",
	  "for torch.compile (default 120s)", &opts.compile_s, 0, 0 },
	{ OPT_SECONDS, 0, "lease-timeout", "TIME",
	  "how long to wait for the device (default 600s)", &opts.lease_s,
	  0, 0 },
	{ OPT_FLAG, 0, "no-jail", NULL,
	  "run tasks unconfined; every record says so", &opts.no_jail, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-filter",
	.operands = "[FILE ...]",
	.purpose = "find out which tasks are fit for training",
	.opts = table,
	.common = OPTS_RECORDS | OPTS_JOBS,
	.max_operands = -1,
};

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.name = "ca-filter", .record = record, .wants = task_wants,
		.keep = keep, .status = status,
	};
	struct err e = ERR_INIT;
	struct common c;
	int first, rc;

	filter_defaults(&opts);
	first = opt_parse(&tool, argc, argv, &c);
	opts.no_prov = c.no_prov;
	if (opts.no_jail)
		warn("--no-jail: tasks run with your rights");
	filter = filter_open(&opts, &e);
	if (!filter)
		die_err(&e);
	rc = stage_run(&ops, &c, argc, argv, first);
	if (c.verbose)
		filter_tell(filter);
	filter_close(filter);
	opt_release(&tool);
	return rc;
}
