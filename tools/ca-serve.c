/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-serve: what does the model say?
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "nn/complete.h"
#include "rec/stage.h"

static struct engine_opts gen = { .device = "cpu" };
static struct complete_opts opts = { .temperature = 1, .top_p = 1 };
static const char *type = "auto";
static int64_t ctx, cache;
static int generate, exact;
static struct complete *complete;

static int record(void *ctx_, struct rec *r, struct err *e)
{
	(void)ctx_;
	return complete_record(complete, r, e);
}

static int wants(void *ctx_, enum rec_kind k)
{
	(void)ctx_;
	return k == REC_PROMPT;
}

static const struct opt options[] = {
	{ OPT_FLAG, 0, "generate", NULL,
	  "complete the prompts that are read", &generate, 0, 0 },
	{ OPT_STR, 'm', "model", "DIR",
	  "Hugging Face folder with the model", &gen.dir, 0, 0 },
	{ OPT_STR, 0, "device", "NAME", "cpu (the default), cuda or cuda:N",
	  &gen.device, 0, 0 },
	{ OPT_CHOICE, 0, "dtype", "auto|fp32|bf16",
	  "type of the weights; auto: the file's", &type, 0, 0 },
	{ OPT_FLAG, 0, "exact", NULL,
	  "log-probabilities as a training step has them, bit for bit",
	  &exact, 0, 0 },
	{ OPT_INT, 0, "ctx", "N", "longest sequence in tokens", &ctx,
	  1, 0x1p24 },
	{ OPT_INT, 0, "cache", "N", "tokens of keys and values kept", &cache,
	  1, 0x1p30 },
	{ OPT_INT, 0, "max-tokens", "N", "new tokens at most",
	  &opts.max_tokens, 0, 0x1p24 },
	{ OPT_NUM, 0, "temperature", "T", "0: the likeliest token",
	  &opts.temperature, 0, 100 },
	{ OPT_NUM, 0, "top-p", "P", "draw from the likeliest that make up P",
	  &opts.top_p, 1e-6, 1 },
	{ OPT_INT, 0, "top-k", "K", "draw from the K likeliest; 0: all",
	  &opts.top_k, 0, 1e9 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-serve",
	.operands = "[FILE ...]",
	.purpose = "complete prompts with a language model",
	.opts = options,
	.common = OPTS_RECORDS | OPTS_JOBS | OPTS_SEED,
	.max_operands = -1,
};

static void set_options(struct common *c)
{
	if (!generate)
		die(CA_USAGE, "--generate is needed: there is no server yet");
	if (!gen.dir)
		die(CA_USAGE, "--model DIR is needed");
	if (!c->jobs)
		c->jobs = 8;
	gen.slots = (int)c->jobs;
	gen.ctx = (int)ctx;
	gen.cache = cache;
	gen.flags = exact ? GPU_EXACT : 0;
	opts.seeded = c->seeded;
	opts.seed = c->seed;
	opts.no_prov = c->no_prov;
	opts.interrupted = stage_interrupted;
}

static void say_totals(struct complete *c)
{
	struct gen_stats s;

	complete_stats(c, &s);
	warn("%llu tokens of prompts (%llu shared), %llu new in %.2f s: "
	     "%.1f a second", (unsigned long long)s.prompt_tokens,
	     (unsigned long long)s.shared_tokens,
	     (unsigned long long)s.new_tokens, s.busy_s,
	     s.busy_s > 0 ? (double)s.new_tokens / s.busy_s : 0.0);
}

int main(int argc, char **argv)
{
	const struct stage_ops ops = {
		.name = "ca-serve", .record = record, .wants = wants,
	};
	struct str table = STR_INIT;
	struct err e = ERR_INIT;
	struct common c;
	int first, rc;

	gpu_calm_threads(argv);
	first = opt_parse(&tool, argc, argv, &c);
	set_options(&c);
	if (engine_type(&gen, type, &e))
		die_err(&e);
	complete = complete_open(&gen, &opts, c.verbose ? &table : NULL, &e);
	if (table.buf)
		fputs(table.buf, stderr);
	str_release(&table);
	if (!complete)
		die_err(&e);
	rc = stage_run(&ops, &c, argc, argv, first);
	if (c.verbose)
		say_totals(complete);
	complete_close(complete);
	opt_release(&tool);
	return rc;
}
