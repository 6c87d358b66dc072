/* SPDX-License-Identifier: Apache-2.0
 *
 * A fresh workdir from a reference.
 */
#include "build/starter.h"

#include <string.h>
#include <unistd.h>

#include "build/form.h"
#include "build/tree.h"

static const char starter_head[] =
	"# The reference under the name ModelNew, to start from: it runs, but "
	"earns\n"
	"# nothing before the work is done by kernels of your own.  Write them "
	"in\n"
	"# kernels/ as extern \"C\" functions; `import cuda_extension` then "
	"offers them\n"
	"# as cuda_extension.NAME(tensor, ..., number, ...).\n";

static const char readme[] =
	"# Work directory\n"
	"\n"
	"| file | what it is |\n"
	"|---|---|\n"
	"| `model.py` | the task: `Model`, `get_inputs()`, `get_init_inputs()`;"
	" not yours to change |\n"
	"| `model_new.py` | the candidate: `ModelNew`, same constructor, same "
	"parameters, same results |\n"
	"| `kernels/` | its kernels: `*.cu` (or `*.c`, `*.cpp` for the CPU) "
	"with `extern \"C\"` functions |\n"
	"\n"
	"Judge it:\n"
	"\n"
	"    ca-compile . | ca-verify | ca-profile | ca-reward --table\n"
	"\n"
	"`man ca` says how to write a candidate, `man ca-compile` what is "
	"built and how,\n"
	"`man ca-verify` what counts as right.  `ca-profile --reference .` "
	"shows where the\n"
	"reference spends its time.\n";

/* Length of the piece at s that is one string, comment, word or byte. */
static size_t piece(const char *s)
{
	size_t n;

	if (*s == '#')
		return strcspn(s, "\n");
	n = form_python_string(s);
	if (!n)
		n = form_python_word(s);
	return n ? n : 1;
}

static int is(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && memcmp(s, word, n) == 0;
}

int starter_rename(const char *s, struct str *out)
{
	int dot = 0, after_class = 0, defined = 0;
	size_t n;

	for (; *s; s += n) {
		n = piece(s);
		if (!dot && is(s, n, "Model")) {
			str_adds(out, "ModelNew");
			defined += after_class;
		} else {
			str_add(out, s, n);
		}
		if (strchr(" \t\\\n", *s))
			continue;
		dot = *s == '.';
		after_class = is(s, n, "class");
	}
	return defined;
}

int starter_write(const char *code, size_t len, const char *dir,
		  struct err *e)
{
	struct tree t = { .fd = -1 };
	struct str s = STR_INIT;
	int rc = -1;


	str_adds(&s, starter_head);
	if (starter_rename(code, &s) == 0) {
		err_set(e, CA_DATAERR, "the reference defines no class Model");
		goto out;
	}
	if (s.failed) {
		err_set(e, CA_SOFTWARE, "out of memory");
		goto out;
	}
	if (tree_open(&t, dir, e))
		goto out;
	if (tree_put(t.fd, dir, "model.py", code, len, e) == 0 &&
	    tree_put(t.fd, dir, "model_new.py", s.buf, s.len, e) == 0 &&
	    tree_put(t.fd, dir, "README.md", readme, strlen(readme), e) == 0)
		rc = tree_dir(t.fd, dir, "kernels", e);
out:
	rc = tree_close(&t, rc);
	str_release(&s);
	return rc;
}
