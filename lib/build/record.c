/* SPDX-License-Identifier: Apache-2.0
 *
 * The dry run of a candidate that builds its own kernels.
 */
#define _GNU_SOURCE
#include "build/record.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/sig.h"
#include "build/said.h"
#include "cu/lease.h"
#include "torch/torch.h"

#define SAID_MAX ((size_t)12 << 20)	/* bytes of what a child says */
#define HOST_SECONDS 120
#define RUN_SECONDS 60
#define MEMORY ((int64_t)4 << 30)	/* fake tensors hold none */
#define QUEUE_SECONDS 3600.0

/* A job in the hands of the thread that keeps the host. */
struct turn {
	const struct record_job *job;
	struct recorded *out;
	struct err *e;
	int rc, done;
};

/* The host dies with the thread that started it, hence one of its own. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	int running, stop;
	struct turn *turn;		/* the one in work */
	struct torch_host *host;	/* the thread's */
} keeper = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0,
	     NULL, NULL };

/* Sealed, so that its other holder cannot make it shorter while we read. */
static int make_region(struct err *e)
{
	int fd = memfd_create("cuda-agent-said",
			      MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_sys(e, CA_UNAVAILABLE, "cannot make a memfd");
	if (ftruncate(fd, (off_t)SAID_MAX) ||
	    fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		err_sys(e, CA_UNAVAILABLE, "cannot make a memfd");
		close(fd);
		return -1;
	}
	return fd;
}

static int jail_level(const struct record_job *j, const char **name,
		      struct err *e)
{
	struct jail_caps caps;

	*name = jail_level_name(JAIL_NONE);
	if (j->no_jail)
		return 0;
	if (jail_probe(&caps, e))
		return -1;
	*name = jail_level_name(caps.self);
	if (caps.self >= JAIL_UID)
		return 0;
	return err_set(e, CA_UNAVAILABLE, "cannot confine the dry run of "
		       "candidates here: %s (--no-jail runs them unconfined)",
		       caps.why);
}

static int host_ready(int no_jail, struct err *e)
{
	if (keeper.host && (torch_pump(keeper.host, NULL) ||
			    torch_fd(keeper.host) < 0)) {
		torch_close(keeper.host);
		keeper.host = NULL;
	}
	if (!keeper.host)
		keeper.host = torch_start("record", !no_jail, e);
	if (keeper.host && !torch_ready(keeper.host, HOST_SECONDS, e))
		return 0;
	torch_close(keeper.host);
	keeper.host = NULL;
	return -1;
}

__attribute__((format(printf, 2, 3)))
static int nothing(struct recorded *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out->text, sizeof(out->text), fmt, ap);
	va_end(ap);
	return 0;
}

/* The child ended instead of answering. */
static int ended(struct torch_child *c, struct recorded *out, struct err *e)
{
	int st;

	if (torch_kill(keeper.host, c, e))
		return -1;
	st = c->status;
	if (torch_fd(keeper.host) < 0)
		return err_set(e, CA_TEMPFAIL, "the torch host ended during "
			       "a dry run");
	if (WIFSIGNALED(st))
		return nothing(out, "the dry run was ended by signal %d",
			       WTERMSIG(st));
	return nothing(out, "the dry run ended its process with status %d",
		       WIFEXITED(st) ? WEXITSTATUS(st) : -1);
}

/* Answers take what the child's code may take; 1 when there is one. */
static int hear(struct torch_child *c, double seconds, struct ca_msg *m,
		struct recorded *out, struct err *e)
{
	switch (torch_recv(c, m, deadline_in(seconds))) {
	case WAIT_OK:
		break;
	case WAIT_TIMEOUT:
		if (sig_caught())
			return err_set(e, CA_TEMPFAIL, "interrupted");
		out->timed_out = 1;
		return nothing(out, "the dry run takes longer than %g s",
			       seconds);
	case WAIT_GONE:
		return ended(c, out, e);
	case WAIT_GARBAGE:
		return nothing(out, "the dry run answered nonsense");
	}
	m->text[sizeof(m->text) - 1] = '\0';
	if (m->end == END_JAIL || m->end == END_BAD_REQUEST)
		return err_set(e, CA_UNAVAILABLE, "dry run: %s", m->text);
	if (m->end == END_OK)
		return 1;
	return nothing(out, "%s", m->text);
}

static int request(struct torch_child *c, const struct str *req,
		   const int *fds, size_t n, double seconds, struct ca_msg *m,
		   struct recorded *out, struct err *e)
{
	if (req->failed)
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (torch_send(c, req->buf, req->len, fds, n, NULL))
		return ended(c, out, e);
	return hear(c, seconds, m, out, e);
}

static void write_load(const struct record_job *j, struct str *req)
{
	/* "sm_90a" is 9.0 */
	int cc = j->cuda ? atoi(j->arch + 3) : 0;
	struct jw w;

	jw_init(&w, req);
	jw_obj(&w);
	jw_kstr(&w, "op", "load");
	jw_kint(&w, "task", 0);
	jw_kint(&w, "code", 1);
	jw_kstr(&w, "target", j->cuda ? "cuda" : "cpu");
	jw_key(&w, "capability");
	jw_arr(&w);
	jw_int(&w, cc / 10);
	jw_int(&w, cc % 10);
	jw_end_arr(&w);
	jw_kint(&w, "threads", 1);
	jw_end_obj(&w);
}

static int read_said(int fd, size_t len, struct recorded *out, struct err *e)
{
	char *text = len && len <= SAID_MAX ? malloc(len) : NULL;
	struct err bad = ERR_INIT;

	if (!text)
		return len && len <= SAID_MAX ?
		       err_set(e, CA_SOFTWARE, "out of memory") :
		       nothing(out, "the dry run answered nonsense");
	if (pread(fd, text, len, 0) == (ssize_t)len)
		out->said = json_parse(text, len, SAID_MAX, NULL, &bad);
	free(text);
	return out->said ? 0 :
	       nothing(out, "what the dry run asked for cannot be read: %s",
		       bad.msg);
}

/* Maps the region, loads the code, reads what it says. */
static int converse(struct torch_child *c, const struct record_job *j,
		    int region, struct recorded *out, struct err *e)
{
	double seconds = j->seconds > 0 && j->seconds < RUN_SECONDS ?
			 j->seconds : RUN_SECONDS;
	struct str map = STR_INIT, load = STR_INIT;
	struct ca_msg m;
	int fds[2] = { -1, -1 }, rc = -1;

	str_addf(&map, "{\"op\":\"map\",\"regions\":[{\"name\":\"desc\","
		 "\"bytes\":%zu,\"host\":true}]}", SAID_MAX);
	write_load(j, &load);
	fds[0] = memfd_of(j->task, strlen(j->task), e);
	fds[1] = memfd_of(j->code, strlen(j->code), e);
	if (fds[0] < 0 || fds[1] < 0)
		goto out;
	rc = request(c, &map, &region, 1, RUN_SECONDS, &m, out, e);
	if (rc == 1)
		rc = request(c, &load, fds, 2, seconds, &m, out, e);
	if (rc == 1)
		rc = read_said(region, (size_t)m.desc_len, out, e);
out:
	for (size_t i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	str_release(&map);
	str_release(&load);
	return rc;
}

static int run(const struct record_job *j, struct recorded *out,
	       struct err *e)
{
	struct torch_spawn s = { .role = "record", .device = "cpu",
				 .mem_bytes = MEMORY };
	struct torch_child c;
	int region = -1, lease = -1, rc = -1;

	if (jail_level(j, &s.jail, e) || host_ready(j->no_jail, e))
		return -1;
	/* Not while a clock of the toolkit's runs. */
	lease = lease_take("cpu", 0, QUEUE_SECONDS, e);
	region = lease < 0 ? -1 : make_region(e);
	if (region >= 0 && !torch_spawn(keeper.host, &s, &c, e)) {
		rc = converse(&c, j, region, out, e);
		if (torch_kill(keeper.host, &c, rc ? NULL : e))
			rc = -1;
	}
	if (region >= 0)
		close(region);
	if (lease >= 0)
		close(lease);
	return rc;
}

/* A host that somebody killed is started once more. */
static int run_twice(const struct record_job *j, struct recorded *out,
		     struct err *e)
{
	struct err first = ERR_INIT;

	if (!run(j, out, &first))
		return 0;
	if (first.code != CA_TEMPFAIL || sig_caught())
		return err_set(e, first.code, "%s", first.msg);
	return run(j, out, e);
}

static void *keep(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&keeper.lock);
	while (!keeper.stop) {
		struct turn *t = keeper.turn;

		if (!t || t->done) {
			pthread_cond_wait(&keeper.changed, &keeper.lock);
			continue;
		}
		pthread_mutex_unlock(&keeper.lock);
		t->rc = run_twice(t->job, t->out, t->e);
		pthread_mutex_lock(&keeper.lock);
		t->done = 1;
		pthread_cond_broadcast(&keeper.changed);
	}
	pthread_mutex_unlock(&keeper.lock);
	torch_close(keeper.host);
	keeper.host = NULL;
	return NULL;
}

/* At exit. */
static void end(void)
{
	pthread_mutex_lock(&keeper.lock);
	keeper.stop = 1;
	pthread_cond_broadcast(&keeper.changed);
	pthread_mutex_unlock(&keeper.lock);
	pthread_join(keeper.thread, NULL);
}

/* Called with the lock. */
static int start(struct err *e)
{
	if (keeper.running)
		return 0;
	if (pthread_create(&keeper.thread, NULL, keep, NULL))
		return err_set(e, CA_SOFTWARE, "cannot start a thread");
	keeper.running = 1;
	atexit(end);
	return 0;
}

static int run_in_turn(const struct record_job *j, struct recorded *out,
		       struct err *e)
{
	struct turn t = { j, out, e, -1, 0 };

	pthread_mutex_lock(&keeper.lock);
	if (start(e) == 0) {
		while (keeper.turn)
			pthread_cond_wait(&keeper.changed, &keeper.lock);
		keeper.turn = &t;
		pthread_cond_broadcast(&keeper.changed);
		while (!t.done)
			pthread_cond_wait(&keeper.changed, &keeper.lock);
		keeper.turn = NULL;
		pthread_cond_broadcast(&keeper.changed);
	}
	pthread_mutex_unlock(&keeper.lock);
	return t.rc;
}

int record_run(const struct record_job *j, struct recorded *out,
	       struct err *e)
{
	char key[CACHE_KEY];
	int known = !said_key(j, key);

	memset(out, 0, sizeof(*out));
	out->said = known ? said_get(key) : NULL;
	if (out->said)
		return 0;
	if (run_in_turn(j, out, e))
		return -1;
	if (known && out->said)
		said_put(key, out->said);
	return 0;
}
