/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-verify: is what a candidate computes what its task asks for?
 */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "judge/options.h"
#include "rec/stage.h"

static struct judge_opts opts;
static struct judging judging;
static int explain, predicate, short_of, seen;

static int record(void *ctx, struct rec *r, struct err *e)
{
	struct judge *j = judging_open(&judging, e);

	(void)ctx;
	if (!j || judging_complete(&judging, r, e))
		return -1;
	return judge_verify(j, r, e);
}

static void done(void *ctx, const struct rec *r)
{
	struct str text = STR_INIT;

	(void)ctx;
	if (r->kind != REC_CANDIDATE)
		return;
	seen = 1;
	if (judge_status(r, "verify") != ST_OK)
		short_of = 1;
	if (!explain)
		return;
	judge_explain(r, &text);
	if (!text.failed)
		fputs(text.buf, stdout);
	fflush(stdout);
	str_release(&text);
}

static void written(void *ctx)
{
	(void)ctx;
	judging_written(&judging);
}

static void idle(void *ctx, int fd)
{
	(void)ctx;
	judging_rest(&judging, fd, 0);
}

static const char *status(void *ctx, const struct rec *r)
{
	enum status s = judge_status(r, "verify");

	(void)ctx;
	return s == ST_NONE ? NULL : status_name(s);
}

static const struct opt table[] = {
	JUDGE_OPTS(opts),
	{ OPT_FLAG, 0, "explain", NULL,
	  "print what a person needs instead of records", &explain, 0, 0 },
	{ OPT_FLAG, 'e', "exit-status", NULL,
	  "exit 1 when a candidate is not verified", &predicate, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-verify",
	.operands = "[FILE | DIR ...]",
	.purpose = "verify candidates against their reference",
	.opts = table,
	.common = OPTS_RECORDS | OPTS_SEED | OPTS_JOBS,
	.max_operands = -1,
};

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.name = "ca-verify", .record = record,
		.directory = judging_directory, .wants = judging_wants,
		.done = done, .status = status, .idle = idle,
		.rest = written,
	};
	struct err e = ERR_INIT;
	struct common c;
	int first, rc;

	judge_defaults(&opts);
	first = opt_parse(&tool, argc, argv, &c);
	if (explain && strcmp(c.out, "-"))
		die(CA_USAGE, "-o is for records, and --explain writes none");
	if (judging_init(&judging, &opts, &c, &e))
		die_err(&e);
	if (judging_share(&judging, &ops, &c, argv + first, &e))
		die_err(&e);
	if (!judging.crew)
		judging_warm(&judging, NULL, 0, first == argc);
	ops.silent = explain;
	rc = stage_run(&ops, &c, argc, argv, first);
	judging_close(&judging);
	opt_release(&tool);
	if (!rc && predicate && (short_of || !seen))
		rc = CA_FALSE;
	return rc;
}
