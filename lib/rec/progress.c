/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress and totals.
 */
#define _GNU_SOURCE
#include "rec/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/resource.h>

#include "base/err.h"
#include "base/io.h"

#define FIRST_NS 2000000000	/* quiet before that */
#define EVERY_NS 200000000

void progress_init(struct progress *p, const char *name, int quiet)
{
	memset(p, 0, sizeof *p);
	p->name = name;
	p->shown = !quiet && isatty(STDERR_FILENO);
	p->start = p->drawn = now_ns();
	p->share = -1;
}

void progress_count(struct progress *p, const char *word)
{
	size_t i;

	if (!word)
		return;
	for (i = 0; i < PROGRESS_WORDS; i++) {
		if (!p->count[i].n)
			snprintf(p->count[i].word, sizeof p->count[i].word,
				 "%s", word);
		if (strncmp(p->count[i].word, word,
			    sizeof p->count[i].word - 1) == 0) {
			p->count[i].n++;
			return;
		}
	}
}

/* "; ok 3, timeout 1" */
static void counts(const struct progress *p, char *out, size_t len)
{
	size_t i, n = 0;

	out[0] = '\0';
	for (i = 0; i < PROGRESS_WORDS && p->count[i].n && n < len; i++)
		n += (size_t)snprintf(out + n, len - n, "%s%s %llu",
				      i ? ", " : "; ", p->count[i].word,
				      (unsigned long long)p->count[i].n);
}

void progress_draw(struct progress *p)
{
	double s, rate;
	char tail[1024], eta[80] = "", now_text[40] = "";
	int64_t now;

	if (!p->shown)
		return;
	now = now_ns();
	if (now - p->start < FIRST_NS || now - p->drawn < EVERY_NS)
		return;
	p->drawn = now;
	s = (double)(now - p->start) / 1e9;
	rate = (double)p->out / s;
	if (p->share > 0)
		snprintf(eta, sizeof eta, ", %.0f %%, %.0f s left",
			 100 * p->share, s / p->share - s);
	if (p->running)
		snprintf(now_text, sizeof now_text, ", %d at work",
			 p->running);
	counts(p, tail, sizeof tail);
	fprintf(stderr, "\r\033[K%s: %llu done%s, %.*f/s%s%s", p->name,
		(unsigned long long)p->out, now_text, rate < 10 ? 2 : 0, rate,
		eta, tail);
	fflush(stderr);
}

void progress_wipe(struct progress *p)
{
	if (p->shown && p->drawn != p->start) {
		fputs("\r\033[K", stderr);
		fflush(stderr);
	}
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

void progress_totals(const struct progress *p)
{
	struct rusage own, kids;
	char tail[1024];

	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &kids);
	counts(p, tail, sizeof tail);
	warn("%llu in, %llu out, %llu failed, %llu of other kinds, "
	     "wall %.2f s, cpu %.2f s, rss %ld MiB%s",
	     (unsigned long long)p->in, (unsigned long long)p->out,
	     (unsigned long long)p->bad, (unsigned long long)p->foreign,
	     (double)(now_ns() - p->start) / 1e9,
	     seconds(own.ru_utime) + seconds(own.ru_stime) +
	     seconds(kids.ru_utime) + seconds(kids.ru_stime),
	     own.ru_maxrss / 1024, tail);
}
