/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/type.h"

#include <string.h>

size_t gpu_type_size(enum gpu_type t)
{
	return t == GPU_F32 ? 4 : 2;
}

const char *gpu_type_name(enum gpu_type t)
{
	static const char *const name[] = { "fp32", "bf16", "fp16" };

	return name[t];
}

static float from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint32_t to_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exponent = h >> 10 & 31, fraction = h & 0x3ff;

	if (exponent == 31)
		return from_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent)
		return from_bits(sign | (exponent + 112) << 23 |
				 fraction << 13);
	/* Subnormal: a multiple of 2^-24. */
	return from_bits(sign | to_bits((float)fraction * 0x1p-24f));
}

/* x / 2^shift, to nearest, ties to even; 0 < shift < 32. */
static uint32_t shift_round(uint32_t x, unsigned shift)
{
	uint32_t half = 1u << (shift - 1), rest = x & ((half << 1) - 1);
	uint32_t q = x >> shift;

	return q + (rest > half || (rest == half && (q & 1)));
}

static uint16_t float_to_half(float f)
{
	uint32_t bits = to_bits(f), mag = bits & 0x7fffffff;
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

	if (mag > 0x7f800000)		/* NaN stays one */
		return sign | 0x7e00;
	if (mag >= 0x47800000)		/* 2^16 and more */
		return sign | 0x7c00;
	if (mag >= 0x38800000)		/* normal; a carry may give infinity */
		return (uint16_t)(sign | shift_round(mag - 0x38000000, 13));
	if (mag < 0x33000000)		/* below half of the smallest */
		return sign;
	return (uint16_t)(sign | shift_round((mag & 0x7fffff) | 0x800000,
					     126 - (mag >> 23)));
}

static uint16_t float_to_bf16(float f)
{
	uint32_t bits = to_bits(f);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void gpu_widen(float *dst, const void *src, enum gpu_type t, size_t n)
{
	const char *p = src;
	uint16_t h;

	if (t == GPU_F32) {
		memcpy(dst, src, n * 4);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(&h, p + 2 * i, 2);
		dst[i] = t == GPU_BF16 ? from_bits((uint32_t)h << 16) :
			 half_to_float(h);
	}
}

void gpu_narrow(void *dst, const float *src, enum gpu_type t, size_t n)
{
	char *p = dst;
	uint16_t h;

	if (t == GPU_F32) {
		memcpy(dst, src, n * 4);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		h = t == GPU_BF16 ? float_to_bf16(src[i]) :
		    float_to_half(src[i]);
		memcpy(p + 2 * i, &h, 2);
	}
}

void gpu_convert(void *dst, enum gpu_type to, const void *src,
		 enum gpu_type from, size_t n)
{
	float block[256];
	size_t k;

	if (to == from) {
		memcpy(dst, src, n * gpu_type_size(to));
		return;
	}
	for (size_t i = 0; i < n; i += k) {
		k = n - i < 256 ? n - i : 256;
		gpu_widen(block, (const char *)src + i * gpu_type_size(from),
			  from, k);
		gpu_narrow((char *)dst + i * gpu_type_size(to), block, to, k);
	}
}
