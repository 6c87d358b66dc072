/* SPDX-License-Identifier: Apache-2.0
 *
 * nvcc's steps side by side.  For one source it preprocesses and compiles
 * twice, for the host and for the device, one after the other; they depend on
 * each other in the name of the unit, which whoever runs both can choose, and
 * in a file that the host's compiler reads last of all.
 */
#ifndef CA_BUILD_NVCC_H
#define CA_BUILD_NVCC_H

#include "build/compile.h"

/*
 * A script for `sh -c SCRIPT nvcc STEPS NVCC ARGUMENT... SOURCE -o OBJECT`:
 * runs what nvcc would run, both halves at the same time, below the object's
 * folder; says what nvcc says.  Where the steps are not those that the script
 * knows, nvcc runs as ever.
 */
extern const char nvcc_script[];

/* Where STEPS is among the arguments of such a unit's command; 0: it has no
 * such command. */
size_t nvcc_steps_at(const struct plan_unit *u);

/*
 * Appends the steps (`nvcc --dryrun`, which takes a tenth of a second), as
 * they are remembered, or found out once, in a jail without the candidate.
 * Without them -1.
 */
int nvcc_steps(const struct plan *p, const struct plan_unit *u,
	       const struct compile_opts *o, struct str *steps);

#endif
