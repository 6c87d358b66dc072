/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-combine: tasks out of several operators each.
 */
#include <signal.h>
#include <stdlib.h>

#include "base/sig.h"
#include "rec/stage.h"
#include "synth/combine.h"
#include "synth/task.h"

static struct combine_opts opts;
static const char *mix;
static struct combine *combine;

static const struct opt table[] = {
	{ OPT_STR, 'd', "device", "DEV",
	  "cpu, cuda or cuda:N (default: a GPU if there is one)",
	  &opts.device, 0, 0 },
	{ OPT_INT, 0, "count", "N", "how many tasks to make (100)",
	  &opts.count, 0, 1e9 },
	{ OPT_STR, 0, "mix", "SHARES",
	  "shares of x1 to x5 and transformers (the paper's)", &mix, 0, 0 },
	{ OPT_STR, 0, "not-in", "FILE",
	  "make no task whose code is among these tasks", &opts.not_in,
	  0, 0 },
	{ OPT_STR, 0, "summary", "FILE",
	  "add numbers and reasons to FILE, a line of JSON", &opts.summary,
	  0, 0 },
	{ OPT_SIZE, 0, "max-bytes", "SIZE",
	  "the most that any result may take (512M; 3500M on CUDA)",
	  &opts.max_bytes, 0, 0 },
	{ OPT_STR, 0, "llm", "URL", "a model writes the stacks: "
	  "OpenAI-compatible server, as http://host:8000/v1", &opts.llm.url,
	  0, 0 },
	{ OPT_STR, 0, "model", "NAME", "the model's name there",
	  &opts.llm.model, 0, 0 },
	{ OPT_STR, 0, "prompt", "FILE", "what it is asked (ours)",
	  &opts.llm.prompt, 0, 0 },
	{ OPT_STR, 0, "body", "JSON", "further members of each request",
	  &opts.llm.body, 0, 0 },
	{ OPT_NUM, 0, "temperature", "T", "of sampling (the server's)",
	  &opts.llm.temperature, 0, 10 },
	{ OPT_INT, 0, "max-tokens", "N", "of one answer (4096)",
	  &opts.llm.max_tokens, 1, 1e9 },
	{ OPT_INT, 0, "answers", "N", "ask for no more (ten for each task)",
	  &opts.llm.answers, 1, 1e9 },
	{ OPT_INT, 0, "retries", "N", "of a request that failed (7)",
	  &opts.llm.retries, 0, 1000 },
	{ OPT_SECONDS, 0, "answer-timeout", "TIME", "for an answer, with its "
	  "retries (10m)", &opts.llm.answer_s, 0, 0 },
	{ OPT_SECONDS, 0, "task-timeout", "TIME", "for each draw (60s)",
	  &opts.task_s, 0, 0 },
	{ OPT_SECONDS, 0, "lease-timeout", "TIME",
	  "how long to wait for the device (600s)", &opts.lease_s, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-combine",
	.operands = "[FILE ...]",
	.purpose = "make tasks out of several operators each",
	.opts = table,
	.common = OPTS_OUT | OPTS_LIMIT | OPTS_SEED | OPTS_JOBS,
	.max_operands = -1,
};

static int record(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	return combine_take(combine, r, e);
}

/* What belongs to a model, and comes from elsewhere than the options. */
static void check_model(const struct common *c)
{
	struct combine_opts plain;

	combine_defaults(&plain);
	if (!opts.llm.url != !opts.llm.model)
		die(CA_USAGE, "--llm and --model need each other");
	if (!opts.llm.url && (opts.llm.prompt || opts.llm.body || c->jobs ||
			      opts.llm.temperature >= 0 ||
			      opts.llm.max_tokens != plain.llm.max_tokens ||
			      opts.llm.answers != plain.llm.answers ||
			      opts.llm.retries != plain.llm.retries ||
			      opts.llm.answer_s > plain.llm.answer_s ||
			      opts.llm.answer_s < plain.llm.answer_s))
		die(CA_USAGE, "--prompt, --body, --temperature, --max-tokens, "
		    "--answers, --retries, --answer-timeout and -j need "
		    "--llm");
	opts.llm.key = getenv("OPENAI_API_KEY");
	if (opts.llm.key && !*opts.llm.key)
		opts.llm.key = NULL;
	opts.llm.jobs = c->jobs ? c->jobs : 1;
	opts.verbose = c->verbose;
}

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.name = "ca-combine", .record = record, .wants = task_wants,
		.silent = 1,
	};
	struct err e = ERR_INIT;
	struct output out;
	struct common c, reading;
	int first, rc;

	combine_defaults(&opts);
	first = opt_parse(&tool, argc, argv, &c);
	opts.seed = c.seeded ? c.seed : 1;
	check_model(&c);
	signal(SIGPIPE, opts.llm.url ? SIG_IGN : SIG_DFL);
	if (mix && combine_mix(&opts, mix, &e))
		die_err(&e);
	combine = combine_open(&opts, &e);
	if (!combine)
		die_err(&e);
	reading = c;
	reading.out = "/dev/null";
	rc = stage_run(&ops, &reading, argc, argv, first);
	if (!rc) {
		if (output_open(&out, c.out, &e))
			die_err(&e);
		rc = combine_run(combine, &out, &e) ? -1 : 0;
		/* What was made stays. */
		if (output_close(&out, 1, rc ? NULL : &e))
			rc = -1;
	}
	combine_close(combine);
	if (sig_caught())
		return 128 + sig_caught();
	if (rc < 0)
		die_err(&e);
	opt_release(&tool);
	return rc;
}
