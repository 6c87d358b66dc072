/* SPDX-License-Identifier: Apache-2.0
 *
 * What is used of NCCL is declared here, as lib/cu/api.h does for the driver;
 * names, values and the beginning of its configuration are those of nccl.h
 * since 2.14, and a library takes the configuration of an older one.
 *
 * Communicators do not block: whoever waits for a rank that is gone goes on
 * looking whether it is.
 */
#define _GNU_SOURCE
#include "gpu/nccl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"

#define OLDEST	 21400
#define START_S	 120

enum {
	IN_PROGRESS = 7,		/* ncclInProgress */
	BYTE = 0, FLOAT = 7,		/* ncclInt8, ncclFloat32 */
	SUM = 0,			/* ncclSum */
	MAGIC = (int)0xcafebeef,
};

struct config {			/* ncclConfig_t of 2.14 */
	size_t size;
	int magic;
	unsigned version;
	int blocking;
};

struct unique { char byte[128]; };	/* ncclUniqueId */

#define FUNCTIONS(X) \
	X(Version, "ncclGetVersion", (int *)) \
	X(Unique, "ncclGetUniqueId", (struct unique *)) \
	X(Init, "ncclCommInitRankConfig", \
	  (void **, int, struct unique, int, const struct config *)) \
	X(Abort, "ncclCommAbort", (void *)) \
	X(Async, "ncclCommGetAsyncError", (void *, int *)) \
	X(ReduceScatter, "ncclReduceScatter", \
	  (const void *, void *, size_t, int, int, void *, cu_stream)) \
	X(AllGather, "ncclAllGather", \
	  (const void *, void *, size_t, int, void *, cu_stream))

#define FIELD(name, sym, args) int (*name) args;
struct api { FUNCTIONS(FIELD) };
#undef FIELD

struct nccl {
	struct api api;
	struct comm *c;
	void *comm;
};

static int load(struct nccl *n, struct err *e)
{
#define ROW(name, sym, args) { sym, offsetof(struct api, name) },
	static const struct cu_symbol rows[] = { FUNCTIONS(ROW) };
#undef ROW
	void *lib;
	int version = 0;

	/* Multicast over NVLink is read from the environment only. */
	setenv("NCCL_NVLS_ENABLE", "0", 1);
	/* It stays open: it does not like to be closed. */
	lib = cu_open_lib("libnccl.so", NULL, e);
	if (!lib || cu_resolve(lib, rows, sizeof rows / sizeof *rows, &n->api,
			       e))
		return -1;
	if (n->api.Version(&version) || version < OLDEST)
		return err_set(e, CA_UNAVAILABLE, "NCCL %d is older than %d",
			       version, OLDEST);
	return 0;
}

/* A rank that goes breaks its connections before its end is seen: it is to be
 * named, not what NCCL makes of it. */
static int broken(struct nccl *n, const char *what, int rc, struct err *e)
{
	if (comm_seek(n->c, e))
		return -1;
	err_set(e, CA_UNAVAILABLE, "%s failed (%d)", what, rc);
	comm_fail(n->c, e);
	return -1;
}

/* Until what was begun on the host's side is done, or a rank is gone. */
static int settle(struct nccl *n, int rc, const char *what, struct err *e)
{
	const struct timespec nap = { 0, 10000 };
	int64_t end = deadline_in(START_S);

	while (rc == IN_PROGRESS) {
		if (n->api.Async(n->comm, &rc))
			rc = -1;
		if (rc != IN_PROGRESS)
			break;
		if (comm_check(n->c, COMM_WAITING, e))
			return -1;
		if (now_ns() > end) {
			err_set(e, CA_UNAVAILABLE, "%s is not done within "
				"%d s", what, START_S);
			comm_fail(n->c, e);
			return -1;
		}
		comm_beat(n->c);
		nanosleep(&nap, NULL);
	}
	return rc ? broken(n, what, rc, e) : 0;
}

static int start(struct nccl *n, struct err *e)
{
	const struct config cfg = { sizeof cfg, MAGIC, OLDEST, 0 };
	struct unique own, all[COMM_MAX];

	memset(&own, 0, sizeof own);
	if (!comm_mine(n->c) && n->api.Unique(&own))
		return err_set(e, CA_UNAVAILABLE, "ncclGetUniqueId failed");
	if (comm_gather(n->c, &own, sizeof own, all, e))
		return -1;
	return settle(n, n->api.Init(&n->comm, comm_count(n->c), all[0],
				     comm_mine(n->c), &cfg),
		      "ncclCommInitRankConfig", e);
}

struct nccl *nccl_open(struct comm *c, struct err *e)
{
	struct nccl *n = calloc(1, sizeof *n);

	if (!n) {
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	n->c = c;
	if (load(n, e) || start(n, e)) {
		nccl_close(n);
		return NULL;
	}
	return n;
}

void nccl_close(struct nccl *n)
{
	if (n && n->comm)
		n->api.Abort(n->comm);
	free(n);
}

int nccl_reduce_scatter(struct nccl *n, cu_stream s, float *x, size_t part,
			struct err *e)
{
	float *mine = x + (size_t)comm_mine(n->c) * part;

	return settle(n, n->api.ReduceScatter(x, mine, part, FLOAT, SUM,
					      n->comm, s),
		      "ncclReduceScatter", e);
}

int nccl_all_gather(struct nccl *n, cu_stream s, void *x, size_t bytes,
		    struct err *e)
{
	const char *mine = (char *)x + (size_t)comm_mine(n->c) * bytes;

	return settle(n, n->api.AllGather(mine, x, bytes, BYTE, n->comm, s),
		      "ncclAllGather", e);
}

int nccl_check(struct nccl *n, struct err *e)
{
	int rc = 0;

	if (n->api.Async(n->comm, &rc) || (rc && rc != IN_PROGRESS))
		return broken(n, "NCCL", rc, e);
	return 0;
}
