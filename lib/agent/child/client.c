/* SPDX-License-Identifier: Apache-2.0
 *
 * agent-client: what ca-compile, ca-verify, ca-profile and sudo are inside a
 * rollout's jail.  It asks the judge outside for a verdict on what lies in the
 * work directory, prints it and exits as told.  A program of its own, since
 * nothing else of the toolkit is seen there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET "/judge/box/judge.sock"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 69;
}

static int connect_judge(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(a.sun_path, SOCKET);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The first line of the answer is the exit code. */
static int print_answer(int fd)
{
	char buf[8192];
	int code = 70, head = 1;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf) - 1)) > 0) {
		char *p = buf;

		buf[n] = '\0';
		if (head) {
			code = (int)strtol(buf, &p, 10);
			p += *p == '\n';
			head = 0;
		}
		fwrite(p, 1, (size_t)(buf + n - p), stdout);
	}
	fflush(stdout);
	return head ? fail("the judge has left") : code;
}

static int ask(const char *what)
{
	int fd = connect_judge(), code;

	if (fd < 0)
		return fail("cannot reach the judge");
	if (write(fd, what, strlen(what)) < 0)
		return fail("cannot ask the judge");
	code = print_answer(fd);
	close(fd);
	return code;
}

/* "profile --reference\n" of a command and its arguments. */
static int command(const char *name, char **argv)
{
	char line[1024];
	size_t n = (size_t)snprintf(line, sizeof(line), "%s", name);

	for (; *argv && n < sizeof(line) - 2; argv++) {
		/* These are what happens anyway. */
		if (!strcmp(*argv, "--explain") || !strcmp(*argv, "--table") ||
		    !strcmp(*argv, "--quick") || !strcmp(*argv, "."))
			continue;
		n += (size_t)snprintf(line + n, sizeof(line) - n, " %s",
				      *argv);
	}
	if (n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n] = '\n';
	line[n + 1] = '\0';
	return ask(line);
}

/* sudo is for the released work directory's own commands. */
static int sudo(char **argv)
{
	while (*argv && **argv == '-')
		argv++;
	if (*argv && argv[1] && argv[2] && !strncmp(*argv, "python", 6) &&
	    !strcmp(argv[1], "-m")) {
		if (!strcmp(argv[2], "utils.verification"))
			return command("verify", argv + 3);
		if (!strcmp(argv[2], "utils.profiling"))
			return command("profile", argv + 3);
	}
	if (*argv && (!strcmp(*argv, "bash") || !strcmp(*argv, "sh")))
		argv++;
	if (*argv && strstr(*argv, "utils/compile.sh"))
		return command("compile", argv + 1);
	fputs("sudo: only 'python3 -m utils.verification', 'python3 -m "
	      "utils.profiling' and 'utils/compile.sh' can be run here\n",
	      stderr);
	return 1;
}

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc ? argv[0] : "";

	if (!strcmp(name, "sudo"))
		return sudo(argv + 1);
	if (strncmp(name, "ca-", 3)) {
		fputs("agent-client: runs inside a rollout only\n", stderr);
		return 64;
	}
	return command(name + 3, argv + 1);
}
