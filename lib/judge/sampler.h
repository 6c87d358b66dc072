/* SPDX-License-Identifier: Apache-2.0
 *
 * Where all threads of another process execute, sampled by the kernel
 * (perf_event_open, the software CPU clock), which the process cannot stop.
 * It sees in its own clock that samples take time, and so their rhythm; what
 * is ordered besides cannot be foreseen.  Where the kernel refuses all that,
 * the tracer looks itself.
 */
#ifndef CA_JUDGE_SAMPLER_H
#define CA_JUDGE_SAMPLER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define SAMPLE_WORDS 16
#define SAMPLE_CODE 16
#define SAMPLES_MAX 16384
#define SPOTS_MAX 4096

struct sample_at {
	uint64_t ip;
	int64_t when;		/* CLOCK_MONOTONIC */
	int64_t stands;		/* ns: for how much time */
	int kernel;		/* in the kernel: ip says nothing */
	unsigned pass;		/* of one that was ordered: with which others */
	int n;			/* words of the stack, from its top */
	uint64_t stack[SAMPLE_WORDS];
	int ncode;		/* of sampler_put: bytes at ip, at that time */
	unsigned char code[SAMPLE_CODE];
};

/* What has been seen since the last sampler_reset(). */
struct sampled {
	struct sample_at *at;	/* SAMPLES_MAX of them */
	size_t n;
	unsigned thin;		/* one in so many is kept */
	struct sample_at *spot;	/* those that were ordered, SPOTS_MAX */
	size_t nspot;
	unsigned passes;	/* how often they were; a thread that could not
				 * be looked at is at no address, 0 */
	unsigned rare;		/* one pass in so many is kept: the next ones
				 * are to be ordered that much more rarely */
	double lost_ns;		/* of samples that found no room */
	uint64_t mapped; /* times at which memory became executable */
};

struct sampler;

/*
 * Samples every period_ns of CPU time of pid's threads, those made later
 * too; pid must have one thread now.  NULL where the kernel does not let us.
 */
struct sampler *sampler_open(pid_t pid, uint64_t period_ns, struct err *e);
/* One that is told what to keep, by sampler_put. */
struct sampler *sampler_manual(struct err *e);
void sampler_close(struct sampler *s);

/* How often sampler_drain has to be called so that nothing is lost. */
int64_t sampler_patience(const struct sampler *s);

/* Forgets what was seen so far.  The first thread, and those that come from
 * now on, have this period, where it is given (not 0). */
void sampler_reset(struct sampler *s, uint64_t period_ns);
/* Takes over what the kernel has seen, from time `from` on.  Of more than
 * SAMPLES_MAX samples an even part is kept, and each stands for more. */
void sampler_drain(struct sampler *s, int64_t from);
void sampler_put(struct sampler *s, const struct sample_at *at);
/* A pass: has one sample taken of each thread that runs now, 10 us later.
 * Those that were ordered before `from` are forgotten. */
void sampler_order(struct sampler *s, int64_t from);
/* Brings what was seen on several processors into the order of time, and what
 * was ordered into that of passes. */
void sampler_sort(struct sampler *s);
const struct sampled *sampler_seen(const struct sampler *s);

/* CPU time of all threads so far, by the kernel's books, samples in the kernel
 * included; -1 where these are not seen. */
int64_t sampler_cpu_ns(const struct sampler *s);

#endif
