// SPDX-License-Identifier: Apache-2.0
//
// torch's operators as functions and signs.
#pragma once

#include <catorch/make.hpp>

namespace at {

// The methods as functions; a list in braces has no type that could be deduced.
#define CATORCH_FUNCTION(name)                                                                     \
	template <class... Args> auto name(const Tensor &t, Args &&...args)                        \
	{                                                                                          \
		return t.name(std::forward<Args>(args)...);                                        \
	}
#define CATORCH_LISTED(name)                                                                       \
	CATORCH_FUNCTION(name)                                                                     \
	template <class... Args> auto name(const Tensor &t, IntArrayRef list, Args &&...args)      \
	{                                                                                          \
		return t.name(list, std::forward<Args>(args)...);                                  \
	}
#define CATORCH_IN_PLACE(name)                                                                     \
	inline Tensor &name##_(Tensor &t) { return t.name##_(); }

CATORCH_UNARIES(CATORCH_FUNCTION)
CATORCH_UNARIES(CATORCH_IN_PLACE)
CATORCH_FUNCTION(logical_not) CATORCH_FUNCTION(isnan) CATORCH_FUNCTION(detach)
CATORCH_FUNCTION(t) CATORCH_FUNCTION(add) CATORCH_FUNCTION(sub) CATORCH_FUNCTION(mul)
CATORCH_FUNCTION(div) CATORCH_FUNCTION(eq) CATORCH_FUNCTION(maximum) CATORCH_FUNCTION(minimum)
CATORCH_FUNCTION(matmul) CATORCH_FUNCTION(mm) CATORCH_FUNCTION(bmm) CATORCH_FUNCTION(clone)
CATORCH_FUNCTION(transpose) CATORCH_FUNCTION(unsqueeze) CATORCH_FUNCTION(squeeze)
CATORCH_FUNCTION(flatten) CATORCH_FUNCTION(select) CATORCH_FUNCTION(narrow)
CATORCH_FUNCTION(slice) CATORCH_FUNCTION(index_select) CATORCH_FUNCTION(max)
CATORCH_FUNCTION(min) CATORCH_FUNCTION(argmax) CATORCH_FUNCTION(cumsum)
CATORCH_FUNCTION(cumprod) CATORCH_FUNCTION(softmax) CATORCH_FUNCTION(log_softmax)
CATORCH_FUNCTION(clamp) CATORCH_FUNCTION(pow)
CATORCH_LISTED(reshape) CATORCH_LISTED(permute) CATORCH_LISTED(flip) CATORCH_LISTED(sum)
CATORCH_LISTED(mean) CATORCH_LISTED(amax) CATORCH_LISTED(amin)
#undef CATORCH_FUNCTION
#undef CATORCH_LISTED
#undef CATORCH_IN_PLACE

// On the tensor's device: these take no number from elsewhere.
inline Tensor Tensor::clamp(optional<Scalar> low, optional<Scalar> high) const
{
	optional<Tensor> a, b;

	if (low)
		a = full({}, *low, TensorOptions(scalar_type()).device(device()));
	if (high)
		b = full({}, *high, TensorOptions(scalar_type()).device(device()));
	return catorch::call<Tensor>("aten::clamp", "Tensor", *this, a, b);
}

inline Tensor Tensor::pow(Scalar e) const
{
	return catorch::call<Tensor>("aten::pow", "Tensor_Tensor", *this, catorch::number(e));
}

} // namespace at

namespace catorch {

// The type of a sum of integers: of those with dimensions, the wider.
inline c10::ScalarType sum_type(const at::Tensor &a, const at::Tensor &b)
{
	c10::ScalarType x = a.scalar_type(), y = b.scalar_type();

	if (x == y || (a.dim() && !b.dim()) || y == at::kBool)
		return x;
	if ((b.dim() && !a.dim()) || x == at::kBool)
		return y;
	if (c10::elementSize(x) == c10::elementSize(y))
		return at::kShort;	// uint8 with int8
	return c10::elementSize(x) > c10::elementSize(y) ? x : y;
}

// a - alpha * b.  The shim's factor is a double, which integers do not take:
// they go by way of double, exact up to 2^53.
inline at::Tensor subtract(const at::Tensor &a, const at::Tensor &b, double alpha)
{
	bool whole = !a.is_floating_point() && !b.is_floating_point();
	AtenTensorHandle h;

	must(aoti_torch_aten_subtract_Tensor((whole ? a.to(at::kDouble) : a).handle(),
					     (whole ? b.to(at::kDouble) : b).handle(), alpha, &h),
	     "subtract");
	return whole ? at::Tensor(h).to(sum_type(a, b)) : at::Tensor(h);
}

} // namespace catorch

namespace at {

inline Tensor Tensor::add(const Tensor &o, Scalar alpha) const
{
	return catorch::subtract(*this, o, -alpha.toDouble());
}

inline Tensor Tensor::sub(const Tensor &o, Scalar alpha) const
{
	return catorch::subtract(*this, o, alpha.toDouble());
}

inline Tensor Tensor::add(Scalar o) const { return add(catorch::number(o)); }
inline Tensor Tensor::sub(Scalar o) const { return sub(catorch::number(o)); }

inline Tensor max_pool2d(const Tensor &x, IntArrayRef kernel, IntArrayRef stride = {},
			 IntArrayRef padding = 0, IntArrayRef dilation = 1, bool ceil = false)
{
	return catorch::call<Tensor>("aten::max_pool2d", "", x, kernel, stride, padding, dilation,
				     ceil);
}

inline Tensor cat(TensorList list, int64_t dim = 0)
{
	return catorch::call<Tensor>("aten::cat", "", list, dim);
}

inline Tensor stack(TensorList list, int64_t dim = 0)
{
	return catorch::call<Tensor>("aten::stack", "", list, dim);
}

inline Tensor where(const Tensor &c, const Tensor &a, const Tensor &b)
{
	return catorch::call<Tensor>("aten::where", "self", c, a, b);
}

inline Tensor linear(const Tensor &x, const Tensor &weight, const optional<Tensor> &bias = {})
{
	return catorch::call<Tensor>("aten::linear", "", x, weight, bias);
}

inline Tensor conv2d(const Tensor &x, const Tensor &weight, const optional<Tensor> &bias = {},
		     IntArrayRef stride = 1, IntArrayRef padding = 0, IntArrayRef dilation = 1,
		     int64_t groups = 1)
{
	return catorch::call<Tensor>("aten::conv2d", "", x, weight, bias, stride, padding,
				     dilation, groups);
}

#define CATORCH_OPERATOR(sign, name)                                                               \
	inline Tensor operator sign(const Tensor &a, const Tensor &b) { return a.name(b); }        \
	inline Tensor operator sign(const Tensor &a, Scalar b) { return a.name(b); }               \
	inline Tensor operator sign(Scalar a, const Tensor &b)                                     \
	{                                                                                          \
		return catorch::number(a).name(b);                                                 \
	}                                                                                          \
	inline Tensor &operator sign##=(Tensor &a, const Tensor &b) { return a.name##_(b); }       \
	inline Tensor &operator sign##=(Tensor &a, Scalar b) { return a.name##_(b); }
CATORCH_OPERATOR(+, add)
CATORCH_OPERATOR(-, sub)
CATORCH_OPERATOR(*, mul)
CATORCH_OPERATOR(/, div)
#undef CATORCH_OPERATOR
inline Tensor operator-(const Tensor &a) { return a.neg(); }

} // namespace at

namespace torch {
namespace autograd {}
struct NoGradGuard {};		// a candidate's forward runs under no_grad anyhow
} // namespace torch

namespace at {
using NoGradGuard = torch::NoGradGuard;
}
