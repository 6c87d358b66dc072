/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries without content.  To say which libraries an object wants is all
 * that a link has torch's for: what it uses of them is resolved when it is
 * loaded, where torch is.  To read the symbols of a gigabyte takes a third of
 * a second.
 */
#ifndef CA_BUILD_STUB_H
#define CA_BUILD_STUB_H

#include "base/arena.h"
#include "base/str.h"
#include "build/source.h"

#define STUB_NAME 64

/* Appends a shared library of that name (below STUB_NAME bytes), which has no
 * symbols, for this machine.  0 or -1: out of memory. */
int stub_library(const char *soname, struct str *out);

/* One for each library of the torch in that directory that objects may want,
 * below torch-lib/.  0 or -1: out of memory. */
int stub_torch(const char *torch, int cuda, struct arena *a,
	       struct source_tree *out);

#endif
