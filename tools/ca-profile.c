/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-profile: how fast is a verified candidate, against eager and
 * torch.compile?
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/kernels.h"
#include "judge/options.h"
#include "rec/stage.h"

static struct judge_opts opts;
static struct judging judging;
static const char *baseline = "compile";

static int table, reference, json;

static int record(void *ctx, struct rec *r, struct err *e)
{
	struct judge *j = judging_open(&judging, e);

	(void)ctx;
	if (!j || judging_complete(&judging, r, e))
		return -1;
	return reference ? judge_reference(j, r, e) : judge_profile(j, r, e);
}

static int wants(void *ctx, enum rec_kind k)
{
	return judging_wants(ctx, k) || (reference && k == REC_TASK);
}

static const char *field(void)
{
	return reference ? "reference" : "profile";
}

/* The kernels of a record, instead of the record. */
static void print(void *ctx, const struct rec *r)
{
	size_t len;
	const char *text = rec_text(r, field(), &len);
	struct json *p = text ? json_parse(text, len, JSON_MAX_LINE, NULL,
					   NULL) : NULL;
	struct str out = STR_INIT;

	(void)ctx;
	kernels_table(p, rec_name(r),
		      judging.j ? judge_copy_rate(judging.j) : 0, &out);
	if (!out.failed)
		fwrite(out.buf, 1, out.len, stdout);
	if (fflush(stdout)) {
		int gone = errno == EPIPE;

		judging_close(&judging);
		if (gone)
			exit(128 + SIGPIPE);
		die(CA_IOERR, "cannot write to standard output");
	}
	str_release(&out);
	json_free(p);
}

static void written(void *ctx)
{
	(void)ctx;
	judging_written(&judging);
}

static void idle(void *ctx, int fd)
{
	(void)ctx;
	judging_rest(&judging, fd, 1);
}

static const char *status(void *ctx, const struct rec *r)
{
	enum status s = judge_status(r, field());

	(void)ctx;
	return s == ST_NONE ? NULL : status_name(s);
}

static const struct opt options[] = {
	JUDGE_OPTS(opts),
	{ OPT_FLAG, 0, "quick", NULL,
	  "few rounds, provisional: for tries", &opts.quick, 0, 0 },
	{ OPT_CHOICE, 0, "baseline", "compile|eager",
	  "eager: leave torch.compile out, provisional", &baseline, 0, 0 },
	{ OPT_CHOICE, 0, "mode", "default|max-autotune",
	  "of torch.compile", &opts.mode, 0, 0 },
	{ OPT_INT, 0, "max-rounds", "N", "6, 12 or 24 (the default)",
	  &opts.max_rounds, 6, 24 },
	{ OPT_FLAG, 0, "allow-shared", NULL,
	  "another user of the GPU is no matter", &opts.allow_shared, 0, 0 },
	{ OPT_FLAG, 0, "table", NULL,
	  "print times and kernels instead of records", &table, 0, 0 },
	{ OPT_FLAG, 0, "reference", NULL,
	  "print those of tasks' eager and compiled references",
	  &reference, 0, 0 },
	{ OPT_FLAG, 0, "json", NULL,
	  "with --reference: records with that instead of text", &json,
	  0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-profile",
	.operands = "[FILE | DIR ...]",
	.purpose = "time candidates against eager and torch.compile",
	.opts = options,
	.common = OPTS_RECORDS | OPTS_SEED | OPTS_JOBS,
	.max_operands = -1,
};

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.name = "ca-profile", .record = record,
		.directory = judging_directory, .wants = wants,
		.status = status, .idle = idle,
		.rest = written,
	};
	struct err e = ERR_INIT;
	struct common c;
	int first, rc;

	judge_defaults(&opts);
	first = opt_parse(&tool, argc, argv, &c);
	opts.eager_only = baseline[0] == 'e';
	if (judging_init(&judging, &opts, &c, &e))
		die_err(&e);
	if (opts.max_rounds != 6 && opts.max_rounds != 12 &&
	    opts.max_rounds != 24)
		die(CA_USAGE, "--max-rounds takes 6, 12 or 24");
	if (json && !reference)
		die(CA_USAGE, "--json is for --reference");
	if (json && table)
		die(CA_USAGE, "--table and --json exclude each other");
	table |= reference && !json;
	if (table && strcmp(c.out, "-"))
		die(CA_USAGE, "-o is for records, not for tables");
	if (table && c.jobs > 1)
		die(CA_USAGE, "-j is for records, not for tables");
	if (table) {
		ops.silent = 1;
		ops.done = print;
	}
	if (!table && judging_share(&judging, &ops, &c, argv + first, &e))
		die_err(&e);
	if (!judging.crew)
		judging_warm(&judging, opts.eager_only ? NULL : "compile", 1,
			     first == argc);
	rc = stage_run(&ops, &c, argc, argv, first);
	judging_close(&judging);
	opt_release(&tool);
	return rc;
}
