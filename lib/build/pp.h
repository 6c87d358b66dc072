/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens that a compiler would see of a candidate's own files, without
 * what they include: macros that the tree defines are expanded where asked,
 * conditional sections are chosen as far as can be told (#if 0, __cplusplus,
 * __CUDACC__, names that the tree defines).  The work that a text can cause
 * is bounded.
 */
#ifndef CA_BUILD_PP_H
#define CA_BUILD_PP_H

#include "build/lex.h"
#include "build/source.h"

struct pp;

/* Collects the macros of every C-family file below kernels/.  NULL when
 * memory is short; lives in the arena. */
struct pp *pp_new(const struct source_tree *t, struct arena *a);

/* Whether the file is one that pp reads. */
int pp_reads(const struct source_file *f);

/* Begins a file. */
void pp_enter(struct pp *p, const struct source_file *f);

/* The next token; macros are expanded if `expand`.  A token of an expansion
 * has the line where that began. */
void pp_next(struct pp *p, struct token *t, int expand);

int pp_launches(const struct pp *p);	/* 1: a <<< was seen */
int pp_failed(const struct pp *p);	/* 1: memory was short */

#endif
