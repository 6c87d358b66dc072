/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen floats at a time, in the vector extension that gcc and clang share.
 */
#ifndef CA_GPU_CPU_VEC_H
#define CA_GPU_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#define LANES 16

typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef uint32_t uvec __attribute__((vector_size(64)));
typedef float vec8 __attribute__((vector_size(32)));
typedef float vec4 __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline, unused))

/* Vectors are passed by pointer: by value their ABI would depend on the
 * level, which compilers warn about. */
INLINE void vec_load(vec *v, const float *p)
{
	memcpy(v, p, sizeof *v);
}

INLINE void vec_store(float *p, const vec *v)
{
	memcpy(p, v, sizeof *v);
}

/* Lanes i and i + 8, then i + 4. */
INLINE void vec_quarter(vec4 *out, const vec *v)
{
	vec x = *v;
	vec8 a = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
		 __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);

	*out = __builtin_shufflevector(a, a, 0, 1, 2, 3) +
	       __builtin_shufflevector(a, a, 4, 5, 6, 7);
}

/* And so on. */
INLINE float vec_sum(const vec *v)
{
	vec4 b;

	vec_quarter(&b, v);
	return (b[0] + b[2]) + (b[1] + b[3]);
}

/* Four sums at once, each the same as vec_sum's. */
INLINE void vec_sums(vec4 *out, const vec v[4])
{
	vec4 b[4], low[2], high[2];

	for (int i = 0; i < 4; i++)
		vec_quarter(&b[i], &v[i]);
	for (int i = 0; i < 2; i++) {
		vec4 x = b[2 * i], y = b[2 * i + 1];

		low[i] = __builtin_shufflevector(x, y, 0, 4, 1, 5);
		high[i] = __builtin_shufflevector(x, y, 2, 6, 3, 7);
	}
	*out = (__builtin_shufflevector(low[0], low[1], 0, 1, 4, 5) +
		__builtin_shufflevector(high[0], high[1], 0, 1, 4, 5)) +
	       (__builtin_shufflevector(low[0], low[1], 2, 3, 6, 7) +
		__builtin_shufflevector(high[0], high[1], 2, 3, 6, 7));
}

INLINE float bf16_float(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

/* Lanes of `a` where the mask is set, else those of `b`. */
INLINE void vec_select(vec *out, const ivec *mask, const vec *a, const vec *b)
{
	ivec x, y;

	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	x = (x & *mask) | (y & ~*mask);
	memcpy(out, &x, sizeof x);
}

/* e^x to about 1 ulp for x in [-87, 88], clamped beyond (so e^-inf is
 * 1e-38): 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]. */
INLINE void vec_exp(vec *x)
{
	const vec low = (vec){ 0 } - 87.0f, high = (vec){ 0 } + 88.0f;
	vec v = *x, n, r, p;
	ivec i, bits;

	i = v < low;
	vec_select(&v, &i, &low, &v);
	i = v > high;
	vec_select(&v, &i, &high, &v);
	n = v * 1.44269504088896341f + 12582912.0f;
	memcpy(&i, &n, sizeof i);
	n -= 12582912.0f;
	r = v - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	p = r * 1.9875691500e-4f + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * (r * r) + r + 1.0f;
	/* The exponent of n + 1.5 * 2^23 is in its low bits. */
	i = (i - 0x4b400000) << 23;
	memcpy(&bits, &p, sizeof bits);
	bits += i;
	memcpy(x, &bits, sizeof *x);
}

/* Dot product of n floats; the same order for any caller. */
INLINE float vec_dot(const float *x, const float *y, int n)
{
	vec a, b, sum = { 0 };
	float tail = 0;
	int i = 0;

	for (; i + LANES <= n; i += LANES) {
		vec_load(&a, x + i);
		vec_load(&b, y + i);
		sum += a * b;
	}
	for (; i < n; i++)
		tail += x[i] * y[i];
	return vec_sum(&sum) + tail;
}

/* y += s x. */
INLINE void vec_axpy(float *y, float s, const float *x, int n)
{
	vec a, b;
	int i = 0;

	for (; i + LANES <= n; i += LANES) {
		vec_load(&a, x + i);
		vec_load(&b, y + i);
		b += a * s;
		vec_store(y + i, &b);
	}
	for (; i < n; i++)
		y[i] += s * x[i];
}

#endif
