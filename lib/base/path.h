/* SPDX-License-Identifier: Apache-2.0
 *
 * Where things are: the toolkit's own files and the user's cache.
 */
#ifndef CA_BASE_PATH_H
#define CA_BASE_PATH_H

#include <stddef.h>

#include "base/err.h"

#define CA_PATH_MAX 4096

/*
 * The toolkit's data directory, which holds torch/host.py: $CA_LIBDIR, else
 * ../lib beside the running program's directory when it holds torch/host.py
 * (a checkout), else ../lib/cuda-agent (an installed one).
 */
int path_lib(char out[CA_PATH_MAX], const char *name, struct err *e);

/* NAME of skills/, which lies beside lib/ in a checkout and in it when
 * installed.  CA_NOINPUT. */
int path_skill(char out[CA_PATH_MAX], const char *name, struct err *e);

/* A program of the toolkit's own that is not on anybody's PATH, as
 * nvrtc-child: beside the running program (a checkout), else with the
 * toolkit's files (an installed one).  CA_UNAVAILABLE. */
int path_helper(char out[CA_PATH_MAX], const char *name, struct err *e);

/*
 * A directory of the cache, made with mode 0755: $CA_CACHE, else
 * /var/cache/cuda-agent for root, else $XDG_CACHE_HOME/cuda-agent, else
 * ~/.cache/cuda-agent; then "/NAME".  Unprivileged workers must be able to
 * read below it, hence root's exception (its home is usually 0700).
 */
int path_cache(char out[CA_PATH_MAX], const char *name, struct err *e);

/* The user's key and configuration: $CA_CONFIG, else
 * $XDG_CONFIG_HOME/cuda-agent, else ~/.config/cuda-agent; mode 0700. */
int path_config(char out[CA_PATH_MAX], const char *name, struct err *e);

/* The Python that has torch: $CA_PYTHON, a python3 on the path with a torch
 * in the range that torch/requirements.txt states (found without importing
 * it), <cache>/venv/bin/python3.  As root one that unprivileged users can
 * read is preferred.  test/setup/lib.sh looks in the same order.  The answer is
 * kept in <cache>/python-* until one of these changes.  CA_UNAVAILABLE. */
int path_python(char out[CA_PATH_MAX], struct err *e);

#endif
