/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device a tool works for when it is not told.
 */
#ifndef CA_BUILD_DEVICE_H
#define CA_BUILD_DEVICE_H

#include "base/err.h"

/* "cuda" when there is a GPU that can be used, else "cpu". */
const char *device_default(void);

/* How many GPUs an earlier run has found in this environment; -1: none has
 * looked.  Does not start CUDA. */
int device_noted(void);

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
