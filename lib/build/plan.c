/* SPDX-License-Identifier: Apache-2.0
 *
 * What building one candidate takes.
 */
#include "build/plan.h"

#include <string.h>

#include "base/hash.h"
#include "base/opt.h"
#include "build/device.h"
#include "build/nvcc.h"
#include "build/record.h"
#include "build/stub.h"

#define GIB ((int64_t)1 << 30)
#define ALL_CU "all.cu"		/* made for the kernel form */

struct args {
	const char **v;
	size_t n;
	int failed;
};

static void arg(struct args *a, const char *s)
{
	if (!s || a->n + 1 >= PLAN_ARGS) {
		a->failed = 1;
		return;
	}
	a->v[a->n++] = s;
	a->v[a->n] = NULL;
}

static void args_add(struct args *a, const char *const *v)
{
	while (*v)
		arg(a, *v++);
}

static int fail(struct plan *p, enum status s, const char *file,
		const char *message)
{
	p->status = s;
	p->error.file = file;
	p->error.line = 0;
	p->error.message = message ? message : "out of memory";
	return 0;
}

const char *plan_headers_name(enum plan_headers h)
{
	return h == HEADERS_SLIM ? "slim" : h == HEADERS_REAL ? "real" : NULL;
}

/* Whether the form binds with torch's C++ interface. */
static int uses_torch(const struct plan *p)
{
	return p->form == FORM_PAPER || p->form == FORM_INLINE;
}

/* Whether anything that is compiled includes a header of this name. */
static int includes(const struct plan *p, const char *header)
{
	return source_includes(&p->tree, header) ||
	       source_includes(&p->made, header);
}

static int is_cuda_source(const char *path)
{
	return ends_with(path, ".cu");
}

/* Whether the file is a unit of its own in this form and on this device. */
static int is_unit(const struct plan *p, const struct source_file *f)
{
	if (!source_compiled(f->path) || f->included)
		return 0;
	if (strcmp(f->path, "binding.cpp") == 0)
		return p->form == FORM_PAPER;
	return p->cuda || !is_cuda_source(f->path);
}

static const char *const host_flags[] = {
	"-c", "-O3", "-pipe", "-fPIC", "-I.", "-Ikernels",
	"-fdiagnostics-color=never", "-w", NULL
};

static const struct {
	const char *header, *lib;
} cuda_libs[] = {
	{ "cublas_v2.h", "cublas" }, { "cublas.h", "cublas" },
	{ "cublasLt.h", "cublasLt" }, { "cudnn.h", "cudnn" },
	{ "curand.h", "curand" }, { "cufft.h", "cufft" },
	{ "cusparse.h", "cusparse" }, { "cusolverDn.h", "cusolver" },
};

#define LIBS (sizeof(cuda_libs) / sizeof(*cuda_libs))

/* As torch's own extension builder has them, so that what builds there
 * builds here. */
static const char *const torch_nvcc[] = {
	"-D__CUDA_NO_HALF_OPERATORS__",
	"-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
	"-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", NULL
};

static void torch_includes(struct plan *p, struct arena *a, struct args *v)
{
	arg(v, "-isystem");
	if (p->headers == HEADERS_SLIM) {
		arg(v, p->tc.slim);
	} else {
		arg(v, arena_printf(a, "%s/include", p->tc.torch));
		arg(v, "-isystem");
		arg(v, arena_printf(a, "%s/include/torch/csrc/api/include",
				    p->tc.torch));
	}
	arg(v, "-isystem");
	arg(v, p->tc.python_include);
}

static void torch_defines(struct arena *a, const struct ext *x,
			  struct args *v)
{
	arg(v, arena_printf(a, "-DTORCH_EXTENSION_NAME=%s",
			    x ? x->name : "cuda_extension"));
	arg(v, "-DTORCH_API_INCLUDE_EXTENSION_H");
}

/* Include paths of libraries that come with torch and not with the toolkit. */
static void lib_includes(struct plan *p, struct arena *a, struct args *v)
{
	char dir[CA_PATH_MAX];
	size_t i;

	for (i = 0; i < LIBS; i++) {
		if (!includes(p, cuda_libs[i].header) ||
		    toolchain_cuda_header(&p->tc, cuda_libs[i].header,
					  dir) < 0)
			continue;
		arg(v, "-isystem");
		arg(v, arena_strdup(a, dir));
	}
}

/* torch's headers take C++20 in 2.11 already and need it in 2.15.  A candidate
 * may ask for more than its headers need, not for less. */
static const char *cxx_standard(const struct plan *p, struct arena *a,
				const struct flags *own)
{
	int std = p->headers == HEADERS_REAL ? 20 : 17;

	if (own && own->std > std)
		std = own->std;
	return arena_printf(a, "-std=c++%d", std);
}

static void host_command(struct plan *p, struct arena *a,
			 const struct plan_unit *u, struct args *v)
{
	int c = ends_with(u->source, ".c");

	arg(v, c ? p->tc.cc : p->tc.cxx);
	args_add(v, host_flags);
	if (uses_torch(p) && !c) {
		arg(v, cxx_standard(p, a, u->ext ? &u->ext->cxx : NULL));
		torch_defines(a, u->ext, v);
		torch_includes(p, a, v);
	} else {
		arg(v, c ? "-std=gnu11" : "-std=gnu++17");
	}
	if (p->form != FORM_PAPER) {
		arg(v, "-march=native");
		arg(v, "-fopenmp");
	}
	/* Who calls memcpy last stays its caller, as whose time the judge
	 * counts it. */
	if (!p->cuda)
		arg(v, "-fno-optimize-sibling-calls");
	if (p->cuda) {
		arg(v, "-isystem");
		arg(v, arena_printf(a, "%s/include", p->tc.cuda));
		lib_includes(p, a, v);
	}
	if (u->ext)
		args_add(v, u->ext->cxx.v);
	if (p->exts.n > 1)
		arg(v, "-fno-gnu-unique");
}

static void cuda_command(struct plan *p, struct arena *a,
			 const struct plan_unit *u, struct args *v)
{
	const char *num = p->arch + 3;	/* after "sm_" */

	/* Torch's own headers take gigabytes in each half. */
	if (p->headers != HEADERS_REAL) {
		arg(v, "/bin/sh");
		arg(v, "-c");
		arg(v, nvcc_script);
		arg(v, "nvcc");
		arg(v, "");	/* the steps, when it runs */
	}
	arg(v, p->tc.nvcc);
	arg(v, "-c");
	arg(v, "-O3");
	arg(v, cxx_standard(p, a, u->ext ? &u->ext->nvcc : NULL));
	arg(v, "-gencode");
	arg(v, arena_printf(a, "arch=compute_%s,code=sm_%s", num, num));
	/* The judge knows kernels by their code (cu/code.h). */
	arg(v, "--no-compress");
	arg(v, "-I.");
	arg(v, "-Ikernels");
	arg(v, "-w");
	arg(v, "-ccbin");
	arg(v, p->tc.cxx);
	arg(v, "-Xcompiler");
	arg(v, "-fPIC");
	lib_includes(p, a, v);
	if (uses_torch(p)) {
		if (p->form == FORM_PAPER)
			arg(v, "--use_fast_math");
		args_add(v, torch_nvcc);
		torch_defines(a, u->ext, v);
		torch_includes(p, a, v);
	}
	if (u->ext)
		args_add(v, u->ext->nvcc.v);
	if (p->exts.n > 1) {
		arg(v, "-Xcompiler");
		arg(v, "-fno-gnu-unique");
	}
}

static int add_unit(struct plan *p, struct arena *a, const char *path,
		    const struct ext *x)
{
	struct plan_unit *u = &p->unit[p->nunit];
	struct args v = { u->argv, 0, 0 };

	u->source = path;
	u->ext = x;
	if (is_cuda_source(path)) {
		cuda_command(p, a, u, &v);
		u->memory = GIB;
	} else {
		host_command(p, a, u, &v);
		u->memory = GIB / 2;
	}
	if (p->headers == HEADERS_REAL)
		u->memory = 3 * GIB;
	arg(&v, path);
	arg(&v, "-o");
	arg(&v, arena_printf(a, "../out/%zu/object.o", p->nunit));
	p->nunit++;
	return v.failed ? -1 : 0;
}

static int kernel_command(struct plan *p, struct arena *a)
{
	struct plan_unit *u = &p->unit[p->nunit++];
	struct args v = { u->argv, 0, 0 };

	u->source = ALL_CU;
	u->memory = GIB / 2;
	arg(&v, p->tc.nvrtc_child);
	arg(&v, p->tc.nvrtc);
	arg(&v, ALL_CU);
	arg(&v, "../out/0/object.o");
	arg(&v, arena_printf(a, "--gpu-architecture=%s", p->arch));
	arg(&v, "-I.");
	arg(&v, "-Ikernels");
	arg(&v, arena_printf(a, "-I%s", p->tc.nvrtc_include));
	arg(&v, arena_printf(a, "-I%s/cccl", p->tc.nvrtc_include));
	arg(&v, "-std=c++17");
	arg(&v, "-w");
	return v.failed ? -1 : 0;
}

/* NVRTC takes one file: the kernel form's sources are included by one that is
 * made here. */
static int kernel_unit(struct plan *p, struct arena *a)
{
	struct source_file *f = arena_alloc(a, 1, sizeof(*f));
	struct str s = STR_INIT;
	size_t i;

	for (i = 0; i < p->tree.n; i++)
		if (is_unit(p, &p->tree.file[i]))
			str_addf(&s, "#include \"%s\"\n",
				 p->tree.file[i].path);
	if (f) {
		f->path = ALL_CU;
		f->text = arena_strdup(a, s.buf ? s.buf : "");
		f->len = s.len;
		p->made.file = f;
		p->made.n = 1;
	}
	str_release(&s);
	return f && f->text ? kernel_command(p, a) : -1;
}

static int inline_units(struct plan *p, struct arena *a)
{
	size_t i, k;

	for (i = 0; i < p->exts.n; i++)
		for (k = 0; k < p->exts.v[i].n; k++)
			if (add_unit(p, a, p->exts.v[i].path[k],
				     &p->exts.v[i]) < 0)
				return -1;
	return 0;
}

static int tree_units(struct plan *p, struct arena *a)
{
	size_t i;

	for (i = 0; i < p->tree.n; i++)
		if (is_unit(p, &p->tree.file[i]) &&
		    add_unit(p, a, p->tree.file[i].path, NULL) < 0)
			return -1;
	return 0;
}

static int make_units(struct plan *p, struct arena *a, struct err *e)
{
	size_t most = p->tree.n + EXT_MAX * p->exts.n + 1, i;

	for (i = 0; i < p->exts.n; i++)
		most += p->exts.v[i].n;
	p->nunit = 0;
	p->unit = arena_alloc(a, most, sizeof(*p->unit));
	if (!p->unit ||
	    (p->form == FORM_KERNEL ? kernel_unit(p, a) :
	     p->form == FORM_INLINE ? inline_units(p, a) :
	     tree_units(p, a)) < 0)
		return err_set(e, CA_SOFTWARE, "out of memory");
	return 0;
}

/* Libraries that a candidate names.  The CPU has none of CUDA's. */
static int own_libs(struct plan *p, struct arena *a, const struct flags *own,
		    struct args *v, struct err *e)
{
	char path[CA_PATH_MAX];
	size_t i;

	for (i = 0; i < own->n; i++) {
		if (strcmp(own->v[i], "openblas") == 0) {
			arg(v, "-lopenblas");
			continue;
		}
		if (!p->cuda)
			continue;
		if (toolchain_cuda_lib(&p->tc, own->v[i], path, e) < 0)
			return -1;
		arg(v, arena_strdup(a, path));
	}
	return 0;
}

/* Libraries follow from the headers that the sources include. */
static int link_libs(struct plan *p, struct arena *a, struct args *v,
		     struct err *e)
{
	char path[CA_PATH_MAX];
	size_t i;

	if (includes(p, "cblas.h"))
		arg(v, "-lopenblas");
	for (i = 0; p->cuda && i < LIBS; i++) {
		if (!includes(p, cuda_libs[i].header))
			continue;
		if (toolchain_cuda_lib(&p->tc, cuda_libs[i].lib, path, e) < 0)
			return -1;
		arg(v, arena_strdup(a, path));
	}
	for (i = 0; i < p->exts.n; i++)
		if (own_libs(p, a, &p->exts.v[i].libs, v, e) < 0)
			return -1;
	if (p->cuda && includes(p, "cuda.h") &&
	    toolchain_cuda_lib(&p->tc, "cuda", path, NULL) == 0)
		arg(v, arena_strdup(a, path));
	return 0;
}

static int link_torch(struct plan *p, struct arena *a, struct args *v)
{
	size_t i;

	if (stub_torch(p->tc.torch, p->cuda, a, &p->stubs) < 0)
		return -1;
	/* They have nothing that is needed. */
	arg(v, "-Wl,--no-as-needed");
	for (i = 0; i < p->stubs.n; i++)
		arg(v, p->stubs.file[i].path);
	arg(v, "-Wl,--as-needed");
	if (p->cuda)
		arg(v, "-lcudart");
	return 0;
}

/*
 * Several extensions in one object may define the same names: the objects of
 * each are put together first, and all but its entry becomes local (which
 * unique symbols cannot, hence -fno-gnu-unique).  The shell runs with the
 * command of the link as its arguments.
 */
static const char *join_script(struct plan *p, struct arena *a)
{
	struct str s = STR_INIT;
	const char *text;
	size_t i, k;

	for (i = 0; i < p->exts.n; i++) {
		const char *name = p->exts.v[i].name;

		str_addf(&s, "\"$1\" -r -nostdlib -Wl,--force-group-allocation "
			 "-o ../out/link/%zu.o", i);
		for (k = 0; k < p->nunit; k++)
			if (p->unit[k].ext == &p->exts.v[i])
				str_addf(&s, " ../obj/%zu.o", k);
		str_addf(&s, " && objcopy --keep-global-symbol=PyInit_%s "
			 "../out/link/%zu.o && ", name, i);
	}
	str_adds(&s, "exec \"$@\"");
	text = s.failed ? NULL : arena_strdup(a, s.buf);
	str_release(&s);
	return text;
}

static void link_inputs(struct plan *p, struct arena *a, struct args *v)
{
	size_t i;

	if (p->exts.n > 1)
		for (i = 0; i < p->exts.n; i++)
			arg(v, arena_printf(a, "../out/link/%zu.o", i));
	else
		for (i = 0; i < p->nunit; i++)
			arg(v, arena_printf(a, "../obj/%zu.o", i));
}

static int make_link(struct plan *p, struct arena *a, struct err *e)
{
	static const char *const cudart[] = { "-lcudart_static", "-lrt",
					      "-ldl", "-lpthread", NULL };
	struct args v = { p->link, 0, 0 };

	if (p->form == FORM_KERNEL)
		return 0;
	if (p->exts.n > 1) {
		arg(&v, "/bin/sh");
		arg(&v, "-c");
		arg(&v, join_script(p, a));
		arg(&v, "link");
	}
	arg(&v, p->tc.cxx);
	arg(&v, "-shared");
	arg(&v, "-o");
	arg(&v, "../out/link/object.so");
	link_inputs(p, a, &v);
	arg(&v, "-Wl,--as-needed");
	if (p->form != FORM_PAPER)
		arg(&v, "-fopenmp");
	if (!uses_torch(p))
		arg(&v, "-Wl,-z,defs");
	if (p->cuda) {
		arg(&v, arena_printf(a, "-L%s/lib64", p->tc.cuda));
		arg(&v, arena_printf(a, "-L%s/lib", p->tc.cuda));
	}
	if (link_libs(p, a, &v, e) < 0)
		return -1;
	if (uses_torch(p) && link_torch(p, a, &v))
		return err_set(e, CA_SOFTWARE, "out of memory");
	if (p->cuda && !uses_torch(p))
		args_add(&v, cudart);
	arg(&v, "-lm");
	if (v.failed)
		return fail(p, ST_COMPILE_ERROR, NULL,
			    "too many source files in kernels/");
	return 0;
}

static void add_argv(struct hash *h, const char *const *v)
{
	for (; *v; v++)
		hash_part(h, *v, strlen(*v));
	hash_part(h, "", 0);
}

static void hash_files(struct hash *h, const struct source_tree *t)
{
	size_t i;

	for (i = 0; i < t->n; i++) {
		if (strcmp(t->file[i].path, "model_new.py") == 0)
			continue;
		hash_part(h, t->file[i].path, strlen(t->file[i].path));
		hash_part(h, t->file[i].text, t->file[i].len);
	}
}

static int make_key(struct plan *p, struct err *e)
{
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];
	size_t i;

	if (!h)
		return err_set(e, CA_SOFTWARE, "out of memory");
	hash_part(h, "ca-object 1", 11);
	hash_part(h, ca_version, strlen(ca_version));
	hash_part(h, p->tc.id, strlen(p->tc.id));
	hash_part(h, form_name(p->form), strlen(form_name(p->form)));
	for (i = 0; i < p->nunit; i++)
		add_argv(h, p->unit[i].argv);
	add_argv(h, p->link);
	/* The requests name what the object is for. */
	for (i = 0; i < p->exts.n; i++)
		hash_part(h, p->exts.v[i].request, HASH_HEX - 1);
	hash_files(h, &p->tree);
	hash_files(h, &p->made);
	hash_files(h, &p->stubs);
	hash_end(h, sum);
	hex(sum, sizeof(sum), p->key);
	return 0;
}

static void add_ro(struct plan *p, const char *path)
{
	size_t i;

	if (starts_with(path, "/usr/") || !*path)
		return;
	for (i = 0; p->ro[i]; i++)
		if (strcmp(p->ro[i], path) == 0)
			return;
	if (i + 1 < sizeof(p->ro) / sizeof(*p->ro))
		p->ro[i] = path;
}

static const char *parent_of(struct arena *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *s = slash ? arena_strndup(a, path, (size_t)(slash - path)) :
		  NULL;

	return s ? s : "";
}

static void make_ro(struct plan *p, struct arena *a)
{
	if (p->form == FORM_KERNEL) {
		add_ro(p, p->tc.nvrtc_child);
		add_ro(p, parent_of(a, p->tc.nvrtc));
		add_ro(p, p->tc.nvrtc_include);
		return;
	}
	add_ro(p, parent_of(a, parent_of(a, p->tc.cc)));
	add_ro(p, parent_of(a, parent_of(a, p->tc.cxx)));
	add_ro(p, p->tc.cuda);
	add_ro(p, p->tc.torch);
	add_ro(p, p->tc.python_include);
	if (p->headers == HEADERS_SLIM)
		add_ro(p, p->tc.slim);
	if (p->cuda && *p->tc.torch) {
		const char *n = arena_printf(a, "%.*s/nvidia",
			(int)(strrchr(p->tc.torch, '/') - p->tc.torch),
			p->tc.torch);

		if (n)
			add_ro(p, n);
	}
}

static int has_kernels(const struct plan *p, int cuda_only)
{
	size_t i;

	for (i = 0; i < p->tree.n; i++)
		if (starts_with(p->tree.file[i].path, "kernels/") &&
		    source_compiled(p->tree.file[i].path) &&
		    (!cuda_only || is_cuda_source(p->tree.file[i].path)))
			return 1;
	return 0;
}

/* What the candidate lacks, before any compiler is looked for. */
static int check_sources(struct plan *p)
{
	if (!p->tree.n && p->empty)
		return fail(p, ST_NO_SOURCE, NULL, "there is no candidate");
	if (!p->tree.n)
		return fail(p, ST_BAD_RECORD, NULL,
			    "the record has no usable files");
	if (!source_find(&p->tree, "model_new.py"))
		return fail(p, ST_NO_SOURCE, NULL, "no model_new.py");
	if (p->form == FORM_INLINE)
		return 0;
	if (p->form == FORM_PAPER && !p->cuda)
		return fail(p, ST_COMPILE_ERROR, NULL, "binding files (form "
			    "'paper') are built for --device cuda only");
	if (!has_kernels(p, 0))
		return fail(p, ST_NO_SOURCE, NULL,
			    "no C, C++ or CUDA file in kernels/");
	return 0;
}

static int uses_cuda_libs(const struct plan *p)
{
	size_t i;

	for (i = 0; i < LIBS; i++)
		if (includes(p, cuda_libs[i].header))
			return 1;
	return 0;
}

static int make_commands(struct plan *p, struct arena *a, struct err *e)
{
	unsigned need = TOOLCHAIN_HOST;

	if (p->form == FORM_KERNEL)
		need = TOOLCHAIN_NVRTC;
	else if (p->cuda)
		need |= TOOLCHAIN_CUDA;
	if (uses_torch(p))
		need |= TOOLCHAIN_TORCH;
	else if (p->form == FORM_LIGHT && p->cuda && uses_cuda_libs(p))
		need |= TOOLCHAIN_WHEELS;
	if (toolchain_find(need, &p->tc, e) < 0 ||
	    make_units(p, a, e) < 0)
		return -1;
	if (!p->nunit)
		return fail(p, ST_NO_SOURCE, NULL, has_kernels(p, 1) ?
			    "kernels/ holds CUDA sources only; use "
			    "--device cuda" :
			    "every file in kernels/ is included by another");
	if (make_link(p, a, e) < 0)
		return -1;
	make_ro(p, a);
	return make_key(p, e);
}

int plan_real(struct plan *p, struct arena *a, struct err *e)
{
	p->headers = HEADERS_REAL;
	memset(p->ro, 0, sizeof(p->ro));
	return make_commands(p, a, e);
}

static const char *first_line_from_end(const char *text)
{
	size_t n = strlen(text);
	const char *s = text + n;

	while (s > text && s[-1] == '\n')
		s--;
	while (s > text && s[-1] != '\n')
		s--;
	return s;
}

/* What a dry run without a request comes to. */
static int no_request(struct plan *p, struct arena *a, const char *error)
{
	const char *why;

	if (!error)
		return fail(p, ST_NO_SOURCE, "model_new.py", "a dry run of "
			    "the model calls neither load_inline nor load");
	why = first_line_from_end(error);
	return fail(p, ST_NO_SOURCE, "model_new.py", arena_printf(a,
		    "a dry run of the model ends before it calls load_inline "
		    "or load: %.*s", (int)strcspn(why, "\n"), why));
}

static int cuda_on_cpu(const struct plan *p)
{
	size_t i, k;

	for (i = 0; i < p->exts.n; i++)
		for (k = 0; k < p->exts.v[i].n; k++)
			if (is_cuda_source(p->exts.v[i].path[k]))
				return !p->cuda;
	return 0;
}

static int take_said(struct plan *p, struct arena *a, const struct json *said,
		     struct err *e)
{
	const char *refused = json_get_str(said, "refused", NULL), *why;
	int rc;

	if (refused)
		return fail(p, ST_COMPILE_ERROR, "model_new.py",
			    arena_strdup(a, refused));
	rc = inline_read(said, &p->tree, a, &p->exts, &why, e);
	if (rc < 0)
		return -1;
	if (rc > 0)
		return fail(p, ST_COMPILE_ERROR, "model_new.py", why);
	if (!p->exts.n)
		return no_request(p, a, json_get_str(said, "error", NULL));
	if (cuda_on_cpu(p))
		return fail(p, ST_NO_SOURCE, "model_new.py", "the extensions "
			    "have CUDA sources; use --device cuda");
	p->made = p->exts.made;
	return 0;
}

/* Finds the extensions of an inline candidate. */
static int dry_run(const struct rec *r, const struct plan_opts *o,
		   struct arena *a, struct plan *p, struct err *e)
{
	struct record_job j = {
		.task = json_get_str(rec_get(r, "task"), "code", ""),
		.code = source_find(&p->tree, "model_new.py")->text,
		.cuda = p->cuda, .arch = p->arch, .no_jail = o->no_jail,
		.seconds = o->seconds,
	};
	struct recorded got;
	int rc;

	if (record_run(&j, &got, e) < 0)
		return -1;
	if (got.said)
		rc = take_said(p, a, got.said, e);
	else
		rc = fail(p, got.timed_out ? ST_BUILD_TIMEOUT :
			  ST_COMPILE_ERROR, "model_new.py",
			  arena_strdup(a, got.text));
	json_free(got.said);
	return rc;
}

static const char *python_of(const struct source_tree *t)
{
	const struct source_file *f = source_find(t, "model_new.py");

	return f ? f->text : NULL;
}

int plan_make(const struct rec *r, const struct plan_opts *o,
	      struct arena *a, struct plan *p, struct err *e)
{
	struct err bad = ERR_INIT;

	memset(p, 0, sizeof(*p));
	p->cuda = o->cuda;
	p->arch = !o->cuda ? "native" : o->arch ? o->arch : "sm_90a";
	if (o->cuda && device_check_arch(p->arch, e) < 0)
		return -1;
	if (source_read(r, a, &p->tree, &bad) < 0) {
		if (bad.code == CA_SOFTWARE)
			return err_set(e, bad.code, "%s", bad.msg);
		return fail(p, ST_BAD_RECORD, NULL, arena_strdup(a, bad.msg));
	}
	p->empty = json_len(rec_get(r, "files")) == 0;
	if (decl_scan(&p->tree, a, &p->decls, e) < 0 ||
	    launch_find(&p->decls, python_of(&p->tree), a, &p->launchers,
			e) < 0)
		return -1;
	p->form = form_detect(&p->tree, &p->decls, &p->launchers, p->cuda);
	p->headers = uses_torch(p) ? HEADERS_SLIM : HEADERS_NONE;
	if (check_sources(p) < 0)
		return -1;
	if (p->status == ST_OK && p->form == FORM_INLINE &&
	    dry_run(r, o, a, p, e) < 0)
		return -1;
	return p->status == ST_OK ? make_commands(p, a, e) : 0;
}
