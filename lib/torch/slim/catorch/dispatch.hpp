// SPDX-License-Identifier: Apache-2.0
//
// AT_DISPATCH_*: code for each of several element types.
#pragma once

#include <catorch/tensor.hpp>

namespace catorch {

inline c10::ScalarType type_of(c10::ScalarType t) { return t; }
inline c10::ScalarType type_of(caffe2::TypeMeta t) { return t.toScalarType(); }
inline c10::ScalarType type_of(const at::DeprecatedTypeProperties &t) { return t.type_; }

} // namespace catorch

#define AT_DISPATCH_CASE(TYPE, ...)                                                                \
	case TYPE: {                                                                               \
		using scalar_t [[maybe_unused]] = c10::impl::ScalarTypeToCPPTypeT<TYPE>;           \
		return __VA_ARGS__();                                                              \
	}
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                        \
	[&] {                                                                                      \
		c10::ScalarType catorch_type = catorch::type_of(TYPE);                             \
		switch (catorch_type) {                                                            \
			__VA_ARGS__                                                                \
		default:                                                                           \
			throw c10::NotImplementedError(c10::str('"', NAME,                         \
				"\" not implemented for '", catorch_type, "'"));                   \
		}                                                                                  \
	}()

#define CATORCH_CASE(T, ...) AT_DISPATCH_CASE(at::ScalarType::T, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES(...)                                                       \
	CATORCH_CASE(Double, __VA_ARGS__) CATORCH_CASE(Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                                                       \
	CATORCH_CASE(Byte, __VA_ARGS__) CATORCH_CASE(Char, __VA_ARGS__)                            \
	CATORCH_CASE(Int, __VA_ARGS__) CATORCH_CASE(Long, __VA_ARGS__)                             \
	CATORCH_CASE(Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...)                                                            \
	AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)

#define CATORCH_SWITCH(SET, T, N, ...)                                                             \
	AT_DISPATCH_SWITCH(T, N, AT_DISPATCH_CASE_##SET(__VA_ARGS__))
#define CATORCH_SWITCH1(SET, A, T, N, ...)                                                         \
	AT_DISPATCH_SWITCH(T, N, AT_DISPATCH_CASE_##SET(__VA_ARGS__)                               \
			   AT_DISPATCH_CASE(A, __VA_ARGS__))
#define CATORCH_SWITCH2(SET, A, B, T, N, ...)                                                      \
	AT_DISPATCH_SWITCH(T, N, AT_DISPATCH_CASE_##SET(__VA_ARGS__)                               \
			   AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
#define CATORCH_SWITCH3(SET, A, B, C, T, N, ...)                                                   \
	AT_DISPATCH_SWITCH(T, N, AT_DISPATCH_CASE_##SET(__VA_ARGS__)                               \
			   AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__)       \
			   AT_DISPATCH_CASE(C, __VA_ARGS__))

#define AT_DISPATCH_FLOATING_TYPES(T, N, ...) CATORCH_SWITCH(FLOATING_TYPES, T, N, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(T, N, ...)                                             \
	CATORCH_SWITCH1(FLOATING_TYPES, at::ScalarType::Half, T, N, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND(A, T, N, ...)                                               \
	CATORCH_SWITCH1(FLOATING_TYPES, A, T, N, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, T, N, ...)                                           \
	CATORCH_SWITCH2(FLOATING_TYPES, A, B, T, N, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND3(A, B, C, T, N, ...)                                        \
	CATORCH_SWITCH3(FLOATING_TYPES, A, B, C, T, N, __VA_ARGS__)
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(T, N, ...)                                              \
	AT_DISPATCH_SWITCH(T, N, CATORCH_CASE(Half, __VA_ARGS__)                                   \
			   CATORCH_CASE(BFloat16, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(T, N, ...) CATORCH_SWITCH(INTEGRAL_TYPES, T, N, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES(T, N, ...) CATORCH_SWITCH(ALL_TYPES, T, N, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND(A, T, N, ...)                                                    \
	CATORCH_SWITCH1(ALL_TYPES, A, T, N, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, T, N, ...)                                                \
	CATORCH_SWITCH2(ALL_TYPES, A, B, T, N, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND3(A, B, C, T, N, ...)                                             \
	CATORCH_SWITCH3(ALL_TYPES, A, B, C, T, N, __VA_ARGS__)
#define AT_DISPATCH_INDEX_TYPES(T, N, ...)                                                         \
	[&] {                                                                                      \
		c10::ScalarType catorch_type = catorch::type_of(T);                                \
		switch (catorch_type) {                                                            \
		case at::kInt: {                                                                   \
			using index_t = int32_t;                                                   \
			return __VA_ARGS__();                                                      \
		}                                                                                  \
		case at::kLong: {                                                                  \
			using index_t = int64_t;                                                   \
			return __VA_ARGS__();                                                      \
		}                                                                                  \
		default:                                                                           \
			throw c10::NotImplementedError(c10::str('"', N,                            \
				"\" not implemented for '", catorch_type, "'"));                   \
		}                                                                                  \
	}()
