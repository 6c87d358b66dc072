// SPDX-License-Identifier: Apache-2.0
//
// Views of a tensor's memory, from sizes and strides alone.
#pragma once

#include <catorch/tensor.hpp>

namespace catorch {

constexpr int64_t most_dims = 64;

// The sizes, strides and offset (from the tensor's first element) of a view.
struct Shape {
	const at::Tensor &of;
	std::vector<int64_t> size, stride;
	int64_t offset = 0;

	explicit Shape(const at::Tensor &t)
		: of(t), size(t.sizes().vec()), stride(t.strides().vec()) {}
	size_t wrap(int64_t d, int64_t more = 0) const
	{
		int64_t n = int64_t(size.size()) + more;

		TORCH_CHECK_INDEX(d >= -n && d < n, "Dimension out of range (expected to be in "
				  "range of [", -n, ", ", n - 1, "], but got ", d, ")");
		return size_t(d < 0 ? d + n : d);
	}
	void erase(size_t d)
	{
		size.erase(size.begin() + long(d));
		stride.erase(stride.begin() + long(d));
	}
	at::Tensor make() const
	{
		AtenTensorHandle h;
		must(aoti_torch__reinterpret_tensor(of.handle(), int64_t(size.size()), size.data(),
						    stride.data(), offset, &h), "view");
		return at::Tensor(h);
	}
};

// Fills in a size of -1; the number of elements must agree.
inline std::vector<int64_t> infer_size(c10::IntArrayRef want, int64_t numel)
{
	std::vector<int64_t> size = want.vec();
	int64_t known = 1, *open = nullptr;

	for (int64_t &n : size) {
		if (n == -1 && !open)
			open = &n;
		else
			known *= n;
	}
	if (open && known > 0 && numel % known == 0)
		known *= *open = numel / known;
	TORCH_CHECK(known == numel && (!open || *open >= 0), "shape '", want,
		    "' is invalid for input of size ", numel);
	return size;
}

// Strides with which the same elements have another shape; false where they
// would have to be copied.  Dimensions that follow on each other in memory
// are cut anew together, from the last to the first.
inline bool view_strides(const Shape &old, const std::vector<int64_t> &size,
			 std::vector<int64_t> &stride)
{
	int64_t chunk = 1, cut = 1, i = int64_t(size.size()) - 1;
	int64_t base = old.stride.empty() ? 1 : old.stride.back();

	stride.assign(size.size(), 1);
	if (old.of.numel() == 0)
		return size == old.size ? (stride = old.stride, true) :
					  (old.of.is_contiguous());
	for (int64_t d = int64_t(old.size.size()) - 1; d >= 0; d--) {
		chunk *= old.size[size_t(d)];
		if (d > 0 && (old.size[size_t(d - 1)] == 1 ||
			      old.stride[size_t(d - 1)] == chunk * base))
			continue;
		for (; i >= 0 && (cut < chunk || size[size_t(i)] == 1); i--) {
			stride[size_t(i)] = cut * base;
			cut *= size[size_t(i)];
		}
		if (cut != chunk)
			return false;
		if (d > 0) {
			base = old.stride[size_t(d - 1)];
			chunk = cut = 1;
		}
	}
	return i < 0;
}

} // namespace catorch

namespace at {

inline Tensor Tensor::detach() const { return catorch::Shape(*this).make(); }

inline Tensor Tensor::view(IntArrayRef want) const
{
	catorch::Shape s(*this);
	std::vector<int64_t> size = catorch::infer_size(want, numel()), stride;

	TORCH_CHECK(catorch::view_strides(s, size, stride),
		    "view size is not compatible with input tensor's size and stride (at least "
		    "one dimension spans across two contiguous subspaces). Use .reshape(...) "
		    "instead.");
	s.size = size;
	s.stride = stride;
	return s.make();
}

inline Tensor Tensor::reshape(IntArrayRef want) const
{
	std::vector<int64_t> stride;

	if (catorch::view_strides(catorch::Shape(*this), catorch::infer_size(want, numel()),
				  stride))
		return view(want);
	return contiguous().view(want);
}

inline Tensor Tensor::flatten(int64_t from, int64_t to) const
{
	catorch::Shape s(*this);
	std::vector<int64_t> size;
	int64_t n = 1;
	size_t i = 0;

	if (!dim())
		return reshape({1});
	for (; i < s.wrap(from); i++)
		size.push_back(s.size[i]);
	for (; i <= s.wrap(to); i++)
		n *= s.size[i];
	size.push_back(n);
	for (; i < s.size.size(); i++)
		size.push_back(s.size[i]);
	return reshape(size);
}

inline Tensor Tensor::permute(IntArrayRef dims) const
{
	catorch::Shape old(*this), s(*this);
	uint64_t seen = 0;

	TORCH_CHECK(dims.size() == s.size.size() && dim() <= catorch::most_dims,
		    "permute: number of dimensions does not match");
	for (size_t i = 0; i < dims.size(); i++) {
		size_t d = old.wrap(dims[i]);

		TORCH_CHECK(!(seen >> d & 1), "permute: duplicate dims are not allowed.");
		seen |= uint64_t(1) << d;
		s.size[i] = old.size[d];
		s.stride[i] = old.stride[d];
	}
	return s.make();
}

inline Tensor Tensor::transpose(int64_t a, int64_t b) const
{
	catorch::Shape s(*this);

	if (!dim())
		return s.make();
	std::swap(s.size[s.wrap(a)], s.size[s.wrap(b)]);
	std::swap(s.stride[s.wrap(a)], s.stride[s.wrap(b)]);
	return s.make();
}

inline Tensor Tensor::t() const
{
	TORCH_CHECK(dim() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ", dim(),
		    "D");
	return dim() < 2 ? detach() : transpose(0, 1);
}

inline Tensor Tensor::unsqueeze(int64_t dim) const
{
	catorch::Shape s(*this);
	size_t d = s.wrap(dim, 1);
	int64_t step = d < s.size.size() ? s.size[d] * s.stride[d] : 1;

	s.size.insert(s.size.begin() + long(d), 1);
	s.stride.insert(s.stride.begin() + long(d), step);
	return s.make();
}

inline Tensor Tensor::squeeze() const
{
	catorch::Shape s(*this);

	for (size_t d = s.size.size(); d-- > 0;)
		if (s.size[d] == 1)
			s.erase(d);
	return s.make();
}

inline Tensor Tensor::squeeze(int64_t dim) const
{
	catorch::Shape s(*this);

	if (!s.size.empty() && s.size[s.wrap(dim)] == 1)
		s.erase(s.wrap(dim));
	return s.make();
}

inline Tensor Tensor::expand(IntArrayRef want) const
{
	catorch::Shape old(*this), s(*this);
	size_t more = want.size() - old.size.size();

	TORCH_CHECK(want.size() >= old.size.size(), "expand: the number of sizes provided must "
		    "be greater or equal to the number of dimensions in the tensor");
	s.size = want.vec();
	s.stride.assign(want.size(), 0);
	for (size_t i = 0; i < old.size.size(); i++) {
		int64_t &n = s.size[more + i];

		if (n == -1)
			n = old.size[i];
		TORCH_CHECK(n == old.size[i] || old.size[i] == 1, "The expanded size of the "
			    "tensor (", n, ") must match the existing size (", old.size[i],
			    ") at non-singleton dimension ", more + i, ".");
		s.stride[more + i] = n == old.size[i] ? old.stride[i] : 0;
	}
	return s.make();
}

inline Tensor Tensor::select(int64_t dim, int64_t i) const
{
	catorch::Shape s(*this);
	size_t d = s.wrap(dim);
	int64_t n = s.size[d];

	TORCH_CHECK_INDEX(i >= -n && i < n, "select(): index ", i, " out of range for tensor of "
			  "size ", sizes(), " at dimension ", dim);
	s.offset = (i < 0 ? i + n : i) * s.stride[d];
	s.erase(d);
	return s.make();
}

inline Tensor Tensor::slice(int64_t dim, optional<int64_t> from, optional<int64_t> to,
			    int64_t step) const
{
	catorch::Shape s(*this);
	size_t d = s.wrap(dim);
	int64_t n = s.size[d], a = from.value_or(0), b = to.value_or(n);

	TORCH_CHECK(step > 0, "slice step must be positive");
	a = std::min(std::max(a < 0 ? a + n : a, int64_t(0)), n);
	b = std::min(std::max(b < 0 ? b + n : b, a), n);
	s.offset = a * s.stride[d];
	s.size[d] = (b - a + step - 1) / step;
	s.stride[d] *= step;
	return s.make();
}

inline Tensor Tensor::narrow(int64_t dim, int64_t from, int64_t n) const
{
	int64_t all = size(dim);

	from = from < 0 ? from + all : from;
	TORCH_CHECK(n >= 0 && from >= 0 && from + n <= all, "start (", from, ") + length (", n,
		    ") exceeds dimension size (", all, ").");
	return slice(dim, from, from + n);
}

} // namespace at
