/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks: processes of one training that add up what each has computed, and
 * watch over each other.  What is on the host goes through shared memory,
 * summed in the order of the ranks, so that all have the same bits; so do the
 * arrays of a CPU as device (gpu_reduce_scatter), those of GPUs through NCCL.
 *
 * All ranks have to make the same calls in the same order.  A call fails in
 * all of them, with CA_UNAVAILABLE and the rank's name, when one has failed,
 * has ended, or has made no progress for a while (CA_RANK_PATIENCE seconds, by
 * default 20): used no processor on the CPU, finished nothing on a GPU.
 *
 * NULL stands for a single rank everywhere.
 */
#ifndef CA_GPU_COMM_H
#define CA_GPU_COMM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define COMM_MAX  64
#define COMM_SAID 1024			/* bytes of comm_gather at most */

struct comm;

/* For n ranks, before the first of them is forked. */
struct comm *comm_new(int n, struct err *e);
void comm_free(struct comm *c);
/* Says who rank is: by its parent, and by itself. */
void comm_born(struct comm *c, int rank, pid_t pid);
void comm_become(struct comm *c, int rank);

int comm_mine(const struct comm *c);
int comm_count(const struct comm *c);

/* What this rank does, for those that wait for it; only one that computes has
 * to show progress, others have ten minutes. */
enum comm_doing { COMM_COMPUTES, COMM_READS, COMM_WAITS, COMM_SAVES };
void comm_does(struct comm *c, enum comm_doing d);
/* Something has been finished. */
void comm_beat(struct comm *c);
/* The number of an operation of a device in which all ranks take part. */
uint64_t comm_meet(struct comm *c);
/* This rank's device is in the n-th of them: as long as another's has not come
 * that far, that is no hang. */
void comm_meeting(struct comm *c, uint64_t n);
/* From now on only that is progress, not time on a processor: one that waits
 * for a GPU spends it too. */
void comm_strict(struct comm *c);

/* Tells the others why this rank ends; the first reason of all stays. */
void comm_fail(struct comm *c, const struct err *e);
/* Who has failed first, or -1. */
int comm_failed(const struct comm *c);
/*
 * -1 when a rank has failed or ended, or makes no progress while this one
 * waits for it; with COMM_FED it was given something to read.  A glance is
 * cheap.
 */
enum comm_look { COMM_GLANCE, COMM_WAITING, COMM_FED };
int comm_check(struct comm *c, enum comm_look how, struct err *e);
/* What led to another rank has broken: -1 when one turns out to have failed or
 * ended, within some seconds; 0: none has. */
int comm_seek(struct comm *c, struct err *e);

/* Replaces x by its sum over the ranks. */
int comm_sum(struct comm *c, float *x, size_t n, struct err *e);
/* Whether any rank says so. */
int comm_any(struct comm *c, int *flag, struct err *e);
/* all[rank * bytes] becomes what each has said. */
int comm_gather(struct comm *c, const void *said, size_t bytes, void *all,
		struct err *e);

/* Of x, `part` numbers for each rank: this rank's own become their sum over
 * the ranks, the others are left undefined. */
int comm_reduce_scatter(struct comm *c, float *x, size_t part,
			struct err *e);
/* Of x, `bytes` of each rank: all become those of whose they are. */
int comm_all_gather(struct comm *c, void *x, size_t bytes, struct err *e);

#endif
