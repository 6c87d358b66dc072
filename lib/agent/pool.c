/* SPDX-License-Identifier: Apache-2.0
 *
 * One small loop over children, judges and input.
 */
#define _GNU_SOURCE
#include "agent/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/feed.h"
#include "agent/home.h"
#include "agent/wire.h"
#include "base/io.h"
#include "base/sig.h"
#include "build/limits.h"
#include "cu/lease.h"
#include "jail/jail.h"
#include "net/net.h"
#include "rec/progress.h"

#define LEAVE_S 20		/* for children to end after a signal */
#define CORES_BUILD 4		/* for one that builds */
#define STARTS 2		/* of one rollout that crashes */
/* One that cannot be started is tried again so long after; and while nothing
 * runs that could make room, so many times. */
#define MISS_NS 500000000
#define MISSES 20
#define AT_ONCE 2		/* that begin, for each core */
#define SAID 3			/* faults that are told of */
/* An endpoint that ended several rollouts in a row gets none for so long, for
 * each of them. */
#define DOWN_S 30
#define DOWN_MOST 20

struct child {
	pid_t pid;		/* 0: a free slot */
	int pidfd, sock;
	int began;		/* it has begun to work */
	int starts, misses;	/* times it was started, and could not be */
	int64_t again;		/* then it is tried, where it could not */
	size_t endpoint;	/* which of them it asks */
	struct str in, out;
	struct job job;
};

struct end {
	int faults;		/* rollouts in a row that ended by it */
	int64_t until;		/* then it is asked again */
};

struct pool {
	const struct pool_opts *o;
	const struct common *c;
	struct agent_opts *a;
	struct child *child;
	size_t n, running, given;
	size_t beginning, at_once;	/* that have not begun; at most */
	size_t held;		/* that could not be started yet */
	struct end *end;	/* of each endpoint, or of the command */
	struct judges *judges;
	struct feed *feed;
	struct home home;
	struct output out;
	struct progress progress;
	struct pollfd *fds;
	int exit_code, gone, estimated;
	size_t faults;		/* rollouts that came to nothing */
};

/* As many descriptors as the children need. */
static int raise_limit(size_t n, struct err *e)
{
	const rlim_t want = 3 * n + 256;
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= want)
		return 0;
	l.rlim_cur = l.rlim_max < want ? l.rlim_max : want;
	if (l.rlim_cur < want || setrlimit(RLIMIT_NOFILE, &l))
		return err_set(e, CA_CONFIG, "%zu rollouts at once need %llu "
			       "open files, the limit is %llu (ulimit -n)", n,
			       (unsigned long long)want,
			       (unsigned long long)l.rlim_max);
	return 0;
}

static void give_answer(void *ctx, int who, uint32_t n, const char *line,
			size_t len)
{
	struct pool *p = ctx;
	struct child *c = &p->child[who];

	wire_put(&c->out, n, line, len);
}

/* In the child: nothing of the parent's but its own socket. */
static void forget_parent(struct pool *p, const struct child *own)
{
	size_t i;

	for (i = 0; i < p->n; i++)
		if (p->child[i].pid && &p->child[i] != own) {
			close(p->child[i].pidfd);
			close(p->child[i].sock);
		}
	judges_close_fds(p->judges);
	feed_close_fd(p->feed);
	if (p->out.fd > 2)
		close(p->out.fd);
}

static void run_child(struct pool *p, struct child *c, int sock,
		      pid_t parent) CA_NORETURN;
static void run_child(struct pool *p, struct child *c, int sock, pid_t parent)
{
	struct agent_task t = {
		.task = c->job.task, .code = c->job.code,
		.endpoint = p->o->endpoints->n ?
			    p->o->endpoints->item[c->endpoint] : NULL,
		.seed = c->job.seed, .resume = c->job.resume, .judge = sock
	};
	struct err e = ERR_INIT;
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(CA_TEMPFAIL);
	setpgid(0, 0);
	forget_parent(p, c);
	memcpy(t.id, c->job.id, sizeof(t.id));
	rc = sig_forked(&e) || rollout_run(p->a, &t, &e);
	if (rc && e.code != CA_TEMPFAIL)
		complain("%s: %s", t.id, e.msg);
	_exit(rc ? e.code ? e.code : CA_SOFTWARE : 0);
}

static size_t load_of(const struct pool *p, size_t endpoint)
{
	size_t n = 0, i;

	for (i = 0; i < p->n; i++)
		n += p->child[i].pid && p->child[i].endpoint == endpoint;
	return n;
}

/* The endpoint with the fewest rollouts; one that is down ends them fast, and
 * would get them all. */
static size_t choose_endpoint(const struct pool *p)
{
	size_t best = 0, least = SIZE_MAX, k, n;
	int64_t now = now_ns();

	for (k = 0; k < p->o->endpoints->n; k++) {
		n = load_of(p, k) + (p->end[k].until > now ? p->n : 0);
		if (n < least) {
			least = n;
			best = k;
		}
	}
	return best;
}

/* What a rollout that ended says of its endpoint. */
static void note_endpoint(struct pool *p, const struct child *c, enum stop s)
{
	struct end *end = &p->end[c->endpoint];

	end->faults = s == STOP_API_ERROR ? end->faults + 1 : 0;
	end->until = end->faults > 1 ? deadline_in(end->faults < DOWN_MOST ?
			DOWN_S * end->faults : DOWN_S * DOWN_MOST) : 0;
}

/* Forks, and has a descriptor that tells of its end. */
static int fork_child(struct pool *p, struct child *c, int pair[2],
		      struct err *e)
{
	pid_t parent = getpid();

	fflush(NULL);
	c->pid = sig_fork();
	if (!c->pid) {
		close(pair[0]);
		run_child(p, c, pair[1], parent);
	}
	if (c->pid < 0) {
		c->pid = 0;
		return err_sys(e, CA_SOFTWARE, "cannot fork");
	}
	c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	if (c->pidfd >= 0)
		return 0;
	err_sys(e, CA_SOFTWARE, "cannot watch a process");
	kill(c->pid, SIGKILL);
	while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
		;
	c->pid = 0;
	return -1;
}

static int start_child(struct pool *p, struct child *c, struct err *e)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return err_sys(e, CA_SOFTWARE, "cannot make a socket");
	c->in.cap = c->out.cap = 2 * WIRE_MAX;
	c->endpoint = choose_endpoint(p);
	rc = fork_child(p, c, pair, e);
	close(pair[1]);
	if (rc) {
		close(pair[0]);
		return -1;
	}
	c->sock = pair[0];
	fcntl(c->sock, F_SETFL, O_NONBLOCK);
	c->starts++;
	c->misses = 0;
	c->began = 0;
	p->running++;
	p->beginning++;
	return 0;
}

/* Makes room for the next to begin. */
static void note_begun(struct pool *p, struct child *c)
{
	if (c->began)
		return;
	c->began = 1;
	p->beginning--;
}

static void write_line(struct pool *p, const char *line, size_t len)
{
	struct err e = ERR_INIT;

	if (p->gone)
		return;
	if (output_write(&p->out, line, len, &e)) {
		p->gone = 1;
		p->exit_code = errno == EPIPE ? 128 + SIGPIPE : CA_IOERR;
		if (errno != EPIPE)
			complain("%s", e.msg);
	}
}

static void pass_line(void *ctx, const char *line, size_t len)
{
	write_line(ctx, line, len);
}

/* What ended the rollout of this record. */
static enum stop stop_of(const struct json *record)
{
	return stop_parse(json_str(json_path(record, "outcome.stop_reason"),
				   "infra_error"));
}

/* A rollout that nobody can learn from: the first few are worth a look. */
static void note_fault(struct pool *p, const struct json *record, enum stop s)
{
	if (++p->faults > SAID)
		return;
	progress_wipe(&p->progress);
	warn("%s: %s: %s%s", json_get_str(record, "id", "?"), stop_name(s),
	     json_str(json_path(record, "outcome.why"), "?"),
	     p->faults == SAID ? "; further ones are only counted" : "");
}

/* Once: budgets and cost hold what nobody counted. */
static void note_estimate(struct pool *p)
{
	if (p->estimated++)
		return;
	progress_wipe(&p->progress);
	warn("the model's answers have no usage: tokens are estimated, one "
	     "for every three bytes");
}

/* Puts the record of a rollout out, and what became of it into the counts. */
static enum stop emit(struct pool *p, const struct str *line)
{
	struct json *j = json_parse(line->buf, line->len - 1, JSON_MAX_LINE,
				    NULL, NULL);
	enum stop s = stop_of(j);

	write_line(p, line->buf, line->len);
	p->progress.out++;
	progress_count(&p->progress, stop_name(s));
	if (stop_is_fault(s))
		note_fault(p, j, s);
	if (json_bool(json_path(j, "cost.estimated"), 0))
		note_estimate(p);
	json_free(j);
	return s;
}

/* A rollout that left no record. */
static void emit_failure(struct pool *p, struct child *c, enum stop s,
			 const char *why)
{
	struct agent_task t = {
		.task = c->job.task, .code = c->job.code, .seed = c->job.seed
	};
	struct str line = STR_INIT;

	memcpy(t.id, c->job.id, sizeof(t.id));
	rollout_failure(p->a, &t, s, why, &line);
	if (!line.failed)
		emit(p, &line);
	str_release(&line);
}

static void emit_ended(struct pool *p, struct child *c, int status)
{
	char why[128];

	if (WIFSIGNALED(status))
		snprintf(why, sizeof(why), "its process was killed by signal "
			 "%d", WTERMSIG(status));
	else
		snprintf(why, sizeof(why), "its process ended with status %d",
			 WEXITSTATUS(status));
	emit_failure(p, c, WIFSIGNALED(status) ? STOP_KILLED :
		     STOP_INFRA_ERROR, why);
}

static void free_child(struct child *c)
{
	str_release(&c->in);
	str_release(&c->out);
	job_release(&c->job);
	memset(c, 0, sizeof(*c));
}

/* What could not be started, as there were no processes or descriptors, is
 * tried again: those that run give some back when they end. */
static void hold(struct pool *p, struct child *c, const struct err *e)
{
	str_release(&c->in);
	str_release(&c->out);
	if (!p->running || !c->misses)
		c->misses++;
	if (c->misses < MISSES) {
		c->again = now_ns() + MISS_NS;
		p->held++;
		return;
	}
	emit_failure(p, c, STOP_INFRA_ERROR, e->msg);
	free_child(c);
}

static void reap_child(struct pool *p, struct child *c)
{
	struct str line = { .cap = JSON_MAX_LINE + 1 };
	struct err e = ERR_INIT;
	int status = 0, interrupted;
	enum stop s;

	while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
		;
	judges_forget(p->judges, (int)(c - p->child));
	close(c->sock);
	close(c->pidfd);
	c->pid = 0;
	p->running--;
	note_begun(p, c);
	str_release(&c->in);
	str_release(&c->out);
	interrupted = sig_caught() || p->gone;
	if (!status && !home_record(&p->home, c->job.id, &line, &e)) {
		s = emit(p, &line);
		note_endpoint(p, c, s);
		/* What can go on needs its files. */
		home_clean(&p->home, c->job.id, p->o->keep ||
			   stop_is_fault(s));
	} else if (!interrupted && c->starts < STARTS &&
		   WIFSIGNALED(status)) {
		c->job.resume = 1;
		if (start_child(p, c, &e))
			hold(p, c, &e);
		str_release(&line);
		return;
	} else if (!interrupted) {
		emit_ended(p, c, status);
	}
	str_release(&line);
	free_child(c);
}

/* Its questions, and the answers that wait for it. */
static void talk(struct pool *p, struct child *c)
{
	struct wire_msg m;
	int rc;

	while (c->out.len) {
		ssize_t n = send(c->sock, c->out.buf, c->out.len,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n <= 0)
			break;
		memmove(c->out.buf, c->out.buf + n, c->out.len - (size_t)n);
		c->out.len -= (size_t)n;
		if (!c->out.len)
			str_release(&c->out);
	}
	rc = wire_read(c->sock, &c->in, &m);
	while (rc > 0) {
		if (m.n == WIRE_BEGUN)
			note_begun(p, c);
		else
			judges_ask(p->judges, (int)(c - p->child), &m);
		wire_drop(&c->in);
		rc = wire_next(&c->in, &m);
	}
}

/* The record of a rollout that needs nothing more. */
static int is_finished(struct pool *p, const struct job *job,
		       struct str *line)
{
	struct json *j;
	int fault;

	if (!job->resume || home_record(&p->home, job->id, line, NULL))
		return 0;
	j = json_parse(line->buf, line->len - 1, JSON_MAX_LINE, NULL, NULL);
	fault = stop_is_fault(stop_of(j));
	json_free(j);
	return !fault;
}

/* Starts what fits; what is finished already is put out at once. */
static void start_more(struct pool *p)
{
	struct err e = ERR_INIT;
	struct str line = { .cap = JSON_MAX_LINE + 1 };
	size_t i;

	p->held = 0;
	for (i = 0; i < p->n && p->beginning < p->at_once && !sig_caught() &&
	     !p->gone; i++) {
		struct child *c = &p->child[i];

		if (c->pid)
			continue;
		if (c->misses && now_ns() < c->again) {
			p->held++;
			continue;
		}
		if (!c->misses) {
			if (!feed_next(p->feed, &c->job))
				continue;
			p->given++;
		}
		str_reset(&line);
		if (c->job.refused || is_finished(p, &c->job, &line)) {
			if (!c->job.refused)
				emit(p, &line);
			free_child(c);
			i--;
		} else if (start_child(p, c, &e)) {
			hold(p, c, &e);
		}
	}
	str_release(&line);
}

static void show_progress(struct pool *p)
{
	double read = feed_share(p->feed);

	p->progress.running = (int)p->running;
	if (read > 0 && p->given)
		p->progress.share = read * (double)p->progress.out /
				    (double)p->given;
	progress_draw(&p->progress);
}

/* Whether one that is read now can begin. */
static int has_room(const struct pool *p)
{
	return p->running + p->held < p->n && p->beginning < p->at_once;
}

static void loop(struct pool *p)
{
	size_t n, i, base;

	for (;;) {
		start_more(p);
		show_progress(p);
		if (sig_caught() || p->gone)
			return;
		if (!p->running && !p->held && feed_ended(p->feed))
			return;
		p->fds[0] = (struct pollfd){ sig_fd(), POLLIN, 0 };
		p->fds[1] = (struct pollfd){ has_room(p) ? feed_fd(p->feed) :
			-1, POLLIN, 0 };
		base = n = 2 + judges_fds(p->judges, p->fds + 2, 256);
		for (i = 0; i < p->n; i++) {
			struct child *c = &p->child[i];
			int on = c->pid != 0;

			p->fds[n++] = (struct pollfd){ on ? c->pidfd : -1,
				POLLIN, 0 };
			p->fds[n++] = (struct pollfd){ on ? c->sock : -1,
				(short)(POLLIN | (c->out.len ? POLLOUT : 0)),
				0 };
		}
		poll(p->fds, n, 1000);
		judges_run(p->judges);
		for (i = 0; i < p->n; i++) {
			struct child *c = &p->child[i];
			const struct pollfd *f = &p->fds[base + 2 * i];

			if (c->pid && (f[1].revents || c->out.len))
				talk(p, c);
			if (c->pid && f[0].revents)
				reap_child(p, c);
		}
	}
}

/* After a signal, or when nobody reads on: all have to go. */
static void end_children(struct pool *p)
{
	int64_t end = deadline_in(LEAVE_S);
	size_t i;

	for (i = 0; i < p->n; i++)
		if (p->child[i].pid)
			kill(p->child[i].pid, SIGTERM);
	for (i = 0; i < p->n; i++) {
		struct child *c = &p->child[i];
		struct pollfd f = { c->pidfd, POLLIN, 0 };

		if (!c->pid)
			continue;
		if (poll(&f, 1, deadline_ms(end)) <= 0)
			kill(c->pid, SIGKILL);
		reap_child(p, c);
	}
}

static size_t cores(void)
{
	struct limits l;

	limits_read(&l);
	return (size_t)l.cores;
}

/* A build keeps several cores busy, where it has several files. */
static size_t builders(size_t n)
{
	return n < 2 * CORES_BUILD ? 1 : n < 8 * CORES_BUILD ?
	       n / CORES_BUILD : 8;
}

/* What would end every rollout is told before the first one. */
static int check_place(const struct agent_opts *a, struct err *e)
{
	struct lease cpu = { -1, -1 };
	struct jail_caps caps;
	int rc;

	/* Processes that cannot be had now may be had later. */
	if (!a->single_turn && !jail_probe(&caps, NULL) &&
	    caps.command < JAIL_FULL)
		return err_set(e, CA_UNAVAILABLE, "commands of a model need a "
			       "jail of level full: %s", caps.why);
	rc = strcmp(a->device, "cpu") ? 0 : lease_open(&cpu, "cpu", e);
	lease_close(&cpu);
	return rc;
}

static int open_all(struct pool *p, int argc, char **argv, int first,
		    struct err *e)
{
	const struct judges_opts j = {
		.commands = p->o->judges, .own = p->o->own_judge,
		.devices = p->o->devices,
		.judges = (size_t)p->o->own_judges,
		.builders = builders(cores()),
		.seconds = p->a->judge_s, .answer = give_answer, .ctx = p
	};
	const struct feed_opts f = {
		.agent = p->a, .k = p->o->k, .resume = p->o->resume,
		.limit = p->c->limit, .progress = &p->progress,
		.pass = pass_line,
		.ctx = p
	};

	p->at_once = AT_ONCE * cores();
	if (home_open(&p->home, p->o->dir, p->a, e) || check_place(p->a, e) ||
	    output_open(&p->out, p->c->out, e))
		return -1;
	p->judges = judges_open(&j, e);
	p->feed = feed_open(&f, argc, argv, first, e);
	p->child = calloc(p->n, sizeof(*p->child));
	p->end = calloc(p->o->endpoints->n + 1, sizeof(*p->end));
	p->fds = calloc(2 * p->n + 300, sizeof(*p->fds));
	if (p->judges && p->feed && p->child && p->end &&
	    p->fds)
		return 0;
	return e->code ? -1 : err_set(e, CA_SOFTWARE, "out of memory");
}

static int finish(struct pool *p)
{
	struct err e = ERR_INIT;
	int code = p->exit_code ? p->exit_code : feed_code(p->feed);

	if (sig_caught())
		code = 128 + sig_caught();
	/* As all stages do: what was finished before a signal is kept. */
	if (output_close(&p->out, !p->gone, &e) && !code) {
		complain("%s", e.msg);
		code = e.code;
	}
	progress_wipe(&p->progress);
	if (p->c->verbose)
		progress_totals(&p->progress);
	if (sig_caught())
		warn("interrupted; --resume --dir '%s' goes on", p->a->dir);
	else if (p->o->keep && !p->o->dir)
		warn("work directories are kept in '%s'", p->a->dir);
	home_close(&p->home, p->o->keep || p->o->dir || sig_caught());
	return code ? code : p->faults ? CA_TEMPFAIL : 0;
}

int pool_run(const struct pool_opts *o, const struct common *c, int argc,
	     char **argv, int first, struct err *e)
{
	struct pool p = { .o = o, .c = c, .a = o->agent,
			  .n = c->jobs > 0 ? (size_t)c->jobs : 8 };
	int rc = -1;

	signal(SIGPIPE, SIG_IGN);
	progress_init(&p.progress, "ca-agent", c->quiet);
	if (raise_limit(p.n, e) || sig_catch(e) || net_start(e))
		return -1;
	if (!open_all(&p, argc, argv, first, e)) {
		loop(&p);
		end_children(&p);
		judges_close(p.judges);
		p.judges = NULL;
		rc = finish(&p);
	}
	if (rc < 0)
		home_close(&p.home, o->dir != NULL);
	judges_close(p.judges);
	feed_close(p.feed);
	free(p.child);
	free(p.end);
	free(p.fds);
	net_stop();
	return rc;
}
