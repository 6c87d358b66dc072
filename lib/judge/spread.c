/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "judge/spread.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/child.h"
#include "base/io.h"
#include "base/sig.h"
#include "build/device.h"
#include "cu/cu.h"
#include "cu/lease.h"

#define LOOK_SECONDS 30

size_t spread_free(const char *const *lease, size_t n, int *out)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		int fd = lease_take(lease[i], 1, 0, NULL);

		if (fd < 0)
			continue;
		close(fd);
		out[found++] = (int)i;
	}
	return found;
}

static size_t look(const struct gpus *g, int gpu[SPREAD_MOST])
{
	const char *lease[SPREAD_MOST];
	int n = g->n < SPREAD_MOST ? g->n : SPREAD_MOST;

	for (int i = 0; i < n; i++)
		lease[i] = g->gpu[i].uuid;
	return spread_free(lease, (size_t)n, gpu);
}

static void tell(int fd, pid_t parent)
{
	struct spread s = { .n = 0 };
	struct gpus g;

	setpgid(0, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent ||
	    sig_forked(NULL))
		_exit(CA_SOFTWARE);
	gpus_find(&g);
	s.n = look(&g, s.gpu);
	_exit(write_full(fd, &s, sizeof(s), NULL) ? CA_SOFTWARE : 0);
}

static size_t count_nodes(void)
{
	glob_t g;
	size_t n = 0;

	if (!glob("/dev/nvidia[0-9]*", GLOB_NOSORT, NULL, &g))
		n = g.gl_pathc;
	globfree(&g);
	return n;
}

void spread_find(struct spread *s)
{
	pid_t parent = getpid(), pid;
	int fd[2], status;
	struct gpus g;

	s->n = 0;
	if (count_nodes() < 2)
		return;
	if (!gpus_noted(&g)) {
		s->n = look(&g, s->gpu);
		return;
	}
	if (pipe2(fd, O_CLOEXEC))
		return;
	pid = sig_fork();
	if (!pid)
		tell(fd[1], parent);
	close(fd[1]);
	if (pid > 0) {
		setpgid(pid, pid);
		if (wait_unless_signal(fd[0], deadline_in(LOOK_SECONDS),
				       NULL) <= 0 ||
		    read_full(fd[0], s, sizeof(*s), NULL) != sizeof(*s))
			s->n = 0;
		child_finish(pid, deadline_in(1), &status);
	}
	close(fd[0]);
}

size_t spread_judges(const struct spread *s, size_t jobs)
{
	return jobs ? jobs : s->n > 1 ? s->n : 1;
}

const char *spread_device(const struct spread *s, size_t i, const char *asked,
			  char name[16])
{
	if (s->n < 2)
		return asked;
	snprintf(name, 16, "cuda:%d", s->gpu[i % s->n]);
	return name;
}

size_t spread_share(const struct spread *s, size_t judges)
{
	return s->n < 2 ? judges : (judges + s->n - 1) / s->n;
}
