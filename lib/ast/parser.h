/* SPDX-License-Identifier: Apache-2.0
 *
 * Python sources to trees, by one process that holds CPython's parser
 * (lib/torch/ast.py).  It runs none of the code.
 */
#ifndef CA_AST_PARSER_H
#define CA_AST_PARSER_H

#include "ast/store.h"

#define AST_SOURCE_MAX ((size_t)1 << 20)

struct ast_parser;

/* The process is started at the first file.  NULL when memory is short. */
struct ast_parser *ast_parser_new(struct ast_store *s);
void ast_parser_free(struct ast_parser *p);

/*
 * Parses one file.  0; 1 when it cannot be parsed or is beyond the limits (`e`
 * says how), which includes files that end the process; -1 when no parser
 * works here.
 */
int ast_parse(struct ast_parser *p, const char *code, size_t len,
	      struct ast_doc *paper, struct ast_doc *normal, struct err *e);

#endif
