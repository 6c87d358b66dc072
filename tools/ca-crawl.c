/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-crawl: tasks out of PyTorch, files and published data.
 */
#include <signal.h>

#include "base/opt.h"
#include "base/sig.h"
#include "synth/crawl.h"

static struct crawl_opts opts;
static const char *part;

static const struct opt table[] = {
	{ OPT_STR, 'd', "device", "DEV",
	  "cpu, cuda or cuda:N (default: a GPU if there is one)",
	  &opts.device, 0, 0 },
	{ OPT_NUM, 0, "ms", "MS",
	  "grow inputs until a call of eager PyTorch takes this long (3)",
	  &opts.ms, 0.001, 1e6 },
	{ OPT_SIZE, 0, "max-bytes", "SIZE",
	  "the most that inputs may take together (512M; 3500M on CUDA)",
	  &opts.max_bytes, 0, 0 },
	{ OPT_LIST, 0, "only", "TEXT",
	  "of torch and transformers, only names that hold this; may be "
	  "repeated", &opts.only, 0, 0 },
	{ OPT_STR, 0, "part", "K/N",
	  "of torch and transformers, only the Kth of N parts", &part, 0, 0 },
	{ OPT_STR, 0, "summary", "FILE",
	  "add numbers and reasons to FILE, a line of JSON for each source",
	  &opts.summary, 0, 0 },
	{ OPT_INT, 0, "min-yield", "N",
	  "a source with fewer tasks is an error (1)", &opts.min_yield,
	  0, 1e9 },
	{ OPT_SECONDS, 0, "task-timeout", "TIME",
	  "for each operator (120s; 10s to grow on CUDA)", &opts.task_s, 0, 0 },
	{ OPT_SECONDS, 0, "lease-timeout", "TIME",
	  "how long to wait for the device (600s)", &opts.lease_s, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-crawl",
	.operands = "torch | transformers | FILE | DIR ...",
	.purpose = "make tasks out of PyTorch, files and published data",
	.opts = table,
	.common = OPTS_OUT | OPTS_LIMIT | OPTS_SEED | OPTS_JOBS,
	.min_operands = 1,
	.max_operands = -1,
};

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	struct output out;
	struct common c;
	int first, rc = 0;

	crawl_defaults(&opts);
	first = opt_parse(&tool, argc, argv, &c);
	opts.limit = c.limit;
	opts.jobs = c.jobs;
	opts.seeded = c.seeded;
	opts.seed = c.seed;
	opts.verbose = c.verbose;
	if (part && crawl_part(&opts, part, &e))
		die_err(&e);
	if (sig_catch(&e) || output_open(&out, c.out, &e))
		die_err(&e);
	for (int i = first; i < argc && !rc; i++)
		rc = crawl_source(&opts, argv[i], &out, &e);
	/* What was made stays, even where a source yields too little. */
	if (output_close(&out, 1, rc ? NULL : &e))
		rc = -1;
	if (sig_caught())
		return 128 + sig_caught();
	if (rc)
		die_err(&e);
	opt_release(&tool);
	return 0;
}
