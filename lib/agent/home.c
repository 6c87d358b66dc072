/* SPDX-License-Identifier: Apache-2.0
 *
 * Where rollouts live.
 */
#define _GNU_SOURCE
#include "agent/home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/place.h"
#include "base/io.h"
#include "base/hash.h"
#include "base/path.h"

/* The commands of a jail, all one program. */
static const char *const commands[] = {
	"ca-compile", "ca-verify", "ca-profile", "sudo"
};

void job_release(struct job *j)
{
	free(j->task);
	free(j->code);
	memset(j, 0, sizeof(*j));
}

static int set_skill(struct agent_opts *a, struct err *e)
{
	static char path[CA_PATH_MAX];
	const char *name = !strcmp(a->device, "cpu") ? "cpu-kernels" :
						       "cuda-kernels";

	if (a->skill) {
		if (realpath(a->skill, path)) {
			a->skill = path;
			return 0;
		}
		return err_sys(e, CA_NOINPUT, "cannot find the skill '%s'",
			       a->skill);
	}
	a->skill = path;
	return path_skill(path, name, e);
}

/* The environment that has torch, so that commands can import it. */
static void set_python(struct agent_opts *a)
{
	static char path[CA_PATH_MAX];
	struct stat st;
	char *p;

	if (path_python(path, NULL) || !(p = strstr(path, "/bin/python3")) ||
	    p[12])
		return;
	*p = '\0';
	p[0] = '\0';
	if (starts_with(path, "/usr") || stat(path, &st))
		return;
	a->python = path;
}

/* A jail's uid has to get there. */
static int check_reach(const char *dir, struct err *e)
{
	char path[4096];
	struct stat st;
	size_t i;

	for (i = 1; geteuid() == 0; i++) {
		if (dir[i] && dir[i] != '/')
			continue;
		snprintf(path, sizeof(path), "%.*s", (int)i, dir);
		if (!stat(path, &st) && !(st.st_mode & 001))
			return err_set(e, CA_CONFIG, "'%s' lets only its "
				       "owner pass; choose another --dir",
				       path);
		if (!dir[i])
			break;
	}
	return 0;
}

static int put_commands(const struct home *h, struct err *e)
{
	char from[CA_PATH_MAX], path[4200];
	struct str s = STR_INIT;
	size_t i;
	int rc = -1;

	snprintf(path, sizeof(path), "%s/.bin", h->dir);
	if (path_helper(from, "agent-client", e) || mkdir_p(path, 0755, e) ||
	    read_file(from, (size_t)16 << 20, &s, e))
		goto out;
	for (i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		snprintf(path, sizeof(path), "%s/.bin/%s", h->dir,
			 commands[i]);
		if (write_file_atomic(path, s.buf, s.len, 0755, e))
			goto out;
	}
	rc = 0;
out:
	str_release(&s);
	return rc;
}

/* Jails of another uid read it, whatever the caller lets others do. */
static int put_fixed(const struct home *h, const char *skill,
		     char out[CA_PATH_MAX], struct err *e)
{
	mode_t mask = umask(022);
	int rc = place_fixed(h->dir, skill, out, e);

	umask(mask);
	return rc;
}

/* Over what work directories hold, whose name ends with its digest, and what
 * is said first. */
static int set_skill_id(struct agent_opts *a, struct err *e)
{
	static char sum[HASH_HEX];
	struct str s = STR_INIT;
	int rc;

	str_adds(&s, strrchr(a->fixed, '-'));
	rc = prompt_system(a, &s, e);
	sha256_hex(s.buf ? s.buf : "", s.len, sum);
	a->skill_id = sum;
	str_release(&s);
	return rc ? err_wrap(e, "the skill") : 0;
}

/* What no rollout could do with this skill is told before the first one. */
static int try_skill(const struct home *h, const char *fixed, struct err *e)
{
	char path[4200];
	struct place p;
	int rc;

	snprintf(path, sizeof(path), "%s/.try.%d", h->dir, (int)getpid());
	p.fd = -1;
	rc = place_make(path, "", fixed, geteuid(), e) ||
	     place_open(&p, path, fixed, e) ? -1 : 0;
	if (!rc && place_is_fixed(&p, "kernels", strlen("kernels")))
		rc = err_set(e, CA_CONFIG, "it holds kernels/, where the "
			     "model could not write then");
	place_close(&p);
	remove_tree(path, NULL);
	return rc ? err_wrap(e, "the skill") : 0;
}

int home_open(struct home *h, const char *dir, struct agent_opts *a,
	      struct err *e)
{
	static char fixed[CA_PATH_MAX];
	char fresh[CA_PATH_MAX + 64], base[CA_PATH_MAX];

	if (!dir) {
		if (path_cache(base, "rollouts", e))
			return -1;
		snprintf(fresh, sizeof(fresh), "%s/%lld.%d", base,
			 (long long)time(NULL), (int)getpid());
		dir = fresh;
	}
	if (mkdir_p(dir, 0755, e))
		return -1;
	if (!realpath(dir, h->dir))
		return err_sys(e, CA_CANTCREAT, "cannot find '%s'", dir);
	if (strlen(h->dir) > 3900)
		return err_set(e, CA_CONFIG, "'%s' is too long a name", dir);
	if (check_reach(h->dir, e) || put_commands(h, e) || set_skill(a, e) ||
	    put_fixed(h, a->skill, fixed, e) || try_skill(h, fixed, e))
		return -1;
	a->fixed = fixed;
	if (set_skill_id(a, e))
		return -1;
	set_python(a);
	if (!getcwd(h->cwd, sizeof(h->cwd)))
		strcpy(h->cwd, "/");
	a->cwd = h->cwd;
	a->dir = h->dir;
	return 0;
}

void home_close(struct home *h, int keep)
{
	if (h->dir[0] && !keep)
		remove_tree(h->dir, NULL);
}

int home_record(const struct home *h, const char *id, struct str *line,
		struct err *e)
{
	char path[4300];

	snprintf(path, sizeof(path), "%s/%s/" ROLLOUT_RECORD, h->dir, id);
	if (read_file_at(AT_FDCWD, path, JSON_MAX_LINE + 1, 0, line, e))
		return -1;
	if (!line->len || line->buf[line->len - 1] != '\n')
		return err_set(e, CA_DATAERR, "'%s' is no record", path);
	return 0;
}

void home_clean(const struct home *h, const char *id, int keep)
{
	char path[4300];

	if (keep)
		return;
	snprintf(path, sizeof(path), "%s/%s/work", h->dir, id);
	if (!access(path, F_OK))
		remove_tree(path, NULL);
}

void agent_id(const struct agent_opts *o, const char *task, int64_t k,
	      char out[REC_ID_LEN])
{
	struct str s = STR_INIT;
	char sum[HASH_HEX];

	str_addf(&s, "%s\n%lld\n%s\n%d %d\n%d %llu", task, (long long)k,
		 o->model, o->single_turn, o->eval, o->seeded,
		 (unsigned long long)o->seed);
	str_addf(&s, "\n%lld %lld %lld %lld %lld\n%.17g %.17g %lld %d",
		 (long long)o->turns, (long long)o->ctx,
		 (long long)o->max_tokens, (long long)o->out_tokens,
		 (long long)o->gpu_calls, o->temperature, o->top_p,
		 (long long)o->top_k, o->token_ids);
	str_addf(&s, "\n%s\n%.*s\n%s\n%s\n%s", o->rules,
		 (int)strcspn(o->device, ":"), o->device,
		 o->grading ? o->grading : "", o->body ? o->body : "",
		 o->skill_id ? o->skill_id : "");
	str_addf(&s, "\n%.17g %lld", o->wall_s, (long long)o->disk);
	sha256_hex(s.buf ? s.buf : "", s.len, sum);
	snprintf(out, REC_ID_LEN, "%.32s", sum);
	str_release(&s);
}
