/* SPDX-License-Identifier: Apache-2.0
 *
 * One rollout from its directory to its record: made or taken up again, then
 * turn after turn until something ends it.
 */
#define _GNU_SOURCE
#include "agent/rollout.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"
#include "base/sig.h"

#define EMPTIES_MAX 2

double spent_s(const struct rollout *r)
{
	return r->before_s + (double)(now_ns() - r->began) / 1e9;
}

struct jw *event_begin(struct rollout *r, const char *name)
{
	struct jw *w = log_event(&r->log, name);

	jw_knum(w, "at", spent_s(r));
	return w;
}

int event_end(struct rollout *r, struct err *e)
{
	return log_commit(&r->log, state_apply, &r->s, e);
}

static void on_verdict(void *ctx, enum ask s, struct rec *c,
		       int64_t wall_ns)
{
	struct rollout *r = ctx;
	struct err e = ERR_INIT;

	/* What cannot be logged did not happen. */
	log_verdict(r, s, "", c, wall_ns, &e);
}

static void on_ask(void *ctx, enum ask s)
{
	struct rollout *r = ctx;
	struct err e = ERR_INIT;
	struct jw *w = event_begin(r, "try");

	jw_kstr(w, "stage", ask_name(s));
	event_end(r, &e);
}

/* The first event: what the model is told. */
static int log_begin(struct rollout *r, struct err *e)
{
	struct str text = STR_INIT, user = STR_INIT;
	char digest[HASH_HEX];
	struct jw *w;
	int rc = -1;

	if (prompt_system(r->o, &text, e) ||
	    place_digest(&r->place, digest, NULL, e))
		goto out;
	prompt_user(r->o, r->t->code, &user);
	w = event_begin(r, "begin");
	jw_kstr(w, "id", r->t->id);
	jw_kstr(w, "task", r->t->task);
	jw_kbool(w, "eval", r->o->eval);
	jw_kstr(w, "digest", digest);
	jw_key(w, "messages");
	jw_arr(w);
	if (text.len) {
		jw_obj(w);
		jw_kstr(w, "role", "system");
		jw_kstr(w, "content", text.buf);
		jw_end_obj(w);
	}
	jw_obj(w);
	jw_kstr(w, "role", "user");
	jw_kstr(w, "content", user.buf);
	jw_end_obj(w);
	jw_end_arr(w);
	rc = event_end(r, e);
out:
	str_release(&text);
	str_release(&user);
	return rc;
}

/* The log of a try before this one stays beside. */
static int set_aside(struct rollout *r, struct err *e)
{
	char old[64];
	int i;

	if (lseek(r->log.fd, 0, SEEK_END) == 0)
		return 0;
	for (i = 1; i < 1000; i++) {
		snprintf(old, sizeof(old), "log.%d.ndjson", i);
		if (access(old, F_OK))
			break;
	}
	log_close(&r->log);
	if (rename(ROLLOUT_LOG, old))
		return err_sys(e, CA_CANTCREAT, "cannot keep the old log");
	return log_open(&r->log, ROLLOUT_LOG, e);
}

static int start_over(struct rollout *r, struct err *e)
{
	place_close(&r->place);
	state_release(&r->s);
	r->before_s = 0;
	if (set_aside(r, e) ||
	    (!access(r->work, F_OK) && remove_tree(r->work, e)) ||
	    place_make(r->work, r->t->code, r->o->fixed, (uid_t)r->uid, e) ||
	    place_open(&r->place, r->work, r->o->fixed, e))
		return -1;
	return log_begin(r, e);
}

/* Takes the log up; 1 when the rollout can go on from there. */
static int take_up(struct rollout *r, struct err *e)
{
	struct err why = ERR_INIT;
	char digest[HASH_HEX];

	if (log_replay(&r->log, state_apply, &r->s, &why) < 0 ||
	    !r->s.started)
		return 0;
	state_settle(&r->s);
	r->before_s = r->s.wall_s;
	if (r->s.finished && !stop_is_fault(r->s.stop))
		return 1;
	if (place_open(&r->place, r->work, r->o->fixed, &why) ||
	    place_digest(&r->place, digest, NULL, e))
		return 0;
	/* Files that a command half changed belong to no turn. */
	if (strcmp(digest, r->s.digest))
		return 0;
	/* Neither the model nor its work was to blame: once more. */
	if (!r->s.finished)
		return 1;
	event_begin(r, "again");
	return event_end(r, e) ? -1 : 1;
}

static int make_dirs(struct rollout *r, struct err *e)
{
	snprintf(r->dir, sizeof(r->dir), "%s/%s", r->o->dir, r->t->id);
	snprintf(r->work, sizeof(r->work), "%s/work", r->dir);
	r->uid = geteuid() ? (int)geteuid() : (int)jail_new_uid();
	if (mkdir(r->dir, 0755) && errno != EEXIST)
		return err_sys(e, CA_CANTCREAT, "cannot make '%s'", r->dir);
	if (chdir(r->dir))
		return err_sys(e, CA_CANTCREAT, "cannot enter '%s'", r->dir);
	return 0;
}

/* From here on as the uid that the jail's commands have, so that the kernel
 * keeps what is not theirs. */
static int drop_rights(const struct rollout *r, struct err *e)
{
	uid_t uid = (uid_t)r->uid;

	if (geteuid())
		return 0;
	if (chown(r->dir, uid, uid))
		return err_sys(e, CA_CANTCREAT, "cannot hand '%s' over",
			       r->dir);
	/* What an earlier process left; it had another uid. */
	if (r->t->resume && place_give(r->dir, uid, e))
		return -1;
	if (syscall(SYS_setgroups, 0, NULL) ||
	    syscall(SYS_setresgid, uid, uid, uid) ||
	    syscall(SYS_setresuid, uid, uid, uid))
		return err_sys(e, CA_SOFTWARE, "cannot become uid %d",
			       r->uid);
	/* Or /proc/self would be root's. */
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	return 0;
}

static int open_parts(struct rollout *r, const struct jail_at *at,
		      struct err *e)
{
	const struct tries_opts t = {
		.socket = "box/judge.sock", .judge = r->t->judge,
		.place = &r->place, .code = r->t->code,
		.rules = r->o->rules,
		.judge_s = r->o->judge_s, .budget = r->o->gpu_calls,
		.verdict = on_verdict, .asked = on_ask, .ctx = r
	};
	static char path[4200];
	static const char *ro[] = { NULL, NULL };
	struct shells_opts s = {
		.place = &r->place, .at = at, .ro = ro, .path = path,
		.disk = r->o->disk, .cpu = r->cpu.lock >= 0 ? &r->cpu : NULL,
		.deadline = r->deadline
	};

	ro[0] = r->o->python;
	snprintf(path, sizeof(path), "/judge/bin%s%s%s", r->o->python ? ":" :
		 "", r->o->python ? r->o->python : "", r->o->python ? "/bin" :
		 "");
	if (mkdir("box", 0755) && errno != EEXIST)
		return err_sys(e, CA_CANTCREAT, "cannot make a directory");
	r->tries = tries_open(&t, e);
	if (!r->tries)
		return -1;
	s.idle = tries_idle(r->tries);
	r->shells = shells_open(&s, e);
	if (!r->shells)
		return -1;
	tries_shells(r->tries, r->shells);
	tries_set_used(r->tries, r->s.gpu_calls);
	shells_set_cwd(r->shells, r->s.cwd);
	shells_set_count(r->shells, r->s.shells);
	ask_idle(r, &r->thinking);
	model_idle(r->model, &r->thinking);
	return 0;
}

static int stop(struct rollout *r, enum stop s, const char *why,
		struct err *e)
{
	struct jw *w = event_begin(r, "end");

	jw_kstr(w, "reason", stop_name(s));
	if (why)
		jw_kstr(w, "why", why);
	return event_end(r, e);
}

static int note(struct rollout *r, const char *text, struct err *e)
{
	jw_kstr(event_begin(r, "note"), "text", text);
	return event_end(r, e);
}

/* The only answer has come: it is made of files, or of no use. */
static int take_single(struct rollout *r, struct err *e)
{
	enum stop full = state_used_up(&r->s, r->o);
	struct err why = ERR_INIT;

	if (r->s.said == SAID_CUT && (full == STOP_CONTEXT ||
				      full == STOP_COST))
		return stop(r, full, NULL, e);
	if (r->s.said == SAID_CUT)
		return stop(r, STOP_FORMAT, "the answer was cut off", e);
	if (r->s.said != SAID_TEXT)
		return stop(r, STOP_FORMAT, "the answer has no text", e);
	if (single_files(r, r->s.text.buf, &why))
		return stop(r, STOP_FORMAT, why.msg, e);
	return stop(r, STOP_FINAL, NULL, e);
}

/* What an answer without calls, or one that was cut, leads to; 1: nothing. */
static int react(struct rollout *r, struct err *e)
{
	if (r->o->single_turn && r->s.said != SAID_NONE)
		return take_single(r, e);
	if (r->s.said == SAID_TEXT)
		return stop(r, STOP_FINAL, NULL, e);
	if (r->s.empties >= EMPTIES_MAX && r->s.said != SAID_NONE)
		return stop(r, STOP_FORMAT, "answers without text and calls, "
			    "or cut off", e);
	if (r->s.said == SAID_NOTHING)
		return note(r, "Your last message was empty. Go on with a "
			    "tool call, or say that you are done.", e);
	if (r->s.said == SAID_CUT)
		return note(r, "Your last message was cut off at the token "
			    "limit, and nothing of it was executed. Go on in "
			    "smaller steps.", e);
	return 1;
}

/* The budget that is used up. */
static enum stop used_up(const struct rollout *r)
{
	if (r->deadline && now_ns() >= r->deadline)
		return STOP_WALL;
	if (r->tries && tries_exhausted(r->tries))
		return STOP_COST;
	return state_used_up(&r->s, r->o);
}

static int step(struct rollout *r, struct err *e)
{
	enum stop s;
	int rc;

	if (r->s.stop != STOP_NONE) {
		shells_close(r->shells);
		r->shells = NULL;
		tries_shells(r->tries, NULL);
		return grade(r, e);
	}
	if (r->s.next < r->s.calls.n)
		return act(r, e);
	rc = r->s.turn ? react(r, e) : 1;
	if (rc <= 0)
		return rc;
	s = used_up(r);
	return s == STOP_NONE ? ask_model(r, e) : stop(r, s, NULL, e);
}

/* What the jail of a command shows: the tree, in it what is fixed, the
 * judge's commands and its socket. */
static void show(const struct rollout *r, struct jail_at at[], char *names)
{
	size_t n = 0, i;
	char *p = names;

#define NAME(...) (p += snprintf(p, 4400, __VA_ARGS__) + 1)
	at[n++] = (struct jail_at){ r->place.path, PLACE_SHOWN, 1 };
	for (i = 0; i < r->place.nfixed; i++) {
		at[n].from = p;
		NAME("%s/%s", r->place.path, r->place.fixed[i]);
		at[n].to = p;
		NAME(PLACE_SHOWN "/%s", r->place.fixed[i]);
		at[n++].rw = 0;
	}
	at[n].from = p;
	NAME("%s/.bin", r->o->dir);
	at[n++].to = "/judge/bin";
	at[n].from = p;
	NAME("%s/box", r->dir);
	at[n++].to = "/judge/box";
#undef NAME
}

static int prepare(struct rollout *r, struct err *e)
{
	int rc;

	if (make_dirs(r, e) || log_open(&r->log, ROLLOUT_LOG, e))
		return -1;
	rc = r->t->resume ? take_up(r, e) : 0;
	if (!rc)
		rc = start_over(r, e) ? -1 : 1;
	r->began = now_ns();
	if (r->o->wall_s > 0)
		r->deadline = deadline_in(r->o->wall_s - r->before_s);
	if (rc < 0)
		return -1;
	if (!r->s.finished)
		r->model = model_open(r->o, r->t->endpoint, e);
	if (!r->s.finished && !r->model)
		return -1;
	if (!strcmp(r->o->device, "cpu") && lease_open(&r->cpu, "cpu", e))
		return -1;
	return drop_rights(r, e);
}

int rollout_run(const struct agent_opts *o, const struct agent_task *t,
		struct err *e)
{
	struct rollout *r = calloc(1, sizeof(*r));
	struct jail_at *at = calloc(PLACE_FIXED_MAX + 4, sizeof(*at));
	char *names = malloc((PLACE_FIXED_MAX + 4) * 2 * 4400);
	int rc = -1;

	if (!r || !at || !names) {
		err_set(e, CA_SOFTWARE, "out of memory");
		goto out;
	}
	/* The jail's uid is another one; and files get the same modes for
	 * everybody. */
	umask(022);
	r->o = o;
	r->t = t;
	r->began = now_ns();
	r->log.fd = r->place.fd = r->cpu.gate = r->cpu.lock = -1;
	state_init(&r->s);
	r->s.no_prov = o->no_prov;
	rc = prepare(r, e);
	if (!rc && !r->s.finished) {
		show(r, at, names);
		rc = open_parts(r, at, e) ||
		     wire_send(t->judge, WIRE_BEGUN, "", 0, e) ? -1 : 0;
	}
	while (!rc && !r->s.finished)
		rc = step(r, e);
	if (!rc)
		rc = log_sync(&r->log, e) ? -1 : record_write(r, e);
	shells_close(r->shells);
	model_close(r->model);
	tries_close(r->tries);
	place_close(&r->place);
	lease_close(&r->cpu);
	log_close(&r->log);
	state_release(&r->s);
	str_release(&r->body);
out:
	free(r);
	free(at);
	free(names);
	return rc;
}
