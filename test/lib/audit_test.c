/* SPDX-License-Identifier: Apache-2.0
 *
 * Which symbols an object may want.
 */
#include "build/audit.h"

#include "tests.h"

#include "base/io.h"

static void test_symbols(void **state)
{
	static const struct {
		const char *name;
		unsigned flags;
		int ok;
	} t[] = {
		{ "memcpy", 0, 1 }, { "expf", 0, 1 }, { "GOMP_parallel", 0, 1 },
		{ "pthread_create", 0, 1 }, { "mmap", 0, 1 },
		{ "cblas_sgemm", 0, 1 }, { "_exit", 0, 1 },
		{ "dlopen", 0, 0 }, { "dlsym", AUDIT_BINDING, 0 },
		{ "dlopen", AUDIT_CUDA, 1 }, /* the CUDA run-time library's */
		{ "syscall", 0, 0 }, { "mprotect", 0, 0 }, { "fork", 0, 0 },
		{ "execvpe", 0, 0 }, { "setitimer", 0, 0 },
		{ "sched_setaffinity", 0, 0 },
		{ "PyRun_SimpleString", 0, 0 }, { "PyList_New", 0, 0 },
		{ "PyList_New", AUDIT_BINDING, 1 },
		{ "PyRun_SimpleString", AUDIT_BINDING, 0 },
		{ "PyRun_SimpleString", AUDIT_BINDING | AUDIT_CUDA, 0 },
		{ "aoti_torch_get_data_ptr", 0, 0 },
		{ "aoti_torch_get_data_ptr", AUDIT_BINDING, 1 },
		{ "aoti_torch_empty_strided", AUDIT_BINDING, 1 },
		{ "aoti_torch_cpu_copy_", AUDIT_BINDING, 1 },
		{ "aoti_torch_cpu_mm_out", AUDIT_BINDING, 0 },
		{ "aoti_torch_cuda_mm_out", AUDIT_BINDING | AUDIT_CUDA, 0 },
		{ "aoti_torch_cpu_mm_out", AUDIT_CUDA, 0 },
		{ "aoti_torch_call_dispatcher", AUDIT_BINDING, 0 },
		{ "torch_call_dispatcher", AUDIT_BINDING, 0 },
		/* operators without a device in their name */
		{ "aoti_torch_mm_out", AUDIT_BINDING, 0 },
		{ "aoti_torch_addmm_out", AUDIT_BINDING, 0 },
		{ "aoti_torch_convolution", AUDIT_BINDING, 0 },
		{ "aoti_torch__scaled_dot_product_flash_attention",
		  AUDIT_BINDING, 0 },
		{ "aoti_torch_scatter_reduce_out", AUDIT_BINDING, 0 },
		{ "aoti_torch_nonzero", AUDIT_BINDING, 0 },
		{ "aoti_torch_aten_subtract_Tensor", AUDIT_BINDING, 0 },
		{ "aoti_torch_proxy_executor_call_function", AUDIT_BINDING,
		  0 },
		{ "aoti_torch_clone", AUDIT_BINDING, 1 },
		{ "aoti_torch_zero_", AUDIT_BINDING, 1 },
		{ "aoti_torch_copy_", AUDIT_BINDING, 1 },
		{ "aoti_torch_view_dtype", AUDIT_BINDING, 1 },
		{ "aoti_torch__reinterpret_tensor", AUDIT_BINDING, 1 },
		{ "torch_get_current_cuda_blas_handle", AUDIT_BINDING, 1 },
		{ "torch_list_push_back", AUDIT_BINDING, 1 },
		{ "aoti_torch_dtype_float8_e4m3fn", AUDIT_BINDING, 1 },
		/* libraries that PyTorch's show */
		{ "dnnl_sgemm", 0, 0 }, { "dnnl_sgemm", AUDIT_BINDING, 0 },
		{ "_ZN6fbgemm8somethingEv", 0, 0 },
		{ "_ZN5torch2nn10LinearImpl7forwardERKN2at6TensorE",
		  AUDIT_BINDING, 0 },
		/* Python called by hand */
		{ "PyObject_Call", AUDIT_BINDING, 1 },	/* pybind11's */
		{ "PyObject_Call", AUDIT_BINDING | AUDIT_SLIM, 0 },
		{ "PyObject_CallMethod", AUDIT_BINDING | AUDIT_SLIM, 0 },
		{ "PyObject_VectorcallDict", AUDIT_BINDING | AUDIT_SLIM, 0 },
		{ "PyImport_GetModule", AUDIT_BINDING | AUDIT_SLIM, 0 },
		{ "PyImport_ImportModule", AUDIT_BINDING, 0 },
		{ "PyImport_AddModule", AUDIT_BINDING | AUDIT_SLIM, 1 },
		{ "PyTuple_New", AUDIT_BINDING | AUDIT_SLIM, 1 },
		{ "torch_library_impl", AUDIT_BINDING, 0 },
		{ "torch_parallel_for", AUDIT_BINDING, 1 },
		{ "torch_parallel_for", 0, 0 },
		{ "aoti_torch_aten_fill__Scalar", AUDIT_BINDING, 1 },
		{ "aoti_torch_aten_amax", AUDIT_BINDING, 0 },
		{ "_ZN2at4_ops10empty_like4callERKNS_6TensorE", AUDIT_BINDING,
		  1 },
		{ "_ZN2at4_ops10add_Tensor4callERKNS_6TensorE", AUDIT_BINDING,
		  0 },
		{ "_ZN2at4_ops10zeros_like4callERKNS_6TensorE", 0, 0 },
		{ "_ZN2at4_ops6matmul4callERKNS_6TensorES4_", AUDIT_BINDING,
		  0 },
		{ "_ZN2at4_ops999matmul4call", AUDIT_BINDING, 1 },
		{ "_ZNK2at10TensorBase8data_ptrIfEEPT_v", AUDIT_BINDING, 1 },
		{ "_ZN2at3cpu6matmulERKNS_6TensorES3_", AUDIT_BINDING, 0 },
		{ "_ZN2at6native6matmulERKNS_6TensorES3_", AUDIT_BINDING, 0 },
		{ "_ZN2at20enableRecordFunctionEb", AUDIT_BINDING, 0 },
		{ "_ZN3c1010Dispatcher13realSingletonEv", AUDIT_BINDING, 0 },
		{ "_ZN3c104cuda20getCurrentCUDAStreamEa", AUDIT_BINDING, 1 },
		{ "_ZNSt13runtime_errorC1EPKc", 0, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if ((audit_symbol(t[i].name, t[i].flags) == NULL) != t[i].ok)
			fail_msg("%s (%u): %s", t[i].name, t[i].flags,
				 audit_symbol(t[i].name, t[i].flags));
}

/* This program itself forks nothing, but wants what cmocka does. */
static void test_objects(void **state)
{
	struct str image = STR_INIT;
	struct err e = ERR_INIT;
	char text[256] = "";

	(void)state;
	assert_int_equal(audit_object("no object", 9, 0, text, sizeof(text)),
			 -1);
	assert_true(*text);
	assert_int_equal(read_file("/proc/self/exe", 64 << 20, &image, &e), 0);
	assert_true(audit_object(image.buf, image.len, 0, text,
				 sizeof(text)) >= 0);
	assert_int_equal(audit_wants_blas(image.buf, image.len), 0);
	for (size_t n = 0; n < image.len; n += 1 + image.len / 97)
		audit_object(image.buf, n, 0, text, sizeof(text));
	str_release(&image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols),
		cmocka_unit_test(test_objects),
	};

	return RUN_TESTS(tests);
}
