// SPDX-License-Identifier: Apache-2.0
//
// TORCH_CHECK and its kin.
#pragma once

#include <catorch/types.hpp>

#define CATORCH_FAIL(type, cond, ...)                                                              \
	do {                                                                                       \
		if (C10_UNLIKELY(!(cond)))                                                         \
			throw c10::type(catorch::message(                                          \
				"Expected " #cond " to be true, but got false.", ##__VA_ARGS__));  \
	} while (0)

#define TORCH_CHECK(cond, ...) CATORCH_FAIL(Error, cond, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(cond, ...) CATORCH_FAIL(IndexError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) CATORCH_FAIL(ValueError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) CATORCH_FAIL(TypeError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(cond, ...)                                                     \
	CATORCH_FAIL(NotImplementedError, cond, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(cond, ...) CATORCH_FAIL(Error, cond, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(cond, ...) ((void)sizeof(!(cond)))
#define AT_ASSERT(cond) CATORCH_FAIL(Error, cond)
#define AT_ASSERTM(cond, ...) CATORCH_FAIL(Error, cond, ##__VA_ARGS__)
#define AT_CHECK(cond, ...) CATORCH_FAIL(Error, cond, ##__VA_ARGS__)
#define AT_ERROR(...) throw c10::Error(c10::str(__VA_ARGS__))
#define TORCH_WARN(...) ((void)(std::cerr << "Warning: " << c10::str(__VA_ARGS__) << std::endl))
#define TORCH_WARN_ONCE(...)                                                                       \
	do {                                                                                       \
		static bool said = (TORCH_WARN(__VA_ARGS__), true);                                \
		(void)said;                                                                        \
	} while (0)

#define TORCH_CHECK_OP(op, a, b)                                                                   \
	do {                                                                                       \
		if (C10_UNLIKELY(!((a)op(b))))                                                     \
			throw c10::Error(c10::str("Check failed: " #a " " #op " " #b " (", (a),    \
						  " vs. ", (b), ")."));                            \
	} while (0)
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK_OP(==, a, b)
#define TORCH_CHECK_NE(a, b) TORCH_CHECK_OP(!=, a, b)
#define TORCH_CHECK_LE(a, b) TORCH_CHECK_OP(<=, a, b)
#define TORCH_CHECK_LT(a, b) TORCH_CHECK_OP(<, a, b)
#define TORCH_CHECK_GE(a, b) TORCH_CHECK_OP(>=, a, b)
#define TORCH_CHECK_GT(a, b) TORCH_CHECK_OP(>, a, b)

namespace catorch {

inline std::string message(const char *dflt)
{
	return dflt;
}

template <class... Args> std::string message(const char *, const Args &...args)
{
	return c10::str(args...);
}

} // namespace catorch
