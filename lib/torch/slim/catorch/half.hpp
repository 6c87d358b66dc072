// SPDX-License-Identifier: Apache-2.0
//
// at::Half and at::BFloat16: 16 bits that compute as float.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define CATORCH_HD __host__ __device__
#else
#define CATORCH_HD
#endif

namespace catorch {

template <class To, class From> CATORCH_HD inline To bits(From from)
{
	static_assert(sizeof(To) == sizeof(From), "");
	To to;
	memcpy(&to, &from, sizeof(to));
	return to;
}

CATORCH_HD inline float half_to_float(uint16_t h)
{
	uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7fff;

	if (rest >= 0x7c00)		// infinite, NaN
		return bits<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
	// Exact: scaled as a float by 2^112, subnormals included.
	return bits<float>(sign | bits<uint32_t>(bits<float>(rest << 13) * 0x1p112f));
}

CATORCH_HD inline uint16_t half_from_float(float f)
{
	uint32_t u = bits<uint32_t>(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;

	if (a > 0x7f800000)
		return uint16_t(sign | 0x7e00);
	if (a >= 0x477ff000)		// rounds beyond the largest
		return uint16_t(sign | 0x7c00);
	if (a < 0x38800000)		// subnormal: the addition rounds
		return uint16_t(sign |
				(bits<uint32_t>(bits<float>(a) + 0.5f) - bits<uint32_t>(0.5f)));
	a += 0xfff + (a >> 13 & 1);	// to nearest, ties to even
	return uint16_t(sign | (a - 0x38000000) >> 13);
}

CATORCH_HD inline uint16_t bfloat_from_float(float f)
{
	uint32_t u = bits<uint32_t>(f);

	if ((u & 0x7fffffff) > 0x7f800000)
		return 0x7fc0;
	return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

} // namespace catorch

namespace c10 {

struct alignas(2) Half {
	unsigned short x;
	struct from_bits_t {};
	static constexpr CATORCH_HD from_bits_t from_bits() { return {}; }
	Half() = default;
	constexpr CATORCH_HD Half(unsigned short b, from_bits_t) : x(b) {}
#ifdef __CUDACC__
	CATORCH_HD Half(float f) : x(catorch::bits<unsigned short>(__float2half_rn(f))) {}
	CATORCH_HD operator float() const { return __half2float(catorch::bits<__half>(x)); }
	CATORCH_HD Half(__half h) : x(catorch::bits<unsigned short>(h)) {}
	CATORCH_HD operator __half() const { return catorch::bits<__half>(x); }
#else
	Half(float f) : x(catorch::half_from_float(f)) {}
	operator float() const { return catorch::half_to_float(x); }
#endif
};

struct alignas(2) BFloat16 {
	unsigned short x;
	struct from_bits_t {};
	static constexpr CATORCH_HD from_bits_t from_bits() { return {}; }
	BFloat16() = default;
	constexpr CATORCH_HD BFloat16(unsigned short b, from_bits_t) : x(b) {}
	CATORCH_HD BFloat16(float f) : x(catorch::bfloat_from_float(f)) {}
	CATORCH_HD operator float() const { return catorch::bits<float>(uint32_t(x) << 16); }
#ifdef __CUDACC__
	explicit CATORCH_HD BFloat16(const __nv_bfloat16 &b) : x(catorch::bits<unsigned short>(b))
	{
	}
	explicit CATORCH_HD operator __nv_bfloat16() const
	{
		return catorch::bits<__nv_bfloat16>(x);
	}
#endif
};

// As torch has them: 16 bits with 16 bits, and with an integer, stay 16 bits;
// with float or double they become that.
#define CATORCH_SMALL(T)                                                                           \
	CATORCH_HD inline T operator-(const T &a) { return -float(a); }                            \
	CATORCH_BINARY(T, +)                                                                       \
	CATORCH_BINARY(T, -)                                                                       \
	CATORCH_BINARY(T, *)                                                                       \
	CATORCH_BINARY(T, /)
#define CATORCH_BINARY(T, op)                                                                      \
	CATORCH_HD inline T operator op(const T &a, const T &b) { return float(a) op float(b); }   \
	CATORCH_HD inline T &operator op##=(T &a, const T &b) { return a = a op b; }               \
	CATORCH_HD inline float operator op(T a, float b) { return float(a) op b; }                \
	CATORCH_HD inline float operator op(float a, T b) { return a op float(b); }                \
	CATORCH_HD inline float &operator op##=(float &a, const T &b) { return a = a op float(b); }\
	CATORCH_HD inline double operator op(T a, double b) { return double(float(a)) op b; }      \
	CATORCH_HD inline double operator op(double a, T b) { return a op double(float(b)); }      \
	CATORCH_HD inline T operator op(T a, int b) { return a op T(float(b)); }                   \
	CATORCH_HD inline T operator op(int a, T b) { return T(float(a)) op b; }                   \
	CATORCH_HD inline T operator op(T a, int64_t b) { return a op T(float(b)); }               \
	CATORCH_HD inline T operator op(int64_t a, T b) { return T(float(a)) op b; }

CATORCH_SMALL(Half)
CATORCH_SMALL(BFloat16)

} // namespace c10

namespace std {

template <> class numeric_limits<c10::Half> {
public:
	static constexpr bool is_specialized = true, is_signed = true, is_integer = false,
			      is_exact = false, has_infinity = true, has_quiet_NaN = true;
	static constexpr int digits = 11, digits10 = 3, max_digits10 = 5, radix = 2;
	static constexpr c10::Half at(unsigned short b) { return {b, c10::Half::from_bits()}; }
	static constexpr c10::Half min() { return at(0x0400); }
	static constexpr c10::Half lowest() { return at(0xfbff); }
	static constexpr c10::Half max() { return at(0x7bff); }
	static constexpr c10::Half epsilon() { return at(0x1400); }
	static constexpr c10::Half infinity() { return at(0x7c00); }
	static constexpr c10::Half quiet_NaN() { return at(0x7e00); }
};

template <> class numeric_limits<c10::BFloat16> {
public:
	static constexpr bool is_specialized = true, is_signed = true, is_integer = false,
			      is_exact = false, has_infinity = true, has_quiet_NaN = true;
	static constexpr int digits = 8, digits10 = 2, max_digits10 = 4, radix = 2;
	static constexpr c10::BFloat16 at(unsigned short b)
	{
		return {b, c10::BFloat16::from_bits()};
	}
	static constexpr c10::BFloat16 min() { return at(0x0080); }
	static constexpr c10::BFloat16 lowest() { return at(0xff7f); }
	static constexpr c10::BFloat16 max() { return at(0x7f7f); }
	static constexpr c10::BFloat16 epsilon() { return at(0x3c00); }
	static constexpr c10::BFloat16 infinity() { return at(0x7f80); }
	static constexpr c10::BFloat16 quiet_NaN() { return at(0x7fc0); }
};

} // namespace std
