/* SPDX-License-Identifier: Apache-2.0
 *
 * The outside witness: whose a mapping is, real processes looked at by both
 * means, and what is made of the evidence.
 */
#define _GNU_SOURCE
#include "tests.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "judge/sampler.h"
#include "judge/witness.h"
#include "torch/torch.h"

#define LIBS "/usr/lib/x86_64-linux-gnu/"
#define SITE "/v/lib/python3.11/site-packages/"

static void test_places(void **state)
{
	static const struct {
		const char *path;
		enum place place;
	} t[] = {
		{ "/memfd:cuda_extension (deleted)", PLACE_OWN },
		{ "/memfd:libm.so.6 (deleted)", PLACE_OTHER },
		{ LIBS "libm.so.6", PLACE_RUNTIME },
		{ LIBS "libm.so.6 (deleted)", PLACE_OTHER },
		{ "/tmp/libm.so.6", PLACE_OTHER },
		{ LIBS "libgfortran.so.5.0.0", PLACE_BLAS },
		{ "/dev/shm/libopenblas.so.0", PLACE_OTHER },
		{ LIBS "openblas-pthread/libopenblasp-r0.3.21.so", PLACE_BLAS },
		{ SITE "numpy.libs/libscipy_openblas64_-32a.so", PLACE_OTHER },
		{ SITE "numpy.libs/libgfortran-040039e1.so", PLACE_OTHER },
		{ SITE "mkl/lib/libmkl_core.so", PLACE_OTHER },
		{ SITE "torch/lib/libtorch_cpu.so", PLACE_TORCH },
		{ SITE "torch/lib/libgomp.so.1", PLACE_RUNTIME },
		{ "/opt/conda/lib/libtorch_cpu.so", PLACE_TORCH },
		{ LIBS "libc10.so.2.6", PLACE_TORCH },
		{ LIBS "libtorch_python.so.2.6", PLACE_PYTHON },
		{ "/tmp/libtorch_python.so", PLACE_OTHER },
		{ SITE "torch/lib/libtorch_python.so", PLACE_PYTHON },
		{ "/usr/bin/python3.11", PLACE_PYTHON },
		{ "/usr/lib/python3.11/lib-dynload/math.so", PLACE_PYTHON },
		{ LIBS "libcrypto.so.3", PLACE_OTHER },
		{ "", PLACE_ANON }, { "[heap]", PLACE_ANON },
		{ "/dev/zero (deleted)", PLACE_ANON },
		{ "[vdso]", PLACE_RUNTIME },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (place_of(t[i].path) != t[i].place)
			fail_msg("'%s' is %s", t[i].path,
				 place_name(place_of(t[i].path)));
}

static volatile double sink;

static void *burn(void *p)
{
	(void)p;
	for (double x = 1; ; x += 1e-9)
		sink = x;
	return NULL;
}

/* This program's own code: a file that is nobody's. */
static void in_file(void)
{
	burn(NULL);
}

/* jmp to itself, in memory without a file. */
static void in_memory(void)
{
	unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*spin)(void);

	p[0] = 0xeb;
	p[1] = 0xfe;
	memcpy(&spin, &p, sizeof(p));
	spin();
}

static void in_libc(void)
{
	static char a[1 << 20];

	for (int n = 1; ; n++) {
		memmove(a + 1, a, sizeof(a) - 1);
		for (int i = 0; i < 200000; i++)
			sink = n;
	}
}

/* One call that takes seconds: as seen from outside only the C library runs. */
static void in_libc_alone(void)
{
	const size_t n = (size_t)64 << 30;
	const char *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
						     MAP_NORESERVE, -1, 0);

	while (p != MAP_FAILED)
		sink = memchr(p, 1, n) != NULL;
}

static void in_thread(void)
{
	pthread_t th;

	pthread_create(&th, NULL, burn, NULL);
	for (;;)
		pause();
}

/* A team was given work once; its second thread waits for more, while the
 * first computes (main() has told OpenMP to wait awake). */
static void in_openmp(void)
{
#ifdef _OPENMP
#pragma omp parallel num_threads(2)
	sink = 1;
#endif
	burn(NULL);
}

static void *rest(void *p)
{
	for (;;)
		pause();
	return p;
}

/* A process that runs `body`, and who watches it. */
struct watched {
	struct witness *w;
	struct trace *t;
	int go[2], sigfd;
};

/* It stands still, at the beginning of its body or in it. */
static void watched_begin(struct watched *v, void (*body)(void),
			  unsigned flags)
{
	struct timespec ms = { 0, 1000000 };
	struct err e = ERR_INIT;
	int64_t when;
	sigset_t chld;
	pid_t pid;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	v->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	assert_int_equal(pipe(v->go), 0);
	pid = fork();
	if (!pid) {
		char c;

		if (read(v->go[0], &c, 1) == 1)
			body();
		_exit(0);
	}
	v->t = trace_seize(pid, v->sigfd, &e);
	assert_non_null(v->t);
	v->w = witness_open(pid, v->t, WITNESS_FINE | flags, &e);
	assert_non_null(v->w);
	assert_int_equal(write(v->go[1], "x", 1), 1);
	nanosleep(&ms, NULL);
	assert_int_equal(trace_stop(v->t, deadline_in(5), &when), 0);
}

/* A call, but for its end. */
static void watched_call(struct watched *v)
{
	struct timespec ms = { 0, 1000000 };
	int64_t end;

	witness_begin(v->w, now_ns());
	trace_resume(v->t);
	end = deadline_in(0.03);
	while (now_ns() < end) {
		nanosleep(&ms, NULL);
		trace_serve(v->t);
		assert_true(witness_look(v->w) >= 0);
	}
}

static void watched_end(struct watched *v)
{
	witness_close(v->w);
	trace_kill(v->t);
	close(v->sigfd);
	close(v->go[0]);
	close(v->go[1]);
}

static void watch(void (*body)(void), unsigned flags, struct attribution *a)
{
	struct watched v;
	int64_t when;

	watched_begin(&v, body, flags);
	for (int i = 0; i < 4; i++) {
		watched_call(&v);
		assert_int_equal(trace_stop(v.t, deadline_in(5), &when), 0);
		witness_end(v.w, when, i ? WITNESS_COUNTS : WITNESS_FIRST);
	}
	*a = *witness_saw(v.w);
	watched_end(&v);
}

/* Nearly all that was seen in user mode, and something was. */
static void mostly(const struct attribution *a, enum place p)
{
	double user = 0;

	for (int i = 0; i < PLACES; i++)
		if (i != PLACE_KERNEL)
			user += a->ns[i];
	assert_int_equal(a->calls, 3);
	assert_true(a->samples > 0);
	if (a->ns[p] < 0.8 * user || user <= 0)
		fail_msg("%s: only %.0f of %.0f us", place_name(p),
			 a->ns[p] / 1e3, user / 1e3);
}

static void by(unsigned flags)
{
	struct attribution a;

	watch(in_file, flags, &a);
	mostly(&a, PLACE_OTHER);
	assert_string_equal(a.foreign, "witness_test");
	assert_string_equal(a.strange, "witness_test");
	watch(in_memory, flags, &a);
	mostly(&a, PLACE_ANON);
	watch(in_thread, flags, &a);
	mostly(&a, PLACE_OTHER);
	/* By its caller, which is this program. */
	watch(in_libc, flags, &a);
	mostly(&a, PLACE_OTHER);
	/* What lies on the stack says nothing of a file that never ran. */
	watch(in_libc_alone, flags, &a);
	mostly(&a, PLACE_RUNTIME);
}

static void test_sampled(void **state)
{
	struct attribution a;

	(void)state;
	watch(in_file, 0, &a);
	if (strcmp(a.by, "perf"))
		skip();
	by(0);
}

static void test_by_ptrace(void **state)
{
	struct attribution a;

	(void)state;
	by(WITNESS_TRACE);
	watch(in_file, WITNESS_TRACE, &a);
	assert_string_equal(a.by, "ptrace");
}

/* Who waits awake computes nothing, whatever lies on its stack. */
static void waits(unsigned flags)
{
	struct attribution a;

	watch(in_openmp, flags, &a);
	assert_true(a.ns[PLACE_RUNTIME] > 0);
	assert_true(a.all.during_foreign > 0);
	assert_true(a.all.foreign < 1.5 * a.all.during_foreign);
}

/* A page of a file; what it holds is copied when somebody writes to it. */
static int clean_here(void *p)
{
	const struct module *m;
	struct modules ms = { 0 };
	int clean;

	assert_int_equal(modules_read(&ms, getpid(), NULL), 0);
	m = modules_find(&ms, (uint64_t)(uintptr_t)p);
	assert_non_null(m);
	clean = modules_clean(&ms, m, getpid());
	modules_free(&ms);
	return clean;
}

static void test_clean(void **state)
{
	const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
	struct err e = ERR_INIT;
	unsigned char code[8192] = { 0xc3 };
	int fd = memfd_code(code, sizeof(code), &e);
	unsigned char *p = mmap(NULL, sizeof(code), all, MAP_PRIVATE, fd, 0);
	unsigned char *none = mmap(NULL, sizeof(code), all,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_true(p != MAP_FAILED && none != MAP_FAILED);
	sink = p[0];
	assert_int_equal(clean_here(p), 1);
	p[4096] = 1;
	assert_int_equal(clean_here(p), 0);
	assert_int_equal(clean_here(none), 0);
	munmap(p, sizeof(code));
	munmap(none, sizeof(code));
	close(fd);
}

/* Other code runs where the object's own lies when the call has ended. */
static volatile int *flag;	/* the one is to go, the other has come */
static int own;

static void swaps(void)
{
	/* cmp dword [rdi], 0; je back; ret */
	static const unsigned char loop[] = { 0x83, 0x3f, 0, 0x74, 0xfb, 0xc3 };
	unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*run)(volatile int *);

	memcpy(p, loop, sizeof(loop));
	memcpy(&run, &p, sizeof(p));
	run(&flag[0]);
	mmap(p, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, own, 0);
	flag[1] = 1;
	run(&flag[0]);
}

static void test_swapped(void **state)
{
	static const unsigned char spin[] = { 0xeb, 0xfe };
	const struct attribution *a;
	struct err e = ERR_INIT;
	struct watched v;
	int64_t when;

	(void)state;
	flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	own = memfd_code(spin, sizeof(spin), &e);
	assert_true(flag != MAP_FAILED && own >= 0);
	watched_begin(&v, swaps, WITNESS_TRACE);
	assert_int_equal(witness_own(v.w, own, 0, &e), 0);
	watched_call(&v);
	flag[0] = 1;
	while (!flag[1])
		trace_serve(v.t);
	assert_int_equal(trace_stop(v.t, deadline_in(5), &when), 0);
	witness_end(v.w, when, WITNESS_COUNTS);
	a = witness_saw(v.w);
	assert_true(a->ns[PLACE_ANON] > 0);
	assert_true(a->ns[PLACE_OWN] < a->ns[PLACE_ANON]);
	watched_end(&v);
	close(own);
}

static void test_waiting(void **state)
{
	struct attribution a;

	(void)state;
#ifndef _OPENMP
	skip();
#endif
	waits(WITNESS_TRACE);
	watch(in_file, 0, &a);
	if (!strcmp(a.by, "perf"))
		waits(0);
}

/* Samples that no rhythm announces; a busy machine leaves few. */
static void test_ordered(void **state)
{
	struct attribution a = { .by = "perf" };

	(void)state;
	for (int i = 0; i < 20 && !a.spot.foreign; i++) {
		watch(in_file, 0, &a);
		if (strcmp(a.by, "perf"))
			skip();
	}
	assert_true(a.spot.foreign);
	assert_int_equal(a.spot.strange, a.spot.foreign);
}

/* A process of `threads` more that all sleep but the first. */
static pid_t crowd(int threads)
{
	pid_t pid = fork();
	pthread_t th;

	if (pid)
		return pid;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&th, NULL, rest, NULL))
			_exit(1);
	burn(NULL);
	_exit(0);
}

static size_t tasks_of(pid_t pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	return stat(path, &st) ? 0 : (size_t)st.st_nlink - 2;
}

static struct sampler *sampled_crowd(int threads, pid_t *pid)
{
	const struct timespec ms = { 0, 1000000 };
	struct sampler *s;

	*pid = crowd(threads);
	s = sampler_open(*pid, 1000000, NULL);
	for (int i = 0; i < 5000 && tasks_of(*pid) != (size_t)threads + 1; i++)
		nanosleep(&ms, NULL);
	return s;
}

/* However often it was ordered, passes are kept from begin to end; a thread
 * too many is not passed over. */
static void test_passes(void **state)
{
	const struct timespec us = { 0, 300000 };
	const struct sampled *v;
	struct sampler *s;
	unsigned early = 0;
	pid_t pid;

	(void)state;
	s = sampled_crowd(3, &pid);
	for (int i = 0; s && i < 2100; i++) {
		sampler_order(s, 0);
		nanosleep(&us, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (!s)
		skip();
	sampler_drain(s, 0);
	sampler_sort(s);
	v = sampler_seen(s);
	assert_int_equal(v->rare, 2);
	assert_int_equal(v->passes, 1100);
	assert_true(v->nspot > 100);
	for (size_t i = 0; i < v->nspot; i++) {
		assert_true(v->spot[i].pass < v->passes);
		assert_true(!i || v->spot[i].pass >= v->spot[i - 1].pass);
		early += v->spot[i].pass < 500;
	}
	assert_true(early && early < v->nspot);
	sampler_close(s);
}

static void test_crowd(void **state)
{
	const struct sampled *v;
	struct sampler *s;
	pid_t pid;

	(void)state;
	s = sampled_crowd(700, &pid);
	if (s)
		sampler_order(s, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (!s)
		skip();
	v = sampler_seen(s);
	assert_int_equal(v->nspot, 1);
	assert_int_equal(v->spot[0].ip, 0);
	sampler_close(s);
}

static const struct attrib_idle empty = { 50e3, 200e3, 1 };

static int judged(const struct attribution *a)
{
	char text[256];

	return attrib_judge(a, &empty, text, sizeof(text));
}

static int doubted(const struct attribution *a)
{
	return attrib_doubts(a, &empty);
}

/* What a thread spent in one call, from its beginning on; those of one thread
 * follow each other. */
struct part {
	int thread;
	enum place place;
	double us;
};

#define PARTS(...) ((const struct part[]){ __VA_ARGS__, { 0, 0, 0 } })

/* What a thread does `at` us after the begin of a call; 0: nothing. */
static int doing(const struct part *p, int thread, double at, enum place *place)
{
	double from = 0;

	for (; p->thread; p++) {
		if (p->thread != thread)
			continue;
		if (at >= from && at < from + p->us) {
			*place = p->place;
			return 1;
		}
		from += p->us;
	}
	return 0;
}

/* The verdict on ten such calls, with 300 us of Python in each, seen every
 * 50 us. */
static struct attribution ten;
static int verdict(const struct part *parts)
{
	enum place place;

	memset(&ten, 0, sizeof(ten));
	ten.by = "perf";
	for (ten.calls = 0; ten.calls < 10; ten.calls++) {
		ten.samples += 90;
		attrib_call(&ten);
		for (int us = 0; us < 300; us += 50)
			attrib_see(&ten, 1000 * us, PLACE_PYTHON, 50e3);
		for (int us = 300; us < 100000; us += 50)
			for (int t = 1; t < 40; t++)
				if (doing(parts, t, us - 300, &place))
					attrib_see(&ten, 1000 * us, place,
						   50e3);
		attrib_keep(&ten, 6000000);
	}
	return judged(&ten);
}

static void test_verdicts(void **state)
{
	struct attribution none = { .by = NULL, .calls = 10 };

	(void)state;
	assert_int_equal(judged(&none), -1);
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 5000 },
				       { 1, PLACE_TORCH, 100 })), 0);
	/* moving data */
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 5000 },
				       { 1, PLACE_TORCH, 1500 })), 0);
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 5000 },
				       { 1, PLACE_TORCH, 4000 })), 1);
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 5000 },
				       { 1, PLACE_OTHER, 4000 })), 1);
	assert_int_equal(verdict(PARTS({ 1, PLACE_BLAS, 5000 })), 0);
	/* free, where an empty call takes 50 us there; the shim has no other
	 * library, and makes no code */
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 300 },
				       { 1, PLACE_TORCH, 300 })), 0);
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 300 },
				       { 1, PLACE_ANON, 300 })), 1);
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 300 },
				       { 1, PLACE_OTHER, 100 })), 1);
	/* Python alone, however short the rest */
	assert_int_equal(verdict(PARTS({ 1, PLACE_BLAS, 5 },
				       { 1, PLACE_PYTHON, 2700 })), 1);
	/* the shim's part */
	assert_int_equal(verdict(PARTS({ 1, PLACE_BLAS, 5 },
				       { 1, PLACE_PYTHON, 100 })), 0);
}

/* Ten calls, by the rhythm `us` of the candidate's own, and `torch` of 100
 * samples at other times. */
static int unforeseen(double us, int torch)
{
	verdict(PARTS({ 1, PLACE_OWN, us }));
	for (unsigned i = 0; i < 100; i++)
		attrib_spot(&ten, i, i < (unsigned)torch ? PLACE_TORCH :
							   PLACE_OWN);
	attrib_passes(&ten, 100);
	return judged(&ten);
}

/* The same with four threads of the candidate's beside one that is in torch
 * now and then. */
static int unforeseen_beside(unsigned torch)
{
	verdict(PARTS({ 1, PLACE_OWN, 5000 }, { 2, PLACE_OWN, 5000 },
		      { 3, PLACE_OWN, 5000 }, { 4, PLACE_OWN, 5000 }));
	for (unsigned i = 0; i < 100; i++)
		for (unsigned t = 0; t < 5; t++)
			attrib_spot(&ten, i, t || i >= torch ? PLACE_OWN :
							       PLACE_TORCH);
	attrib_passes(&ten, 100);
	return judged(&ten);
}

static void test_unforeseen(void **state)
{
	(void)state;
	assert_int_equal(unforeseen(5000, 0), 0);
	assert_int_equal(unforeseen(5000, 25), 0);
	assert_false(doubted(&ten));
	assert_int_equal(unforeseen(5000, 32), 0);
	assert_true(doubted(&ten));
	assert_int_equal(unforeseen(5000, 60), 1);
	/* of little, however often it was looked at */
	assert_int_equal(unforeseen(50, 60), 0);
	/* too few to say anything */
	verdict(PARTS({ 1, PLACE_OWN, 5000 }));
	for (int i = 0; i < 12; i++)
		attrib_spot(&ten, (unsigned)i, PLACE_TORCH);
	attrib_passes(&ten, 12);
	assert_int_equal(judged(&ten), 0);
	/* Who is busy beside it hides nothing. */
	assert_int_equal(unforeseen_beside(0), 0);
	assert_int_equal(unforeseen_beside(25), 0);
	assert_int_equal(unforeseen_beside(95), 1);
	assert_true(5 * ten.pass.foreign > 4 * ten.pass.user);
	assert_true(4 * ten.spot.foreign < ten.spot.user);
}

/* What calls of `a` took, in us: all, in foreign code, of the candidate's. */
static void calls_of(struct attribution *a, const double (*us)[3], size_t n)
{
	memset(a, 0, sizeof(*a));
	a->by = "perf";
	for (size_t i = 0; i < n; i++) {
		double all = 1e3 * us[i][0], torch = 1e3 * us[i][1];
		double mine = 1e3 * us[i][2];

		attrib_call(a);
		attrib_see(a, (int64_t)(all - torch - mine), PLACE_PYTHON,
			   all - torch - mine);
		attrib_see(a, (int64_t)(all - mine), PLACE_TORCH, torch);
		attrib_see(a, (int64_t)all, PLACE_OWN, mine);
		attrib_keep(a, (int64_t)all);
		a->calls++;
		a->samples += (uint64_t)(us[i][0] / 25);
	}
}

/* An honest candidate of microseconds where others pressed on the machine, as
 * it was seen; and what does as much in each call. */
static void test_bursts(void **state)
{
	const double seen[][3] = {
		{ 408, 153, 0 }, { 779, 189, 0 }, { 440, 110, 0 },
		{ 584, 137, 0 }, { 722, 203, 0 }, { 297, 25, 0 },
		{ 3472, 2361, 15 }, { 861, 239, 0 }, { 491, 123, 0 },
		{ 451, 113, 0 }, { 1261, 467, 16 }, { 891, 337, 0 },
		{ 1591, 509, 16 }, { 986, 341, 0 },
	};
	const struct attrib_idle quiet = { 26e3, 108e3, 1 };
	const struct attrib_idle busy = { 60e3, 250e3, 1 };
	static struct attribution a;
	double each[14][3];
	char text[256];

	(void)state;
	calls_of(&a, seen, 14);
	assert_int_equal(attrib_judge(&a, &quiet, text, sizeof(text)), 0);
	for (int i = 0; i < 14; i++)
		memcpy(each[i], (double[]){ 950, 560, 3 }, sizeof(each[i]));
	calls_of(&a, each, 14);
	assert_int_equal(attrib_judge(&a, &quiet, text, sizeof(text)), 1);
	assert_true(attrib_is_close(&a, &quiet));
	assert_int_equal(attrib_judge(&a, &busy, text, sizeof(text)), 0);
	/* A few calls that do more than others' bursts. */
	for (int i = 0; i < 4; i++)
		memcpy(each[i], (double[]){ 9000, 8500, 3 }, sizeof(each[i]));
	calls_of(&a, each, 14);
	assert_int_equal(attrib_judge(&a, &busy, text, sizeof(text)), 1);
	assert_false(attrib_is_close(&a, &quiet));
}

/* Of very many calls an even part is kept, the last as well as the first. */
static void test_many_calls(void **state)
{
	static struct attribution a, sum;
	size_t late = 0;

	(void)state;
	memset(&a, 0, sizeof(a));
	memset(&sum, 0, sizeof(sum));
	for (int i = 0; i < 5 * ATTRIB_CALLS; i++) {
		attrib_call(&a);
		attrib_keep(&a, i < 4 * ATTRIB_CALLS ? 1 : 2);
	}
	for (size_t i = 0; i < a.ncall; i++)
		late += a.call[i].length > 1.5;
	assert_true(a.ncall >= ATTRIB_CALLS / 2);
	assert_true(late >= a.ncall / 6 && late <= a.ncall / 4);
	for (int i = 0; i < 9; i++)
		attrib_add(&sum, &a);
	assert_true(sum.ncall >= ATTRIB_CALLS / 2 && sum.ncall <= ATTRIB_CALLS);
}

/* Calls of 100 us of the candidate's own, the first `strange` of which have a
 * sample of 15 us in another library. */
static void short_calls(struct attribution *a, int calls, int strange)
{
	memset(a, 0, sizeof(*a));
	a->by = "perf";
	for (int i = 0; i < calls; i++) {
		attrib_call(a);
		for (int us = 0; us < 105; us += 15)
			attrib_see(a, 1000 * us, !us && i < strange ?
				   PLACE_OTHER : PLACE_OWN, 15e3);
		attrib_keep(a, 105000);
		a->calls++;
		a->samples += 7;
	}
}

/* All that a short call is for may take 10 us elsewhere; a sample or two may
 * be anybody's, and then more calls tell. */
static void test_short(void **state)
{
	static struct attribution a;

	(void)state;
	short_calls(&a, 20, 0);
	assert_true(!judged(&a) && !doubted(&a));
	short_calls(&a, 20, 1);
	assert_true(!judged(&a) && !doubted(&a));
	short_calls(&a, 20, 6);
	assert_true(!judged(&a) && doubted(&a));
	short_calls(&a, 20, 20);
	assert_true(judged(&a) == 1 && !doubted(&a));
	/* 10 us of each of many calls, and 1 us */
	short_calls(&a, 180, 120);
	assert_true(judged(&a) == 1);
	short_calls(&a, 180, 12);
	assert_true(!judged(&a) && !doubted(&a));
}

/* What an empty call takes is not what it takes when somebody interferes. */
static void test_idle(void **state)
{
	struct attribution a = { .by = "perf" };
	struct attrib_idle idle;

	(void)state;
	attrib_idle_of(&a, &idle);
	assert_true(idle.user_ns <= 0 && idle.foreign_ns <= 0);
	for (int i = 0; i < 12; i++) {
		attrib_call(&a);
		attrib_see(&a, 1000000, PLACE_PYTHON, 100e3);
		attrib_see(&a, 1000000, PLACE_TORCH, i % 6 ? 50e3 : 9e6);
		attrib_keep(&a, 200000);
	}
	attrib_idle_of(&a, &idle);
	assert_true(idle.foreign_ns < 51e3 && idle.user_ns < 151e3);
}

/* What is missing or contradicts itself never helps. */
static void test_doubts(void **state)
{
	(void)state;
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 5000 })), 0);
	ten.moved = 1;
	assert_int_equal(judged(&ten), 1);
	ten.moved = 0;
	ten.missing_ns = 10 * 12e6;
	assert_int_equal(judged(&ten), -1);
	/* also where what was seen speaks against it */
	assert_int_equal(verdict(PARTS({ 1, PLACE_OTHER, 5000 })), 1);
	ten.missing_ns = 10 * 12e6;
	assert_true(judged(&ten) != 0);
}

/* Busy threads beside the one that computes elsewhere do not hide it. */
static void test_busy_beside(void **state)
{
	struct part p[9] = { { 1, PLACE_OTHER, 5000 } }, turns[39] = { 0 };

	(void)state;
	for (int n = 1; n < 8; n++) {
		p[n] = (struct part){ n + 1, PLACE_OWN, 5300 };
		assert_int_equal(verdict(p), 1);
	}
	/* However slowly that goes for all the threads beside it. */
	assert_int_equal(verdict(PARTS({ 1, PLACE_OTHER, 5000 },
				       { 2, PLACE_OWN, 60000 })), 1);
	/* Waiting counts for nobody. */
	assert_int_equal(verdict(PARTS({ 1, PLACE_OTHER, 5000 },
				       { 2, PLACE_RUNTIME, 90000 },
				       { 1, PLACE_OWN, 10 })), 1);
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 5000 },
				       { 2, PLACE_RUNTIME, 90000 })), 0);
	/* Honest: four threads compute, and one copies a little. */
	assert_int_equal(verdict(PARTS({ 1, PLACE_OWN, 4000 },
				       { 2, PLACE_OWN, 4000 },
				       { 3, PLACE_OWN, 4000 },
				       { 4, PLACE_OWN, 4000 },
				       { 1, PLACE_TORCH, 900 })), 0);
	/* Threads that take turns at it. */
	for (int n = 0; n < 16; n++) {
		turns[2 * n] = (struct part){ n + 1, PLACE_KERNEL, 300 * n };
		turns[2 * n + 1] = (struct part){ n + 1, PLACE_OTHER, 300 };
	}
	for (int n = 0; n < 6; n++)
		turns[32 + n] = (struct part){ 20 + n, PLACE_OWN, 4800 };
	assert_int_equal(verdict(turns), 1);
}

/* Just over half of the calls compute elsewhere, and quickly. */
static void test_shorter_half(void **state)
{
	struct attribution a = { .by = "perf", .calls = 20, .samples = 900 };

	(void)state;
	for (int i = 0; i < 20; i++) {
		enum place p = i % 20 < 11 ? PLACE_TORCH : PLACE_OWN;
		double ms = p == PLACE_OWN ? 50e6 : 4e6;

		attrib_call(&a);
		attrib_see(&a, 1, p, ms);
		attrib_keep(&a, (int64_t)ms);
	}
	assert_int_equal(a.ncall, 20);
	assert_int_equal(judged(&a), 1);
	for (size_t i = 0; i < a.ncall; i++)
		if (a.call[i].foreign > 0)
			a.call[i].length *= 100;	/* does not pay */
	assert_int_equal(judged(&a), 0);
}

/* Whose share was too much is named, not who took most. */
static void test_named(void **state)
{
	char text[256];

	(void)state;
	verdict(PARTS({ 1, PLACE_TORCH, 600 }, { 1, PLACE_OTHER, 300 },
		      { 1, PLACE_OWN, 3000 }));
	strcpy(ten.foreign, "libtorch_cpu.so");
	strcpy(ten.strange, "libscipy_openblas64_.so");
	assert_int_equal(attrib_judge(&ten, &empty, text, sizeof(text)), 1);
	assert_non_null(strstr(text, "libscipy_openblas64_.so"));
	assert_null(strstr(text, "libtorch"));
}

static void test_sums(void **state)
{
	struct attribution sum = { .by = NULL }, a = { .by = "perf",
		.calls = 2, .samples = 3, .foreign = "x", .foreign_ns = 5 };

	(void)state;
	a.ns[PLACE_OWN] = 7;
	attrib_add(&sum, &a);
	attrib_add(&sum, &a);
	assert_int_equal(sum.calls, 4);
	assert_true(fabs(sum.ns[PLACE_OWN] - 14) < 1e-9);
	assert_string_equal(sum.by, "perf");
	assert_string_equal(sum.foreign, "x");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_sampled),
		cmocka_unit_test(test_by_ptrace),
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_unforeseen),
		cmocka_unit_test(test_bursts),
		cmocka_unit_test(test_many_calls),
		cmocka_unit_test(test_ordered),
		cmocka_unit_test(test_passes),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_doubts),
		cmocka_unit_test(test_busy_beside),
		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_swapped),
		cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_shorter_half),
		cmocka_unit_test(test_named),
		cmocka_unit_test(test_sums),
	};

	(void)argc;
	/* Read when OpenMP is loaded. */
	if (!getenv("OMP_WAIT_POLICY")) {
		setenv("OMP_WAIT_POLICY", "active", 1);
		execv("/proc/self/exe", argv);
	}
	return RUN_TESTS(tests);
}
