/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the judge: the processes of one candidate and how they fail.  For
 * lib/judge, and for lib/synth, which asks about tasks.
 */
#ifndef CA_JUDGE_SESSION_H
#define CA_JUDGE_SESSION_H

#include "base/hash.h"
#include "base/rand.h"
#include "base/str.h"
#include "cu/trace.h"
#include "judge/device.h"
#include "judge/judge.h"

#define AHEAD_MAX 6
#define KEPT_MAX 3		/* eager, compile, calib */
#define LATER_MAX 160
#define RUNNER_MEMS 5		/* in[2], slots, params, pool */

/* At a request to an oracle; around what needs no device. */
enum turn { TURN_NEXT, TURN_REST, TURN_BACK };

struct fail;

/* What the judge waits for; the rest of its time is its own. */
enum spent { SPENT_LEASE, SPENT_HOST, SPENT_ORACLE, SPENT_START,
	     SPENT_CANDIDATE, SPENT_EAGER, SPENT_COMPILE, SPENT_CALIB,
	     SPENT_N };

/* A process that was forked before its time; see ahead.h. */
struct ahead {
	const char *role;	/* NULL: none */
	int may_exec;
	char cache[HASH_HEX];
	struct mem seen;	/* CUDA: where CUPTI writes; p NULL: nowhere */
	struct torch_child c;
};

struct judge {
	struct judge_opts o;
	struct device *dev;
	struct torch_host *host; /* NULL until needed, or after it died */
	struct mac_key key;
	struct rng rng;
	const struct rules *rules;	/* of the record in hand */
	const char *jail;		/* "full", "uid", "none" */
	struct mem spare[RUNNER_MEMS];	/* of the last runner, for the next one
				 * of the same task: touching fresh memory
				 * takes longer than most candidates */
	int times;		/* it has timed, or is about to */
	struct ahead ahead[AHEAD_MAX];
	struct torch_child ending[AHEAD_MAX];	/* killed, not reported yet */
	size_t nending;
	int leaving;		/* a candidate is among them, on CUDA */
	struct torch_child kept[KEPT_MAX];	/* see ahead_keep */
	size_t nkept;
	int keeps;		/* trusted runners are */
	int rests;		/* a shared lease is held for those who end */
	int room;		/* room_enter's, -1 */
	int beside;		/* others may have the memory that is short:
				 * once more without them before that counts */
	int defers;		/* there is room for memory that judge_free */
	struct mem later[LATER_MAX];	/* leaves for later */
	size_t nlater;
	int64_t spent[SPENT_N];	/* ns, since the record was begun */
	/* Who works on several tasks at once lets others at the device then;
	 * NULL: nobody does.  -1: `f`. */
	int (*turn)(void *ctx, enum turn at, struct fail *f);
	void *turns;
	int loaded;		/* candidate code has run since it was reset */
	int aside;		/* since then work was late that may have been
				 * a stranger's */
	int undead;		/* a runner could not be ended */
	int no_torch;			/* a host cannot start here at all:
					 * CA_UNAVAILABLE or CA_CONFIG */
	int unleased;		/* the device was not to be had in time */
	double copy_rate;		/* judge_copy_rate; 0: not measured */
	int traces;			/* CUPTI works here: 1, -1; 0: not
					 * asked yet */
	struct attrib_idle idle;	/* of trial_idle; zero: not measured */
};

/* How something ended that was asked of a child. */
struct fail {
	enum status status;	/* ST_OK: it did not fail */
	uint32_t phase;		/* enum ca_phase, 0 unknown */
	int fault;		/* nobody's answer can be trusted: the host or
				 * the oracle died, the device broke; judge
				 * again */
	int oom;		/* it asked for more memory than was left */
	int doubt;		/* a slow machine looks the same: once more */
	int apart;		/* the candidate has no part in it; */
	int killed;		/* its process was, by whomever */
	char text[CA_TEXT + 256];	/* for people */
};

int fail_set(struct fail *f, enum status s, uint32_t phase, const char *fmt,
	     ...) CA_PRINTF(4, 5);
/* infra_error for what a device says; oom too where its memory was short. */
int fail_device(struct fail *f, const struct err *e);
const char *phase_name(uint32_t phase);		/* "load", …; NULL for 0 */

/* j->turn, where there is one. */
int judge_turn(struct judge *j, enum turn at, struct fail *f);

/* Counts the time since `began` to `what`. */
void spent(struct judge *j, enum spent what, int64_t began);

/* The lease of the device, for as long as --lease-timeout says. */
int judge_lease(struct judge *j, int exclusive, struct err *e);

/*
 * Room in a GPU's memory, which its lease, when shared, does not divide: waits
 * until nobody is alone there, or (alone) until nobody is there at all.  *fd
 * is for room_leave; -1 on the CPU, where the system sees to it.  Not while
 * the device's lease is held.  -1: CA_UNAVAILABLE, CA_TEMPFAIL.
 */
int room_enter(const struct judge *j, int alone, double seconds, int *fd,
	       struct err *e);
void room_leave(int *fd);

/* For a record: room beside others, which ends with judge_leave, then the
 * lease, which then still holds who wants to be alone. */
int judge_enter(struct judge *j, int exclusive, struct err *e);
/* For one more attempt, since memory was short and others may have had it:
 * gives all back, and comes again when nobody else is there.  The lease is
 * exclusive then.  -1: `f` says that it was not to be had. */
int judge_clear(struct judge *j, struct fail *f);

/* Instead of giving the device back, once all is known that goes into a
 * record: judge_rest is due when that has been written. */
void judge_leave(struct judge *j);

/* judge_rest while fd has nothing to read; it may be at its end, and we need
 * not wait then.  Whether it has, or is. */
int judge_rest_until(struct judge *j, int fd);

/* Frees memory; where the device has plenty, which takes its time, only when
 * processes are waited for the next time (ahead_settle). */
void judge_free(struct judge *j, struct mem *m);
void judge_free_all(struct judge *j);

/* From here on the device is nobody else's; what is prepared before that
 * leaves others their work.  Until the caller's unlease, through further
 * attempts.  -1: `f` says that it was not to be had. */
int judge_alone(struct judge *j, struct fail *f);

/* Starts the host when there is none.  -1: `f` is a fault. */
int host_ready(struct judge *j, struct fail *f);
int judge_on_cuda(const struct judge *j);
/* Whether the host still lives; reads what it has to say. */
int host_alive(struct judge *j);

/* The reference's process. */
struct oracle {
	const char *code;		/* the caller's */
	size_t codelen;
	uint64_t seed;			/* of the constructors */
	uint32_t asked;			/* enum ca_phase of the last request */
	struct torch_child c;
	struct mem desc, slots;		/* host memory */
	struct mem inputs, after, params, params_after, expect;
	struct json *spec;		/* what load answered */
	size_t input_bytes, param_bytes;
	size_t expect_bytes;		/* packed, 64-byte aligned leaves */
	struct ca_msg first;		/* leaves of the first forward */
};

/*
 * Each returns 0, or -1 with `f`: invalid_reference when the task is at
 * fault (it raises, hangs, is too large), or a fault.
 * oracle_start loads the task, runs it once and has memory for all that
 * follows; code is model.py.
 */
int oracle_start(struct judge *j, struct oracle *o, const char *code,
		 size_t len, struct fail *f);
/*
 * The same in three steps: a process of role "oracle" or "task" (task.py),
 * which may run compilers if it `compiles`; the task loaded into it; memory
 * and a first run.  Between the latter two oracle_ask may ask for what answers
 * with JSON; the caller frees *told.  oracle_stop is due after a failed step
 * too.
 */
int oracle_open(struct judge *j, struct oracle *o, const char *role,
		int compiles, struct fail *f);
int oracle_load(struct judge *j, struct oracle *o, const char *code,
		size_t len, struct fail *f);
int oracle_run(struct judge *j, struct oracle *o, struct fail *f);
/* Bytes of inputs and parameters of a task that is loaded. */
size_t oracle_loaded(const struct oracle *o);
/* In the place of oracle_run: without a run where it is remembered what the
 * results of this task (its id) look like (dryrun.c); told so. */
int oracle_know(struct judge *j, struct oracle *o, const char *task,
		struct fail *f);
int oracle_expects(struct judge *j, struct oracle *o,
		   const struct ca_msg *first, struct fail *f);
int oracle_ask(struct judge *j, struct oracle *o, struct str *req,
	       struct json **told, struct fail *f);
/* The same with len bytes more, which the request calls file 0. */
int oracle_tell(struct judge *j, struct oracle *o, struct str *req,
		const char *p, size_t len, struct json **told, struct fail *f);
void oracle_stop(struct judge *j, struct oracle *o);
/* Stops and starts it: after the task raised in it. */
int oracle_again(struct judge *j, struct oracle *o, struct fail *f);
/*
 * After a failure, the candidate being gone: `oom` instead of the reference's
 * lack of memory, if it lacks none now.  What the candidate took is no refuge.
 */
void oracle_beside(struct judge *j, struct oracle *o, struct fail *f);
/* A fresh state; perturbed unless the rules leave it alone. */
int oracle_state(struct judge *j, struct oracle *o, uint64_t seed,
		 int perturb, struct fail *f);
int oracle_inputs(struct judge *j, struct oracle *o, uint64_t seed,
		  const char *family, double factor, struct fail *f);
/* precision: "native", "fp64", "loose"; "rising" and "falling" are fp64 with
 * equal inputs told apart, the last or the first being the largest.  1 when
 * that precision cannot be had (not for native). */
int oracle_expect(struct judge *j, struct oracle *o, uint64_t seed,
		  const char *precision, struct ca_msg *m, struct fail *f);

/* What a runner runs. */
struct program {
	const char *role;	/* "worker", "eager", "compile" */
	const char *code;	/* model_new.py or model.py */
	size_t codelen;
	const char *object;	/* path of the shared object; NULL: none */
	const char *form;	/* "light", … with an object */
	int slim;		/* built against our own headers of torch's */
	const char *launchers;	/* JSON array */
	const char *mode;	/* compile */
	int table;		/* baselines: runner_table will be called */
	int fine;		/* not for timing: see struct runner */
};

/*
 * Starts a runner: forks, jails, is taken hold of, gets its memory, loads
 * and binds its state (a copy of the oracle's).  0, or -1 with `f` (a status
 * of the candidate's, or a fault).  runner_stop is due in either case.
 */
int runner_start(struct judge *j, const struct oracle *o, struct runner *r,
		 const struct program *p, struct fail *f);
void runner_stop(struct judge *j, struct runner *r);
/* Has some of the memory that any runner on the CPU needs. */
void runner_ahead(struct judge *j);
/* Gives the spare memory back; due before another task. */
void runner_forget(struct judge *j);

/* The calibration process: same memory, no code.  `empty`: it touches none of
 * it either, and the witness looks often. */
int calib_start(struct judge *j, const struct oracle *o, struct runner *r,
		int empty, struct fail *f);

/*
 * What CUPTI saw of the iterations from, from + step, … up to `to`
 * (trace_free); at the end of the runner's work.  Evidence: -1 where there is
 * none, which fails nobody.
 */
int runner_trace(struct judge *j, struct runner *r, uint64_t from,
		 uint64_t to, uint64_t step, struct trace_table *t);

/*
 * Where a baseline's time goes, by its own word (proto.h, `table`), over the
 * inputs that its last iterations left.  Parsed; the caller frees and checks
 * every member.  -1 with `f`.
 */
int runner_table(struct judge *j, struct runner *r, int iterations,
		 struct json **told, struct fail *f);

/* One iteration; `res` is valid with 0. */
int runner_go(struct judge *j, struct runner *r, const struct bracket *b,
	      struct bracket_result *res, struct fail *f);

/* A request ("map", "begin") with n regions, and their descriptors in fds. */
void region_request(struct str *req, const char *op, const char *const *names,
		    struct mem *const *mems, size_t n, int *fds);

#endif
