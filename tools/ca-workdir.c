/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-workdir: work directories from references and records, packages from
 * candidates.
 */
#include <string.h>

#include "base/err.h"
#include "base/io.h"
#include "base/opt.h"
#include "base/utf8.h"
#include "build/build.h"
#include "build/cache.h"
#include "build/device.h"
#include "build/export.h"
#include "build/starter.h"
#include "build/unpack.h"
#include "build/workdir.h"
#include "rec/stage.h"

#define MODEL_MAX ((size_t)1 << 20)

static struct common common;
static struct build_opts build;
static struct mac_key key;
static const char *trust_key;

static const struct opt options[] = {
	{ OPT_STR, 'd', "device", "DEVICE", "export: cpu, cuda or cuda:N "
	  "(default: cuda if there is a GPU, else cpu)", &build.device, 0, 0 },
	{ OPT_STR, 0, "arch", "SM", "export: CUDA architecture, as sm_90a",
	  &build.arch, 0, 0 },
	{ OPT_STR, 0, "trust-key", "FILE", "export: key of the results' MACs",
	  &trust_key, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 }
};

static const struct tool tool = {
	"ca-workdir", "init MODEL DIR | unpack DIR [FILE ...] | "
	"export DIR [FILE | WORKDIR]",
	"make work directories and packages", options, 0, 2, -1
};

static int init(int argc, char **argv, int first)
{
	struct err e = ERR_INIT;
	struct str code = STR_INIT;
	size_t bad, line, mark;

	if (argc - first != 2)
		die(CA_USAGE, "init takes a model.py and a directory");
	if (read_file(argv[first], MODEL_MAX, &code, &e) < 0)
		die_err(&e);
	if (!code.len)
		die(CA_DATAERR, "'%s' is empty", argv[first]);
	bad = utf8_bad(code.buf, code.len, &line);
	if (bad)
		die(CA_DATAERR, "'%s' is no Python source in UTF-8: line %zu, "
		    "byte %zu", argv[first], line, bad);
	mark = utf8_mark(code.buf, code.len);
	if (starter_write(code.buf + mark, code.len - mark, argv[first + 1],
			  &e) < 0)
		die_err(&e);
	str_release(&code);
	return 0;
}

static int unpack_one(void *ctx, struct rec *r, struct err *e)
{
	const char *path = unpack_record(ctx, r, e);

	if (path && common.verbose)
		warn("made '%s'", path);
	return path ? 0 : -1;
}

static int has_workdir(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_TASK || k == REC_CANDIDATE || k == REC_TRAJECTORY;
}

static int unpack(int argc, char **argv, int first)
{
	struct err e = ERR_INIT;
	struct stage_ops ops = {
		.name = "ca-workdir", .record = unpack_one,
		.wants = has_workdir, .silent = 1,
	};
	int rc;

	common.jobs = 1;
	ops.ctx = unpack_new(argv[first], &e);
	if (!ops.ctx)
		die_err(&e);
	rc = stage_run(&ops, &common, argc, argv, first + 1);
	unpack_free(ops.ctx);
	return rc;
}

struct exporting {
	const char *dir;
	int seen;
};

static int export_one(void *ctx, struct rec *r, struct err *e)
{
	struct exporting *x = ctx;

	if (x->seen++)
		return err_set(e, CA_DATAERR, "export takes one candidate; "
			       "this is number %d", x->seen);
	if (build_candidate(r, &build, &key, e) < 0 || rec_refresh(r, e) < 0)
		return -1;
	return export_package(r, &build, x->dir, e);
}

static int directory(void *ctx, const char *path, struct rec *r,
		     struct err *e)
{
	(void)ctx;
	return workdir_read(path, r, e);
}

static int is_candidate(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_CANDIDATE;
}

static int export(int argc, char **argv, int first)
{
	struct exporting x = { argv[first], 0 };
	struct stage_ops ops = {
		.name = "ca-workdir", .record = export_one,
		.directory = directory, .wants = is_candidate, .silent = 1,
		.ctx = &x,
	};
	struct err e = ERR_INIT;
	int rc;

	common.jobs = 1;
	if (!build.device)
		build.device = device_default();
	if (device_check(build.device, &e) < 0 ||
	    (build.arch && device_check_arch(build.arch, &e) < 0) ||
	    cache_limit(NULL, &e) || mac_key_load(&key, trust_key, &e) < 0)
		die_err(&e);
	rc = stage_run(&ops, &common, argc, argv, first + 1);
	if (rc == 0 && !x.seen)
		die(CA_DATAERR, "no candidate to export");
	return rc;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv, int first);
	} action[] = { { "init", init }, { "unpack", unpack },
		       { "export", export } };
	int first = opt_parse(&tool, argc, argv, &common), rc;
	size_t i, n = sizeof(action) / sizeof(*action);

	for (i = 0; i < n && strcmp(argv[first], action[i].name); i++)
		;
	if (i == n)
		die(CA_USAGE, "'%s' is not init, unpack or export",
		    argv[first]);
	rc = action[i].run(argc, argv, first + 1);
	opt_release(&tool);
	return rc;
}
