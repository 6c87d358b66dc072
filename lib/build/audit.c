/* SPDX-License-Identifier: Apache-2.0
 *
 * The symbol audit; ca-verify(1) has the list for people.
 */
#include "build/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "build/elf.h"

static const char *const movers[] = {
#include "torch/movers.inc"
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Names of the C library that no kernel needs, in groups behind their
 * reason. */
static const struct {
	const char *why;
	const char *const names[16];
} refused[] = {
	{ "loads code", { "dlopen", "dlmopen", "dlsym", "dlvsym",
			  "__libc_dlopen_mode", "__libc_dlsym" } },
	{ "starts processes", { "fork", "vfork", "_Fork", "clone", "__clone",
				"posix_spawn", "posix_spawnp", "system",
				"popen", "daemon", "fexecve" } },
	{ "starts processes", { "execl", "execle", "execlp", "execv",
				"execve", "execveat", "execvp", "execvpe" } },
	{ "reaches into processes", { "ptrace", "process_vm_readv",
				      "process_vm_writev", "kill", "killpg",
				      "tgkill", "sigqueue", "pidfd_open",
				      "pidfd_send_signal", "pidfd_getfd" } },
	{ "calls the kernel by number", { "syscall", "prctl", "unshare",
					  "setns", "personality" } },
	{ "changes mappings", { "mprotect", "pkey_mprotect", "mremap",
				"__mprotect", "remap_file_pages" } },
	{ "shares memory", { "memfd_create", "shm_open", "shmget", "shmat",
			     "mq_open", "userfaultfd" } },
	{ "talks to others", { "socket", "socketpair", "connect", "bind",
			       "sendmsg", "recvmsg" } },
	{ "is called by timers and signals", { "setitimer", "timer_create",
					       "timerfd_create", "alarm",
					       "ualarm", "signalfd" } },
	{ "decides who runs where", { "sched_setaffinity",
				      "pthread_setaffinity_np",
				      "sched_setscheduler", "setpriority",
				      "nice" } },
};

static const char *of_libc(const char *name)
{
	for (size_t i = 0; i < COUNT(refused); i++)
		for (size_t k = 0; k < COUNT(refused[i].names) &&
				   refused[i].names[k]; k++)
			if (!strcmp(name, refused[i].names[k]))
				return refused[i].why;
	return NULL;
}

static int moves(const char *op, size_t len)
{
	for (size_t i = 0; i < COUNT(movers); i++)
		if (strlen(movers[i]) == len && !memcmp(movers[i], op, len))
			return 1;
	return 0;
}

/* An overload: "add" of "add_Tensor". */
static int moves_overload(const char *op, size_t len)
{
	for (size_t n = len; n > 0; n--)
		if ((n == len || op[n] == '_') && moves(op, n))
			return 1;
	return 0;
}

static int begins_with_any(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (starts_with(name, list[i]))
			return 1;
	return 0;
}

/* Functions of the C shim that are no operators, behind "torch_"; with an
 * underscore at the end, all that begin so. */
static int is_plain(const char *fn)
{
	static const char *const known[] = {
		"_reinterpret_tensor", "abi_version", "as_strided",
		"assign_tensors", "assign_tensors_out", "c10_cuda_", "check",
		"check_inf_and_nan", "clone_preserve_strides", "create_",
		"delete_", "device_", "dtype", "dtype_", "exception_",
		"from_blob", "get_", "grad_mode_", "int64_to_ivalue",
		"is_contiguous", "is_defined", "item_", "layout_", "list_",
		"memory_format_", "new_", "parallel_for",
		"parse_device_string", "print_tensor_handle",
		"scalar_to_tensor_", "set_current_cuda_stream",
		"set_requires_grad", "str_to_ivalue", "stream_id",
		"string_", "strlist_to_ivalue", "tensor_copy_",
		"tensor_to_ivalue", "warn",
	};

	for (size_t i = 0; i < COUNT(known); i++)
		if (ends_with(known[i], "_") ? starts_with(fn, known[i]) :
		    !strcmp(fn, known[i]))
			return 1;
	return 0;
}

/* aoti_torch_cpu_mm_out, aoti_torch_cuda_empty_strided, aoti_torch_mm_out, …
 * and what is_plain() knows: anything else computes. */
static const char *of_shim(const char *name)
{
	static const char *const device[] = { "cpu_", "cuda_", "aten_" };
	const char *op = strstr(name, "torch_") + strlen("torch_");

	if (starts_with(op, "call_dispatcher") || starts_with(op, "library_") ||
	    starts_with(op, "proxy_"))
		return "reaches PyTorch's operators by name";
	if (is_plain(op))
		return NULL;
	for (size_t i = 0; i < COUNT(device); i++)
		if (starts_with(op, device[i])) {
			op += strlen(device[i]);
			break;
		}
	return moves_overload(op, strlen(op)) ? NULL :
	       "is an operator of PyTorch's";
}

/* The operator of _ZN2at4_ops10empty_like4callE…; NULL with another name. */
static const char *operator_of(const char *name, size_t *len)
{
	char *end;

	if (!starts_with(name, "_ZN2at4_ops"))
		return NULL;
	name += strlen("_ZN2at4_ops");
	*len = strtoul(name, &end, 10);
	return end > name && *len <= strlen(end) ? end : NULL;
}

static const char *of_torch(const char *name)
{
	static const struct {
		const char *part, *why;
	} t[] = {
		{ "ecordFunction", "switches the count of operations" },
		{ "10Dispatcher", "reaches PyTorch's operators by name" },
		{ "_ZN2at6native", "computes inside PyTorch" },
		{ "_ZN2at3cpu", "computes inside PyTorch" },
		{ "_ZN2at4cuda4blas", "computes inside PyTorch" },
		{ "_ZN5torch3jit", "computes inside PyTorch" },
		{ "_ZN5torch2nn", "computes inside PyTorch" },
	};
	const char *op;
	size_t len;

	op = operator_of(name, &len);
	if (op)
		return moves_overload(op, len) ? NULL :
		       "is an operator of PyTorch's";
	for (size_t i = 0; i < COUNT(t); i++)
		if (strstr(name, t[i].part))
			return t[i].why;
	return NULL;
}

/* torch_call_dispatcher is the newer name of aoti_torch_call_dispatcher. */
static int is_shim(const char *name)
{
	return starts_with(name, "aoti_torch_") || starts_with(name, "torch_");
}

static int is_torch(const char *name)
{
	return starts_with(name, "_ZN") &&
	       (strstr(name, "2at") || strstr(name, "3c10") ||
		strstr(name, "5torch"));
}

/* Libraries that PyTorch's contain and show. */
static int is_inside(const char *name)
{
	static const char *const begin[] = {
		"dnnl_", "_ZN4dnnl", "_ZNK4dnnl", "_ZN6fbgemm", "xnn_",
		"pytorch_q", "mkl_", "MKL_",
	};

	return begins_with_any(name, begin, COUNT(begin));
}

/* Our slim headers call two functions of PyTorch's, by one function of
 * Python's; the real ones may call anything. */
static const char *of_python(const char *name, unsigned flags)
{
	static const char *const runs[] = {
		"PyRun_", "Py_CompileString", "PyEval_EvalCode",
		"PyImport_ImportModule", "PyImport_Import", "Py_Main",
		"Py_RunMain",
	};
	static const char *const calls[] = {
		"PyObject_Call", "PyObject_Vectorcall", "_PyObject_Call",
		"_PyObject_Vectorcall", "PyVectorcall_", "PyEval_Call",
		"PyEval_Eval", "PyImport_", "PyCFunction_Call",
		"PyObject_CallMethod",
	};

	if (begins_with_any(name, runs, COUNT(runs)))
		return "runs Python";
	if (flags & AUDIT_SLIM && strcmp(name, "PyImport_AddModule") &&
	    strcmp(name, "PyObject_CallFunctionObjArgs") &&
	    begins_with_any(name, calls, COUNT(calls)))
		return "calls into Python";
	return NULL;
}

const char *audit_symbol(const char *name, unsigned flags)
{
	const char *why = flags & AUDIT_CUDA ? NULL : of_libc(name);

	if (why)
		return why;
	if (is_inside(name))
		return "is of a library inside PyTorch";
	if (!(flags & AUDIT_BINDING)) {
		if (is_shim(name) || is_torch(name))
			return "is PyTorch's";
		if (starts_with(name, "Py") || starts_with(name, "_Py"))
			return "is Python's";
		return NULL;
	}
	if (is_shim(name))
		return of_shim(name);
	if (is_torch(name))
		return of_torch(name);
	return of_python(name, flags);
}

int audit_object(const void *image, size_t len, unsigned flags, char *text,
		 size_t textlen)
{
	struct arena a = ARENA_INIT;
	struct err e = ERR_INIT;
	const char **names, *why = NULL;
	size_t n = 0;
	int rc = elf_wanted(image, len, &a, &names, &n, &e);

	if (rc)
		snprintf(text, textlen, "%s", e.msg);
	for (size_t i = 0; i < n && !why; i++) {
		why = audit_symbol(names[i], flags);
		if (why)
			snprintf(text, textlen, "the object wants '%.200s', "
				 "which %s", names[i], why);
	}
	arena_release(&a);
	return rc ? rc : !!why;
}

/* cblas_sgemm, sgemm_, dgemv_, cublasSgemm_v2, and so on. */
static int is_blas(const char *name)
{
	static const char *const routine[] = {
		"gemm_", "gemv_", "ger_", "symm_", "syrk_", "trmm_", "trsm_",
		"axpy_", "dot_", "scal_", "nrm2_", "asum_"
	};

	if (starts_with(name, "cblas_") || starts_with(name, "cublas") ||
	    starts_with(name, "cudnn"))
		return 1;
	for (size_t i = 0; i < COUNT(routine); i++)
		if (ends_with(name, routine[i]) &&
		    strlen(name) == strlen(routine[i]) + 1)
			return 1;
	return 0;
}

int audit_wants_blas(const void *image, size_t len)
{
	struct arena a = ARENA_INIT;
	struct err e = ERR_INIT;
	const char **names;
	size_t n = 0;
	int found = 0;

	if (!elf_wanted(image, len, &a, &names, &n, &e))
		for (size_t i = 0; i < n && !found; i++)
			found = is_blas(names[i]);
	arena_release(&a);
	return found;
}
