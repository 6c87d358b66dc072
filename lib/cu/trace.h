/* SPDX-License-Identifier: Apache-2.0
 *
 * What CUPTI saw in a child: a region of the judge's (host memory, "trace")
 * that libca-child.so fills with one record per kernel, copy, fill and
 * iteration.  The child is untrusted, so this is evidence for tables and for
 * lowering a verdict, never a clock; every field is checked when it is read.
 *
 * Layout: struct trace_head, then TRACE_NAMES bytes of NUL-terminated kernel
 * names, then records to the end of the region.
 */
#ifndef CA_CU_TRACE_H
#define CA_CU_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TRACE_MAGIC 0x72746163u		/* "catr" */
#define TRACE_NAMES ((size_t)1 << 20)
/* Room for some 200,000 records. */
#define TRACE_BYTES ((size_t)16 << 20)

/* The kernel that the shim launches before each call; never counted. */
#define CA_NUDGE "ca_nudge"

/* Instead of a hash: kernels of that name differ. */
#define TRACE_TWO 1

enum trace_kind { TRACE_KERNEL = 1, TRACE_COPY, TRACE_FILL, TRACE_MARK };

struct trace_head {
	uint32_t magic;
	uint32_t pad;
	uint64_t records;	/* written; counts on when the region is full */
	uint64_t names;		/* bytes used */
	uint64_t modules;	/* loaded */
	uint64_t lost;		/* records that CUPTI dropped */
	uint64_t reserved[3];
};

struct trace_rec {
	uint64_t start, end;	/* ns on CUPTI's clock */
	uint64_t code;		/* of its instructions (cu/code.h); 0: not
				 * known; TRACE_TWO */
	uint64_t bytes;		/* copy, fill; of a mark: seq */
	uint32_t kind;
	uint32_t name;		/* offset among the names */
	int32_t grid[3], block[3];
	uint32_t regs, smem;
};

/* One kernel (or all copies, or all fills) over the marked iterations. */
struct trace_row {
	char name[256];		/* as the compiler mangled it, cut */
	enum trace_kind kind;
	uint64_t code;
	uint64_t calls;
	uint64_t ns;		/* sum of durations */
	uint64_t bytes;		/* 0 when not known (kernels) */
	int32_t grid[3], block[3];	/* of the first call */
};

struct trace_table {
	struct trace_row *row;	/* longest total first; trace_free */
	size_t n;
	uint64_t iterations;	/* marks with seq in the range */
	double median_us;	/* of the sums of durations per iteration */
	uint64_t lost;		/* did not fit or were dropped */
};

/* How much of a region's start is in use, by its writer's word; never more
 * than there is. */
size_t trace_used(const void *region, size_t bytes);

/*
 * Reads a region, or its used part, after its child has ended.  Counted is
 * what started in the iterations with seq = from, from + step, … up to `to`.
 * CA_DATAERR when the region was never begun (no CUPTI there) or is nonsense.
 */
int trace_read(const void *region, size_t bytes, uint64_t from, uint64_t to,
	       uint64_t step, struct trace_table *t, struct err *e);
void trace_free(struct trace_table *t);

#endif
