/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the tools.  Only this file and opt.c print or exit.
 */
#define _GNU_SOURCE
#include "base/err.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX sizeof ((struct err *)0)->msg

static int quiet, verbose;
static struct {
	int code;
	char text[TEXT_MAX + 64];
} last;				/* words, of die_within */

void warn_quiet(int on)
{
	quiet = on;
}

void mention_wanted(int on)
{
	verbose = on;
}

/* Through struct err, for its escapes; one write, so that lines of several
 * tools on one terminal do not mix. */
static void say(const char *fmt, va_list ap) CA_PRINTF(1, 0);
static void say(const char *fmt, va_list ap)
{
	char text[TEXT_MAX];
	struct err e = ERR_INIT;

	vsnprintf(text, sizeof text, fmt, ap);
	err_set(&e, 0, "%s", text);
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, e.msg);
}

void die(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
	exit(code);
}

void die_err(const struct err *e)
{
	die(e->code ? e->code : CA_SOFTWARE, "%s", e->msg);
}

void complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void warn(const char *fmt, ...)
{
	va_list ap;

	if (quiet)
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void mention(const char *fmt, ...)
{
	va_list ap;

	if (!verbose)
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

static void end_now(int sig)
{
	ssize_t n = quiet ? 0 : write(STDERR_FILENO, last.text,
				      strlen(last.text));

	(void)n;
	(void)sig;
	_exit(last.code);
}

static void end_briefly(int status, void *ctx)
{
	(void)ctx;
	fflush(NULL);
	_exit(status);
}

void die_within(unsigned seconds, const struct err *e)
{
	const struct sigaction act = { .sa_handler = end_now };

	if (last.code)
		return;
	last.code = e->code ? e->code : CA_SOFTWARE;
	snprintf(last.text, sizeof last.text, "%s: %s\n",
		 program_invocation_short_name, e->msg);
	on_exit(end_briefly, NULL);
	sigaction(SIGALRM, &act, NULL);
	alarm(seconds);
}
