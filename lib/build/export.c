/* SPDX-License-Identifier: Apache-2.0
 *
 * A candidate as a Python package.
 */
#define _GNU_SOURCE
#include "build/export.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "build/tree.h"
#include "build/workdir.h"

#define OBJECT_MAX ((size_t)512 << 20)
#define PYTHON_MAX ((size_t)1 << 20)

/* Identifiers that cannot be imported by name, or hide what we import. */
static const char *const taken[] = {
	"False", "None", "True", "and", "as", "assert", "async", "await",
	"break", "class", "continue", "def", "del", "elif", "else", "except",
	"finally", "for", "from", "global", "if", "import", "in", "is",
	"lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try",
	"while", "with", "yield", "torch",
};

/* The last component must be an identifier. */
static int check_name(const char *dir, char name[256], struct err *e)
{
	size_t end = strlen(dir), begin, i;

	while (end > 1 && dir[end - 1] == '/')
		end--;
	for (begin = end; begin > 0 && dir[begin - 1] != '/';)
		begin--;
	for (i = begin; i < end; i++)
		if (dir[i] != '_' && !isalpha((unsigned char)dir[i]) &&
		    (i == begin || !isdigit((unsigned char)dir[i])))
			break;
	if (begin == end || i < end || end - begin > 200)
		return err_set(e, CA_USAGE, "'%.*s' is no name of a Python "
			       "package: letters, digits and '_'",
			       (int)(end - begin), dir + begin);
	memcpy(name, dir + begin, end - begin);
	name[end - begin] = '\0';
	for (i = 0; i < sizeof(taken) / sizeof(*taken); i++)
		if (!strcmp(name, taken[i]))
			return err_set(e, CA_USAGE, "no package can be called "
				       "'%s'", name);
	return 0;
}

/* Copies a file of the toolkit, or of the cache, into the package. */
static int copy(int fd, const char *dir, const char *from, const char *to,
		size_t cap, struct err *e)
{
	struct str s = STR_INIT;
	int rc = -1;

	s.cap = cap;
	if (read_file(from, cap, &s, e) == 0)
		rc = tree_put(fd, dir, to, s.buf ? s.buf : "", s.len, e);
	str_release(&s);
	return rc;
}

static int copy_python(int fd, const char *dir, const char *from,
		       const char *to, struct err *e)
{
	char path[CA_PATH_MAX];

	return path_lib(path, from, e) < 0 ? -1 :
	       copy(fd, dir, path, to, PYTHON_MAX, e);
}

static int put_spec(const struct rec *r, int fd, const char *dir,
		    struct err *e)
{
	static const char *const kept[] = { "form", "device", "arch",
					    "launchers", "compiler", "object",
					    "version" };
	const struct json *b = rec_get(r, "build");
	struct str s = STR_INIT;
	struct jw w;
	size_t i;
	int rc;

	jw_init(&w, &s);
	jw_obj(&w);
	jw_kstr(&w, "candidate", json_str(rec_get(r, "id"), NULL));
	for (i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		jw_key(&w, kept[i]);
		jw_node(&w, json_get(b, kept[i]));
	}
	jw_end_obj(&w);
	str_addc(&s, '\n');
	rc = s.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     tree_put(fd, dir, "build.json", s.buf, s.len, e);
	str_release(&s);
	return rc;
}

static int put_readme(const struct rec *r, int fd, const char *dir,
		      const char *name, struct err *e)
{
	const struct json *b = rec_get(r, "build");
	int cuda = strcmp(json_get_str(b, "device", ""), "cuda") == 0;
	struct str s = STR_INIT;
	int rc;

	str_addf(&s, "# %s\n\n    from %s import ModelNew\n\n", name, name);
	str_addf(&s, "`ModelNew` is a `torch.nn.Module` with kernels of its "
		 "own; nothing but torch is\nneeded.\n\n`kernels.so` is for "
		 "%s (%s).\nFor another machine it is built again, there, "
		 "with\n\n    ca-workdir export NEW_NAME %s\n\nsince "
		 "this directory holds the sources and the reference too.\n",
		 cuda ? json_get_str(b, "arch", "CUDA") :
		 "processors like the one it was built on",
		 json_get_str(b, "compiler", "?"), name);
	rc = s.failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     tree_put(fd, dir, "README.md", s.buf, s.len, e);
	str_release(&s);
	return rc;
}

static int fill(const struct rec *r, int fd, const char *dir,
		const char *name, const char *object, struct err *e)
{
	const struct json *files = rec_get(r, "files");
	const char *model = json_get_str(files, "model_new.py", "");
	const char *code = workdir_code(r);

	if (copy_python(fd, dir, "torch/package.py", "__init__.py", e) < 0 ||
	    copy_python(fd, dir, "torch/launch.py", "_launch.py", e) < 0 ||
	    copy_python(fd, dir, "torch/inline.py", "_inline.py", e) < 0 ||
	    copy(fd, dir, object, "kernels.so", OBJECT_MAX, e) < 0 ||
	    tree_put(fd, dir, "model_new.py", model, strlen(model), e) < 0 ||
	    (code && tree_put(fd, dir, "model.py", code, strlen(code),
			      e) < 0) ||
	    put_spec(r, fd, dir, e) < 0 ||
	    put_readme(r, fd, dir, name, e) < 0)
		return -1;
	return workdir_sources(files, fd, dir, e);
}

int export_package(const struct rec *r, const struct build_opts *o,
		   const char *dir, struct err *e)
{
	const struct json *b = rec_get(r, "build");
	char name[256], object[CA_PATH_MAX];
	struct tree t;

	if (check_name(dir, name, e) < 0)
		return -1;
	if (strcmp(json_get_str(b, "status", ""), "ok") != 0)
		return err_set(e, CA_DATAERR, "the candidate does not build: "
			       "%s: %s", json_get_str(b, "status", "?"),
			       json_str(json_path(b, "error.message"), "?"));
	if (build_object_path(r, o, object, e) < 0)
		return -1;
	if (tree_open(&t, dir, e))
		return -1;
	return tree_close(&t, fill(r, t.fd, dir, name, object, e));
}
