// SPDX-License-Identifier: Apache-2.0
//
// Operators that compute, read within class Tensor as methods; ops.h makes
// functions of them.  Overloads and arguments are those of the operators' schemas.  The C
// shim has no way for arguments of type Scalar; add and sub are in ops.hpp.

#define CATORCH_OP(ret, name, params, overload, ...)                                               \
	ret name params const                                                                      \
	{                                                                                          \
		return catorch::call<ret>("aten::" #name, overload, *this, ##__VA_ARGS__);         \
	}
#define CATORCH_IN_PLACE(name, params, overload, ...)                                              \
	Tensor &name##_ params                                                                     \
	{                                                                                          \
		catorch::call<Tensor>("aten::" #name "_", overload, *this, ##__VA_ARGS__);         \
		return *this;                                                                      \
	}
#define CATORCH_BOTH(name, params, overload, ...)                                                  \
	CATORCH_OP(Tensor, name, params, overload, ##__VA_ARGS__)                                  \
	CATORCH_IN_PLACE(name, params, overload, ##__VA_ARGS__)
#define CATORCH_UNARY(name) CATORCH_BOTH(name, (), "")

CATORCH_UNARIES(CATORCH_UNARY)
CATORCH_OP(Tensor, logical_not, (), "")
CATORCH_OP(Tensor, isnan, (), "")

CATORCH_BOTH(mul, (const Tensor &o), "Tensor", o)
CATORCH_BOTH(div, (const Tensor &o), "Tensor", o)
CATORCH_BOTH(mul, (Scalar o), "Tensor", catorch::number(o))
CATORCH_BOTH(div, (Scalar o), "Tensor", catorch::number(o))
CATORCH_OP(Tensor, eq, (const Tensor &o), "Tensor", o)
CATORCH_OP(Tensor, maximum, (const Tensor &o), "", o)
CATORCH_OP(Tensor, minimum, (const Tensor &o), "", o)
CATORCH_OP(Tensor, matmul, (const Tensor &o), "", o)
CATORCH_OP(Tensor, mm, (const Tensor &o), "", o)
CATORCH_OP(Tensor, bmm, (const Tensor &o), "", o)

CATORCH_OP(Tensor, flip, (IntArrayRef dims), "", dims)
CATORCH_OP(Tensor, index_select, (int64_t dim, const Tensor &i), "", dim, i)

CATORCH_OP(Tensor, sum, (optional<ScalarType> t = nullopt), "", t)
CATORCH_OP(Tensor, sum,
	   (IntArrayRef dims, bool keep = false, optional<ScalarType> t = nullopt),
	   "dim_IntList", optional<IntArrayRef>(dims), keep, t)
CATORCH_OP(Tensor, mean, (optional<ScalarType> t = nullopt), "", t)
CATORCH_OP(Tensor, mean,
	   (IntArrayRef dims, bool keep = false, optional<ScalarType> t = nullopt), "dim",
	   optional<IntArrayRef>(dims), keep, t)
CATORCH_OP(Tensor, max, (), "")
CATORCH_OP(Tensor, min, (), "")
using CATORCH_PAIR = std::tuple<Tensor, Tensor>;
CATORCH_OP(CATORCH_PAIR, max, (int64_t dim, bool keep = false), "dim", dim, keep)
CATORCH_OP(CATORCH_PAIR, min, (int64_t dim, bool keep = false), "dim", dim, keep)
CATORCH_OP(Tensor, amax, (IntArrayRef dims = {}, bool keep = false), "", dims, keep)
CATORCH_OP(Tensor, amin, (IntArrayRef dims = {}, bool keep = false), "", dims, keep)
CATORCH_OP(Tensor, argmax, (optional<int64_t> dim = nullopt, bool keep = false), "", dim,
	   keep)
CATORCH_OP(Tensor, cumsum, (int64_t dim, optional<ScalarType> t = nullopt), "", dim, t)
CATORCH_OP(Tensor, cumprod, (int64_t dim, optional<ScalarType> t = nullopt), "", dim, t)
CATORCH_OP(Tensor, softmax, (int64_t dim, optional<ScalarType> t = nullopt), "int", dim,
	   t)
CATORCH_OP(Tensor, log_softmax, (int64_t dim, optional<ScalarType> t = nullopt), "int", dim, t)

#undef CATORCH_OP
#undef CATORCH_IN_PLACE
#undef CATORCH_BOTH
#undef CATORCH_UNARY
