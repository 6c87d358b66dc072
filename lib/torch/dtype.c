/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types by torch's names.
 */
#include "torch/torch.h"

#include <string.h>

static const struct {
	const char *name;
	unsigned char size, is_float, is_complex;
} types[DT_COUNT] = {
	[DT_BOOL] = { "bool", 1, 0, 0 },
	[DT_U8] = { "uint8", 1, 0, 0 },
	[DT_I8] = { "int8", 1, 0, 0 },
	[DT_I16] = { "int16", 2, 0, 0 },
	[DT_I32] = { "int32", 4, 0, 0 },
	[DT_I64] = { "int64", 8, 0, 0 },
	[DT_F16] = { "float16", 2, 1, 0 },
	[DT_BF16] = { "bfloat16", 2, 1, 0 },
	[DT_F32] = { "float32", 4, 1, 0 },
	[DT_F64] = { "float64", 8, 1, 0 },
	[DT_C64] = { "complex64", 8, 0, 1 },
	[DT_C128] = { "complex128", 16, 0, 1 },
	[DT_U16] = { "uint16", 2, 0, 0 },
	[DT_U32] = { "uint32", 4, 0, 0 },
	[DT_U64] = { "uint64", 8, 0, 0 },
	[DT_F8E4M3] = { "float8_e4m3fn", 1, 1, 0 },
	[DT_F8E5M2] = { "float8_e5m2", 1, 1, 0 },
};

static int known(enum ca_dtype t)
{
	return (unsigned)t > DT_NONE && (unsigned)t < DT_COUNT;
}

size_t dtype_size(enum ca_dtype t)
{
	return known(t) ? types[t].size : 0;
}

const char *dtype_name(enum ca_dtype t)
{
	return known(t) ? types[t].name : "none";
}

enum ca_dtype dtype_parse(const char *name)
{
	for (unsigned t = DT_NONE + 1; name && t < DT_COUNT; t++)
		if (!strcmp(name, types[t].name))
			return (enum ca_dtype)t;
	return DT_NONE;
}

int dtype_is_float(enum ca_dtype t)
{
	return known(t) && types[t].is_float;
}

int dtype_is_complex(enum ca_dtype t)
{
	return known(t) && types[t].is_complex;
}
