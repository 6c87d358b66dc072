/* SPDX-License-Identifier: Apache-2.0
 *
 * What this machine offers, found by trying.
 */
#define _GNU_SOURCE
#include "jail/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "jail/command.h"
#include "jail/filter.h"
#include "jail/landlock.h"
#include "jail/report.h"
#include "jail/self.h"

static void try_filter(char *why, size_t len)
{
	struct sock_fprog p = { 0, NULL };
	struct err e = ERR_INIT;

	if (filter_make(FILTER_COMMAND, 0, &p, &e))
		snprintf(why, len, "%s", e.msg);
	else if (filter_enter(&p))
		snprintf(why, len, "this kernel refuses filters: %s",
			 strerror(errno));
	free(p.filter);
}

/* Root of a container may have no uid but its own. */
static void try_uid(char *why, size_t len)
{
	if (geteuid())
		snprintf(why, len, "level uid needs root");
	else
		jail_self_unshare(JAIL_UID, jail_new_uid(), why, len);
}

/* The three steps' first two, in a child's child. */
static void try_self(char *why, size_t len)
{
	int fd[2];
	pid_t pid;
	ssize_t n;

	if (jail_self_unshare(JAIL_FULL, jail_new_uid(), why, len))
		return;
	if (pipe2(fd, O_CLOEXEC) || (pid = fork()) < 0) {
		snprintf(why, len, "cannot fork: %s", strerror(errno));
		return;
	}
	if (!pid) {
		jail_self_mount(JAIL_FULL, NULL, NULL, 0, why, len);
		n = write(fd[1], why, strlen(why) + 1);
		_exit(n < 0);
	}
	close(fd[1]);
	n = read(fd[0], why, len - 1);
	why[n > 0 ? n : 0] = '\0';
	if (n <= 0)
		snprintf(why, len, "the first process of a namespace died");
	waitpid(pid, NULL, 0);
}

/* Runs one of the above in a child, since there is no way back; what it
 * wrote into `why` comes back, "" when all went well. */
static int in_child(void (*f)(char *, size_t), char *why, size_t len,
		    struct err *e)
{
	struct pollfd p = { -1, POLLIN, 0 };
	int fd[2];
	ssize_t n = 0;
	pid_t pid;

	if (pipe2(fd, O_CLOEXEC) || (pid = fork()) < 0)
		return err_sys(e, CA_SOFTWARE, "cannot fork");
	if (!pid) {
		why[0] = '\0';
		f(why, len);
		n = write(fd[1], why, strlen(why) + 1);
		_exit(n < 0);
	}
	close(fd[1]);
	p.fd = fd[0];
	if (poll(&p, 1, 10000) > 0)
		n = read(fd[0], why, len - 1);
	close(fd[0]);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (n <= 0)
		snprintf(why, len, "no answer from a child");
	else
		why[n] = '\0';
	return 0;
}

static void try_command(char *why, size_t len)
{
	static const char *const argv[] = { "true", NULL };
	struct jail_cmd c = { .level = JAIL_FULL };
	struct child_opts o = { .argv = argv };
	struct child_result r;
	struct err e = ERR_INIT;

	o.deadline = deadline_in(10);
	why[0] = '\0';
	if (jail_run(&c, &o, &r, &e))
		snprintf(why, len, "%.190s", e.msg);
	else if (r.how != CHILD_EXITED || r.code)
		snprintf(why, len, "bubblewrap does not run 'true'");
}

static int probe(struct jail_caps *c, struct err *e)
{
	char filter[200], self[200], command[200], uid[200];
	enum jail_level low;

	memset(c, 0, sizeof(*c));
	if (in_child(try_filter, filter, sizeof(filter), e) ||
	    in_child(try_uid, uid, sizeof(uid), e) ||
	    in_child(try_self, self, sizeof(self), e))
		return -1;
	try_command(command, sizeof(command));
	c->landlock = landlock_abi();
	c->seccomp = !filter[0];
	c->userns = !self[0];
	c->bwrap = !command[0];
	low = !c->landlock || !c->seccomp ? JAIL_NONE :
	      uid[0] ? JAIL_WEAK : JAIL_UID;
	c->command = c->bwrap && c->seccomp ? JAIL_FULL : low;
	c->self = c->userns && low > JAIL_NONE ? JAIL_FULL : low;
	snprintf(c->why, sizeof(c->why), "%s%s%s%s%s%s", filter,
		 filter[0] ? "; " : "",
		 c->landlock ? "" : "this kernel has no landlock; ",
		 self, self[0] && command[0] ? "; " : "", command);
	return 0;
}

int jail_probe(struct jail_caps *c, struct err *e)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct jail_caps known;
	static int done;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!done) {
		rc = probe(&known, e);
		done = !rc;
	}
	*c = known;
	pthread_mutex_unlock(&lock);
	return rc;
}

int jail_self_probe(int *level, char *why, size_t whylen)
{
	struct err e = ERR_INIT;
	struct jail_caps c;
	int rc = jail_probe(&c, &e);

	*level = rc ? JAIL_NONE : c.self;
	if (rc)
		return jail_report(&e, rc, why, whylen);
	if (why && whylen)
		snprintf(why, whylen, "%s", c.why);
	return 0;
}
