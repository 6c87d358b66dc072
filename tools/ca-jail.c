/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-jail: runs a command confined.
 */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/io.h"
#include "base/opt.h"
#include "base/sig.h"
#include "jail/command.h"
#include "rec/json.h"

enum { SIGNALLED = 128 };

static const char *level = "full", *dir;
static struct opt_list ro, rw, env;
static int gpu, probe;
static int64_t mem, tmp, file, procs, cpu;
static double timeout;

static const struct opt opts[] = {
	{ OPT_CHOICE, 0, "level", "full|uid", "how strong (full)", &level,
	  0, 0 },
	{ OPT_LIST, 0, "ro", "PATH", "show PATH, read-only", &ro, 0, 0 },
	{ OPT_LIST, 0, "rw", "PATH", "show PATH, writable", &rw, 0, 0 },
	{ OPT_STR, 0, "dir", "PATH", "working directory (/tmp)", &dir, 0, 0 },
	{ OPT_LIST, 0, "env", "NAME=VALUE", "add to the environment", &env,
	  0, 0 },
	{ OPT_FLAG, 0, "gpu", NULL, "show the NVIDIA devices", &gpu, 0, 0 },
	{ OPT_SECONDS, 0, "timeout", "TIME", "kill all of it after TIME",
	  &timeout, 0, 0 },
	{ OPT_SIZE, 0, "mem", "SIZE", "memory of each process", &mem, 0, 0 },
	{ OPT_INT, 0, "cpu", "N", "seconds of processor time of each process",
	  &cpu, 1, 1e9 },
	{ OPT_INT, 0, "procs", "N", "processes and threads (256)", &procs,
	  1, 1e6 },
	{ OPT_SIZE, 0, "file", "SIZE", "size of each file (2G)", &file, 0, 0 },
	{ OPT_SIZE, 0, "tmp", "SIZE", "size of /tmp and of /dev/shm (1G)",
	  &tmp, 0, 0 },
	{ OPT_FLAG, 0, "probe", NULL, "print what this machine offers", &probe,
	  0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 }
};

static const struct tool tool = {
	"ca-jail", "CMD [ARG ...]\n--probe", "Runs a command confined.",
	opts, OPTS_COMMAND, 0, -1
};

static int print_probe(struct err *e)
{
	struct str line = STR_INIT;
	struct jail_caps c;
	struct jw w;
	int rc = -1;

	if (jail_probe(&c, e))
		return -1;
	jw_init(&w, &line);
	jw_obj(&w);
	jw_kstr(&w, "kind", "jail");
	jw_kint(&w, "v", 1);
	jw_kstr(&w, "command", jail_level_name(c.command));
	jw_kstr(&w, "forked", jail_level_name(c.self));
	jw_kbool(&w, "bubblewrap", c.bwrap);
	jw_kbool(&w, "namespaces", c.userns);
	jw_kint(&w, "landlock", c.landlock);
	jw_kbool(&w, "seccomp", c.seccomp);
	jw_kstr(&w, "why", c.why);
	jw_end_obj(&w);
	str_addc(&line, '\n');
	if (line.failed)
		err_set(e, CA_SOFTWARE, "out of memory");
	else
		rc = write_full(STDOUT_FILENO, line.buf, line.len, e);
	str_release(&line);
	return rc;
}

/* A list of options as the library wants it. */
static const char *const *listed(struct arena *a, const struct opt_list *l)
{
	const char **v = arena_alloc(a, l->n + 1, sizeof(*v));
	size_t i;

	if (!v)
		die(CA_SOFTWARE, "out of memory");
	for (i = 0; i < l->n; i++)
		v[i] = l->item[i];
	return v;
}

static int run(char **argv, struct child_result *r, struct err *e)
{
	struct child_opts o = { .argv = (const char *const *)argv, .pass = 1 };
	struct jail_cmd c = {
		.level = (enum jail_level)jail_level_parse(level),
		.gpu = gpu, .dir = dir, .tmp_bytes = tmp, .mem_bytes = mem,
		.file_bytes = file, .cpu_seconds = cpu, .procs = procs
	};
	struct arena a = ARENA_INIT;
	glob_t cards = { 0 };
	int rc;

	c.ro = listed(&a, &ro);
	c.rw = listed(&a, &rw);
	c.env = listed(&a, &env);
	if (gpu && !glob("/dev/nvidia[0-9]*", 0, NULL, &cards))
		c.dev = (const char *const *)cards.gl_pathv;
	if (dir && access(dir, F_OK))
		return err_sys(e, CA_CONFIG, "cannot find '%s'", dir);
	if (timeout > 0)
		o.deadline = deadline_in(timeout);
	rc = jail_run(&c, &o, r, e);
	globfree(&cards);
	arena_release(&a);
	return rc;
}

static int status(const struct child_result *r, int verbose)
{
	if (verbose)
		warn("level %s, %.3f seconds", level,
		     (double)r->wall_ns / 1e9);
	switch (r->how) {
	case CHILD_EXITED:
		return r->code;
	case CHILD_TIMEOUT:
		warn("killed after %g seconds", timeout);
		return SIGNALLED + SIGKILL;
	case CHILD_INTERRUPTED:
		return SIGNALLED + sig_caught();
	default:
		return SIGNALLED + r->code;
	}
}

int main(int argc, char **argv)
{
	struct child_result r = { 0 };
	struct err e = ERR_INIT;
	struct common common;
	int at = opt_parse(&tool, argc, argv, &common), rc;

	for (size_t i = 0; i < env.n; i++)
		if (!strchr(env.item[i], '=') || *env.item[i] == '=')
			die(CA_USAGE, "--env '%s' is no name=value",
			    env.item[i]);
	if (!probe && at == argc)
		die(CA_USAGE, "no command");
	if (probe && at < argc)
		die(CA_USAGE, "--probe takes no command");
	if (sig_catch(&e))
		die_err(&e);
	rc = probe ? print_probe(&e) : run(argv + at, &r, &e);
	opt_release(&tool);
	if (rc)
		die_err(&e);
	return probe ? 0 : status(&r, common.verbose);
}
