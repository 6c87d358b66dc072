/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device a tool works for when it is not told.
 */
#ifndef CA_BUILD_DEVICE_H
#define CA_BUILD_DEVICE_H

#include "base/err.h"
#include "base/str.h"
#include "cu/cu.h"

/* "cuda" when there is a GPU that can be used, else "cpu". */
const char *device_default(void);

#define GPUS_NOTED 64

/* The GPUs that CUDA shows, by their ordinals. */
struct gpus {
	int n;
	struct gpu {
		char arch[16];
		char uuid[CU_UUID_TEXT];
	} gpu[GPUS_NOTED];
};

/* What an earlier run has found in this environment, without starting CUDA;
 * -1: none has looked. */
int gpus_noted(struct gpus *g);
/* The same, or, where none has looked, by starting it here. */
void gpus_find(struct gpus *g);
/* A line "sm_90a GPU-..." for each; -1: it is no such text. */
int gpus_read(const char *text, struct gpus *g);
void gpus_write(const struct gpus *g, struct str *out);

/* Whether `name` is "cpu", "cuda" or "cuda:N".  0, or CA_USAGE. */
int device_check(const char *name, struct err *e);

/* Whether `name` is an architecture: sm_90, sm_90a, sm_100f.  0, or
 * CA_USAGE. */
int device_check_arch(const char *name, struct err *e);

/* The architecture to build for on "cuda" or "cuda:N": the device's, with
 * the features of its own from 9.0 on ("sm_90a", "sm_80"); "sm_90a" where
 * there is no GPU. */
void device_arch(const char *name, char out[16]);

#endif
