/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of a Hugging Face folder: model.safetensors, or the files that
 * model.safetensors.index.json names.  Files are mapped, not read, so they
 * must not shrink while they are open (writers that rename are fine).
 */
#ifndef CA_NN_SAFETENSORS_H
#define CA_NN_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gpu/type.h"

#define ST_DIMS 8

struct st_tensor {
	const char *name;
	const char *dtype;		/* as the file spells it: "BF16" */
	int floats;			/* `type` says which kind */
	enum gpu_type type;
	int ndim;
	int64_t shape[ST_DIMS];
	const void *data;		/* in the mapping; any alignment */
	size_t bytes;
};

struct st;

/* Opens the weights in folder `dir`.  CA_NOINPUT when there are none,
 * CA_DATAERR when a file is truncated, overlaps itself, has holes, or states
 * sizes that do not agree; the message names file and tensor. */
struct st *st_open(const char *dir, struct err *e);

/* The same, but files are read into memory: whatever becomes of them later,
 * even while this runs, the weights are whole or CA_DATAERR. */
struct st *st_read(const char *dir, struct err *e);

/* One file. */
struct st *st_open_file(const char *path, struct err *e);

/* One file's bytes, which must outlive the result. */
struct st *st_parse(const void *bytes, size_t len, struct err *e);

void st_close(struct st *s);		/* NULL is fine */

/* The tensor of this name, or NULL. */
const struct st_tensor *st_get(const struct st *s, const char *name);

/* All tensors, in no particular order. */
size_t st_count(const struct st *s);
const struct st_tensor *st_at(const struct st *s, size_t i);

/* A sum over names, types and values of all tensors, in whatever files and
 * order they are: tells weights apart, not forgeries. */
uint64_t st_sum(const struct st *s);

#endif
