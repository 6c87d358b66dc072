/* SPDX-License-Identifier: Apache-2.0
 *
 * The tool's side of the torch host: starting it, asking it for children,
 * talking to them.  Not thread safe; the thread that opens it owns it (and,
 * on the CPU, is the tracer of its workers).
 */
#ifndef CA_TORCH_TORCH_H
#define CA_TORCH_TORCH_H

#include <sys/types.h>

#include "base/err.h"
#include "rec/json.h"
#include "torch/proto.h"

struct torch_host;

/* Starts a private host and waits for its hello (deadline in seconds; 60 is
 * plenty).  CA_UNAVAILABLE when there is no Python with torch. */
struct torch_host *torch_open(double seconds, struct err *e);

/*
 * The same in two steps, so that importing torch takes nobody's time: starts
 * one that will also have what children of role `prepare` need (NULL: the
 * role is not known yet; a string that lives as long), and waits for its
 * hello (0 or -1).  Nothing else may be asked of it in between.
 *
 * With `share` it is the host that this user's tools share (ca-torch(5)),
 * which is started if there is none and stays for others; a private one where
 * that cannot be had.  A shared one forks confined children only, and ends
 * those that are left when the tool's connection ends.
 */
struct torch_host *torch_start(const char *prepare, int share, struct err *e);
int torch_ready(struct torch_host *h, double seconds, struct err *e);

/* Ends a private host, leaves a shared one; children of ours end. */
void torch_close(struct torch_host *h);

const char *torch_version(const struct torch_host *h);	/* NULL: not ready */
const char *torch_digest(const struct torch_host *h);	/* of environment */
int torch_has_cuda(const struct torch_host *h);
int torch_is_shared(const struct torch_host *h);
pid_t torch_pid(const struct torch_host *h);	/* 0 until it is ready */

/* A pollable descriptor that is readable when the host has something to say
 * (an exit report or EOF); torch_pump handles it.  -1: the host is gone. */
int torch_fd(const struct torch_host *h);
int torch_pump(struct torch_host *h, struct err *e);

/*
 * Asks every shared host of this user `op`: "status", or "leave", after which
 * it takes no other tools and goes when those that it serves have left.  told
 * gets what each says of itself (ca-torch(5)); its -1 ends the round.
 */
typedef int torch_shared_told(void *ctx, const struct json *j, struct err *e);
int torch_shared(const char *op, torch_shared_told *told, void *ctx,
		 struct err *e);

/* One forked child. */
struct torch_child {
	int fd;			/* its channel; -1 when closed */
	pid_t pid;		/* in our pid namespace; 0 until known */
	pid_t host_pid;		/* as the host names it: the process it forked,
				 * an ancestor of pid under a pid namespace */
	int ended;		/* the host reported its end */
	int status;		/* then: as waitpid */
	int kept;		/* memory that was parked with it; -1: none */
	uint64_t id;
	char refused[160];	/* why the host forked none */
};

struct torch_spawn {
	const char *role;	/* "worker", "eager", … */
	const char *device;	/* "cpu", "cuda:0" */
	const char *jail;	/* "full", "uid", "none" */
	const char *node;	/* the device's node, "/dev/nvidia0": of the
				 * cards a jail shows this one only; NULL: all
				 * of them (CPU: none) */
	const char *gpu;	/* the device's UUID, which names it where no
				 * other card can be seen; NULL: its number
				 * does */
	int may_exec;		/* compile baseline: compilers allowed */
	int64_t mem_bytes;	/* limit on host memory; 0: default */
	int parked;		/* one that was parked will do */
	int queues;		/* CUDA: to the GPU, fewer than usual, with
				 * which a context is made and ended in half
				 * the time; 0: as many as usual */
	/* What it is asked first, before anything can be sent; NULL: nothing.
	 * One that was parked has been asked already. */
	const struct str *first;
	const int *fds;
	size_t nfds;
	/* compile: compiled code is kept under this name (letters and digits:
	 * the task's id, say) for later children; NULL: not kept. */
	const char *cache;
};

/* Forks a child; it waits for its first request.  The host keeps the address
 * of *c until torch_kill, which every child needs, dead or alive. */
int torch_spawn(struct torch_host *h, const struct torch_spawn *s,
		struct torch_child *c, struct err *e);

/*
 * The same without waiting for the host, so that it forks while the caller
 * does other things: requests may be sent to the child at once.
 * torch_spawned waits (-1: there will be no child; torch_kill is due all the
 * same).  torch_move makes another address that of the child.
 */
int torch_spawn_ahead(struct torch_host *h, const struct torch_spawn *s,
		      struct torch_child *c, struct err *e);
int torch_spawned(struct torch_host *h, struct torch_child *c, struct err *e);
void torch_move(struct torch_host *h, struct torch_child *to,
		struct torch_child *from);

/*
 * Has a shared host fork a child for a later tool that wants one like it, and
 * which gets it with `kept`, a descriptor, at hand (-1: none).  s->first is
 * due.  Nobody waits, and what prevents it does not show.  `registration`
 * stays open as long as it is parked.
 */
int torch_park(struct torch_host *h, const struct torch_spawn *s,
	       int registration, int kept, struct err *e);

/* Has a shared host end all that are parked, and waits.  How many there were;
 * -1: nobody knows. */
int torch_unpark(struct torch_host *h, struct err *e);

/*
 * Has a shared host keep descriptors open (at most 8) until
 * this process and all its children have ended, for which the host waits in
 * its place: the lease of a device, say.  Once per host, before torch_close.
 */
int torch_hold(struct torch_host *h, const int *fds, size_t nfds,
	       struct err *e);

/* Lets the host import what children of that role need, so that a first
 * spawn of it is as quick as later ones ("compile": 2 s). */
int torch_prepare(struct torch_host *h, const char *role, struct err *e);

/* Sends a JSON request (with descriptors; they stay ours). */
int torch_send(struct torch_child *c, const char *json, size_t len,
	       const int *fds, size_t nfds, struct err *e);
/* A descriptor of a memfd that holds these bytes, to be sent along, or -1. */
int memfd_of(const void *p, size_t len, struct err *e);
/* The same for an object that will be loaded from there: nobody can write to
 * it any more. */
int memfd_code(const void *p, size_t len, struct err *e);

int torch_send_go(struct torch_child *c, const struct ca_go *go,
		  struct err *e);

enum torch_wait { WAIT_OK, WAIT_TIMEOUT, WAIT_GONE, WAIT_GARBAGE };
/*
 * Receives one answer by the deadline; a caught signal (base/sig.h) counts as
 * its passing.  WAIT_GONE: the channel was closed (the child died; torch_reap
 * tells how).  WAIT_GARBAGE: not a ca_msg of the right size and magic.  The
 * first answer also sets c->pid from its credentials.
 */
enum torch_wait torch_recv(struct torch_child *c, struct ca_msg *m,
			   int64_t deadline);

/* Kills the child with all it started, and waits for the host's report.
 * c->status then says how it ended (by itself if it ended first). */
int torch_kill(struct torch_host *h, struct torch_child *c, struct err *e);

/* Kills it without waiting; torch_kill is due all the same. */
void torch_hit(struct torch_host *h, struct torch_child *c);

/* Bytes of one element; 0 for DT_NONE.  Name as torch's, "float32". */
size_t dtype_size(enum ca_dtype t);
const char *dtype_name(enum ca_dtype t);
enum ca_dtype dtype_parse(const char *name);
int dtype_is_float(enum ca_dtype t);
int dtype_is_complex(enum ca_dtype t);

#endif
