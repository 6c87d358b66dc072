/* SPDX-License-Identifier: Apache-2.0
 *
 * nvrtc-child: runs NVRTC in a process of its own, so that it can be jailed
 * as any compiler.
 *
 *	nvrtc-child LIBRARY version
 *	nvrtc-child LIBRARY SOURCE OUTPUT OPTION...
 *
 * Exit 0: OUTPUT holds the cubin; 1: the source does not compile, its log is
 * on stderr; 2: NVRTC cannot be used.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu/builtins.h"

#define SOURCE_MAX ((size_t)8 << 20)

typedef void *program;

static struct {
	int (*version)(int *major, int *minor);
	int (*create)(program *p, const char *text, const char *name,
		      int nheaders, const char *const *headers,
		      const char *const *names);
	int (*compile)(program p, int noptions, const char *const *options);
	int (*log_size)(program p, size_t *n);
	int (*log)(program p, char *text);
	int (*cubin_size)(program p, size_t *n);
	int (*cubin)(program p, char *bytes);
	const char *(*error)(int rc);
} rtc;

/* NVRTC knows none of the C library's headers; of those that kernels include
 * out of habit, what they want of them.  Types are as in the toolkit's
 * cuda/std headers, which declare them too. */
#define STDINT \
	"#pragma once\n" \
	"typedef signed char int8_t;\ntypedef unsigned char uint8_t;\n" \
	"typedef short int16_t;\ntypedef unsigned short uint16_t;\n" \
	"typedef int int32_t;\ntypedef unsigned int uint32_t;\n" \
	"typedef long long int64_t;\ntypedef unsigned long long uint64_t;\n" \
	"typedef int64_t intptr_t;\ntypedef uint64_t uintptr_t;\n" \
	"#define INT32_MAX 2147483647\n" \
	"#define INT32_MIN (-INT32_MAX - 1)\n" \
	"#define UINT32_MAX 4294967295u\n" \
	"#define INT64_MAX 9223372036854775807ll\n" \
	"#define INT64_MIN (-INT64_MAX - 1)\n" \
	"#define UINT64_MAX 18446744073709551615ull\n"
#define IN_STD(list) "namespace std {\n" list "}\n"
#define STDDEF "#pragma once\ntypedef long ptrdiff_t;\n"
#define MATH \
	"#pragma once\n" \
	"#define INFINITY __int_as_float(0x7f800000)\n" \
	"#define NAN __int_as_float(0x7fffffff)\n" \
	"#define M_PI 3.14159265358979323846\n" \
	"#define M_SQRT2 1.41421356237309504880\n" \
	"#define M_SQRT1_2 0.70710678118654752440\n" \
	"#define M_2_SQRTPI 1.12837916709551257390\n" \
	"#define M_LN2 0.69314718055994530942\n" \
	"#define M_LOG2E 1.44269504088896340740\n"
#define FLOAT \
	"#pragma once\n" \
	"#define FLT_MAX 3.40282346638528859812e+38f\n" \
	"#define FLT_MIN 1.17549435082228750797e-38f\n" \
	"#define FLT_EPSILON 1.19209289550781250000e-7f\n" \
	"#define DBL_MAX 1.79769313486231570815e+308\n" \
	"#define DBL_MIN 2.22507385850720138309e-308\n" \
	"#define DBL_EPSILON 2.22044604925031308085e-16\n"
#define LIMITS \
	"#pragma once\n" \
	"#define CHAR_BIT 8\n#define INT_MAX 2147483647\n" \
	"#define INT_MIN (-INT_MAX - 1)\n#define UINT_MAX 4294967295u\n" \
	"#define LONG_MAX 9223372036854775807l\n" \
	"#define LONG_MIN (-LONG_MAX - 1)\n" \
	"#define ULONG_MAX 18446744073709551615ul\n"

static const char *const header_name[] = {
	"stdint.h", "cstdint", "stddef.h", "cstddef", "math.h", "cmath",
	"float.h", "cfloat", "limits.h", "climits", "stdio.h", "cstdio",
	"assert.h", "cassert",
};

static const char *const header_text[] = {
	STDINT,
	"#pragma once\n#include <stdint.h>\n" IN_STD(
	"using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t;\n"
	"using ::int32_t; using ::uint32_t; using ::int64_t;\n"
	"using ::uint64_t; using ::intptr_t; using ::uintptr_t;\n"),
	STDDEF,
	"#pragma once\n#include <stddef.h>\n" IN_STD(
	"using ::size_t; using ::ptrdiff_t;\n"),
	MATH, "#pragma once\n#include <math.h>\n",
	FLOAT, "#pragma once\n#include <float.h>\n",
	LIMITS, "#pragma once\n#include <limits.h>\n",
	"", "", "", "",
};

static int load(const char *path)
{
	static const struct {
		const char *name;
		void *slot;
	} row[] = {
		{ "nvrtcVersion", &rtc.version },
		{ "nvrtcCreateProgram", &rtc.create },
		{ "nvrtcCompileProgram", &rtc.compile },
		{ "nvrtcGetProgramLogSize", &rtc.log_size },
		{ "nvrtcGetProgramLog", &rtc.log },
		{ "nvrtcGetCUBINSize", &rtc.cubin_size },
		{ "nvrtcGetCUBIN", &rtc.cubin },
		{ "nvrtcGetErrorString", &rtc.error },
	};
	void *lib = dlopen(path, RTLD_NOW), *sym;
	size_t i;

	for (i = 0; lib && i < sizeof(row) / sizeof(*row); i++) {
		sym = dlsym(lib, row[i].name);
		if (!sym)
			break;
		memcpy(row[i].slot, &sym, sizeof(sym));
	}
	if (lib && i == sizeof(row) / sizeof(*row))
		return 0;
	fprintf(stderr, "cannot use NVRTC: %s\n", dlerror());
	return -1;
}

static char *read_source(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(SOURCE_MAX + 1) : NULL;
	size_t n;

	if (!text) {
		perror(path);
		if (f)
			fclose(f);
		return NULL;
	}
	n = fread(text, 1, SOURCE_MAX, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static void print_log(program p)
{
	char *text;
	size_t n = 0;

	if (rtc.log_size(p, &n) || n < 2 || !(text = malloc(n)))
		return;
	if (!rtc.log(p, text))
		fprintf(stderr, "%s\n", text);
	free(text);
}

static int write_cubin(program p, const char *path)
{
	char *bytes = NULL;
	size_t n = 0;
	FILE *f;
	int ok;

	if (rtc.cubin_size(p, &n) || !n || !(bytes = malloc(n)) ||
	    rtc.cubin(p, bytes)) {
		free(bytes);
		fprintf(stderr, "error: NVRTC made no cubin\n");
		return 1;
	}
	f = fopen(path, "we");
	ok = f && fwrite(bytes, 1, n, f) == n;
	if (f && fclose(f))
		ok = 0;
	if (!ok)
		perror(path);
	free(bytes);
	return ok ? 0 : 1;
}

static int compile(int argc, char **argv)
{
	int n = sizeof(header_name) / sizeof(*header_name), rc;
	char *text = read_source(argv[2]);
	program p = NULL;

	if (!text)
		return 2;
	rc = rtc.create(&p, text, argv[2], n, header_text, header_name);
	free(text);
	if (rc) {
		fprintf(stderr, "error: NVRTC: %s\n", rtc.error(rc));
		return 1;
	}
	rc = rtc.compile(p, argc - 4, (const char *const *)argv + 4);
	if (rc) {
		print_log(p);
		fprintf(stderr, "NVRTC: %s\n", rtc.error(rc));
		return 1;
	}
	return write_cubin(p, argv[3]);
}

int main(int argc, char **argv)
{
	int major = 0, minor = 0;

	if (argc < 3 || load(argv[1]) || rtc.version(&major, &minor))
		return 2;
	if (argc >= 4) {
		nvrtc_builtins(argv[1], major, minor);
		return compile(argc, argv);
	}
	printf("nvrtc %d.%d\n", major, minor);
	return 0;
}
