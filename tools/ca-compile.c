/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-compile: builds candidates.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"
#include "build/build.h"
#include "build/cache.h"
#include "build/device.h"
#include "build/limits.h"
#include "build/pairs.h"
#include "build/tasks.h"
#include "build/workdir.h"
#include "rec/rows.h"
#include "rec/stage.h"

static struct build_opts build;
static struct mac_key key;
static struct common common;
static const char *trust_key, *tasks_file;
static struct tasks *tasks;
static int exit_status;
static int pairs;
static int fell_short, seen;

static const struct opt options[] = {
	{ OPT_STR, 'd', "device", "DEVICE", "cpu, cuda or cuda:N (default: "
	  "cuda if there is a GPU, else cpu)", &build.device, 0, 0 },
	{ OPT_STR, 0, "arch", "SM", "CUDA architecture, as sm_90a (default: "
	  "the device's, else sm_90a)", &build.arch, 0, 0 },
	{ OPT_SECONDS, 0, "timeout", "TIME", "limit of one compiler run "
	  "(default: 120, paper and inline form 300)", &build.timeout, 0, 0 },
	{ OPT_CHOICE, 0, "headers", "auto|slim|real", "of torch, for paper and "
	  "inline form: our own small ones, its own, or the first that do "
	  "(default: auto)", &build.headers, 0, 0 },
	{ OPT_FLAG, 0, "pairs", NULL, "operands are collections of pairs "
	  "(ref_code, custom_code) as they are published", &pairs, 0, 0 },
	{ OPT_FLAG, 0, "no-jail", NULL, "run compilers unconfined; every "
	  "record then says so", &build.no_jail, 0, 0 },
	{ OPT_STR, 0, "tasks", "FILE", "tasks of candidates that hold only a "
	  "task's id", &tasks_file, 0, 0 },
	{ OPT_STR, 0, "trust-key", "FILE", "key of the results' MACs",
	  &trust_key, 0, 0 },
	{ OPT_FLAG, 'e', "exit-status", NULL, "exit 1 when a candidate did "
	  "not build", &exit_status, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 }
};

static const struct tool tool = {
	"ca-compile", "[FILE | DIR ...]",
	"build candidates into objects", options,
	OPTS_RECORDS | OPTS_JOBS, 0, -1
};

static int record(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	if (tasks_complete(tasks, r, e))
		return -1;
	return build_candidate(r, &build, &key, e);
}

static void ignored(void *ctx, const char *path, const char *why, int source)
{
	if (source || common.verbose)
		warn("%s/%s: ignored: %s", (const char *)ctx, path, why);
}

static int directory(void *ctx, const char *path, struct rec *r,
		     struct err *e)
{
	(void)ctx;
	return workdir_read_note(path, r, ignored, (void *)(uintptr_t)path, e);
}

static int collection(void *ctx, const char *path, struct err *e)
{
	(void)ctx;
	return rows_open(path, e);
}

static int pair(void *ctx, const char *line, size_t len, struct rec *r,
		struct err *e)
{
	(void)ctx;
	return pairs_adopt(line, len, r, e);
}

static int wants(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_CANDIDATE;
}

static void done(void *ctx, const struct rec *r)
{
	(void)ctx;
	if (r->kind != REC_CANDIDATE)
		return;
	seen = 1;
	if (build_status(r) != ST_OK)
		fell_short = 1;
}

static const char *status(void *ctx, const struct rec *r)
{
	enum status s = build_status(r);

	(void)ctx;
	return s == ST_NONE ? NULL : status_name(s);
}

static void prepare(void)
{
	struct err e = ERR_INIT;
	struct limits l;

	if (!build.device)
		build.device = device_default();
	if (device_check(build.device, &e) < 0 ||
	    (build.arch && device_check_arch(build.arch, &e) < 0) ||
	    cache_limit(NULL, &e) || mac_key_load(&key, trust_key, &e) < 0)
		die_err(&e);
	tasks = tasks_file ? tasks_read(tasks_file, &e) : NULL;
	if (tasks_file && !tasks)
		die_err(&e);
	if (common.jobs == 0) {
		limits_read(&l);
		common.jobs = l.cores;
	}
	build.jobs = (int)common.jobs;
	build.no_prov = common.no_prov;
	if (build.no_jail)
		warn("compilers run unconfined (--no-jail)");
}

int main(int argc, char **argv)
{
	struct stage_ops ops = {
		.name = "ca-compile", .record = record,
		.directory = directory, .adopt = pair, .wants = wants,
		.done = done, .status = status,
	};
	int first = opt_parse(&tool, argc, argv, &common), rc;

	prepare();
	if (pairs)
		ops.open = collection;
	rc = stage_run(&ops, &common, argc, argv, first);
	tasks_free(tasks);
	opt_release(&tool);
	return rc == 0 && exit_status && (fell_short || !seen) ? CA_FALSE : rc;
}
