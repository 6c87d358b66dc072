/* SPDX-License-Identifier: Apache-2.0
 *
 * Function declarations at namespace scope of C, C++ and CUDA sources, found
 * without a compiler: bodies are skipped, linkage blocks and namespaces are
 * entered, macros are expanded outside of bodies (pp.h).
 */
#ifndef CA_BUILD_DECL_H
#define CA_BUILD_DECL_H

#include "build/lex.h"
#include "build/source.h"

struct decl {
	const char *file;	/* path in the tree */
	unsigned line;		/* of the name */
	const char *name;
	const struct token *ret;	/* type before the name, cleaned */
	size_t nret;
	const struct token *param;	/* between the parentheses */
	size_t nparam;
	unsigned c_linkage : 1, body : 1, is_static : 1, is_template : 1,
		 global : 1, device : 1;
};

struct alias {			/* typedef or using */
	const char *name;
	const struct token *type;
	size_t ntype;
};

struct decls {
	struct decl *fn;
	size_t nfn, fn_alloc;
	struct alias *alias;
	size_t nalias, alias_alloc;
	int launches;		/* some source has a <<< */
};

/* Scans every C-family file below kernels/.  In .c files functions have C
 * linkage.  All in the arena.  -1 only when memory is short. */
int decl_scan(const struct source_tree *t, struct arena *a, struct decls *d,
	      struct err *e);

#endif
