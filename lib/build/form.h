/* SPDX-License-Identifier: Apache-2.0
 *
 * Which form a candidate has, and what its parts are.
 */
#ifndef CA_BUILD_FORM_H
#define CA_BUILD_FORM_H

#include "build/launch.h"

enum build_form { FORM_LIGHT, FORM_KERNEL, FORM_PAPER, FORM_INLINE };

const char *form_name(enum build_form f);	/* "light", … */

/*
 * paper: kernels/ holds a file *_binding.cpp; inline: model_new.py calls
 * load_inline or cpp_extension's load (comments and strings do not count);
 * kernel: on CUDA, every function with C linkage in the .cu files is a
 * __global__ one and nothing is launched with <<<; light: anything else.
 */
enum build_form form_detect(const struct source_tree *t,
			    const struct decls *d,
			    const struct launch_set *l, int cuda);

/* Whether Python source calls a function of that name, plain or as an
 * attribute: the name followed by '('. */
int form_python_calls(const char *text, const char *name);

/* Length of the Python string (without prefix) or word at s; 0 when there is
 * none.  A string that is never closed ends with its line, a triple-quoted
 * one with the text. */
size_t form_python_string(const char *s);
size_t form_python_word(const char *s);

#endif
