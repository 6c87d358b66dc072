// SPDX-License-Identifier: Apache-2.0
//
// Tensors that are made: from sizes, from others, of other types.
#pragma once

#include <catorch/views.hpp>

namespace at {

inline Tensor empty_strided(IntArrayRef size, IntArrayRef stride, const TensorOptions &o = {})
{
	Device d = o.device();
	AtenTensorHandle h;

	TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
	TORCH_CHECK(o.layout() == kStrided && !o.pinned_memory(), "not a strided tensor");
	catorch::must(aoti_torch_empty_strided(int64_t(size.size()), size.data(), stride.data(),
					       int32_t(o.dtype().toScalarType()),
					       int32_t(d.type()), d.index(), &h), "empty");
	return Tensor(h);
}

} // namespace at

namespace catorch {

// Strides of a dense tensor whose dimensions vary in this order, last fastest.
inline void lay_out(c10::IntArrayRef size, const int *order, int64_t *stride)
{
	int64_t step = 1;

	for (size_t i = size.size(); i-- > 0;) {
		size_t d = order ? size_t(order[i]) : i;

		stride[d] = step;
		step *= size[d] > 1 ? size[d] : 1;
	}
}

// The strides that a memory format means; false where it has none for n dims.
inline bool strides_of(c10::IntArrayRef size, c10::MemoryFormat m, int64_t *stride)
{
	static const int last[] = {0, 2, 3, 1}, last3d[] = {0, 2, 3, 4, 1};

	if (m == c10::MemoryFormat::ChannelsLast && size.size() == 4)
		lay_out(size, last, stride);
	else if (m == c10::MemoryFormat::ChannelsLast3d && size.size() == 5)
		lay_out(size, last3d, stride);
	else if (m == c10::MemoryFormat::Contiguous)
		lay_out(size, nullptr, stride);
	else
		return false;
	return true;
}

// Dense strides in the order of t's own: what "preserve" means.
inline std::vector<int64_t> dense_strides(const at::Tensor &t)
{
	c10::IntArrayRef size = t.sizes(), old = t.strides();
	std::vector<int64_t> stride(size.size());
	std::vector<int> order(size.size());

	// Outermost first; of equal strides, those of larger sizes.
	for (size_t i = 0; i < order.size(); i++)
		order[i] = int(i);
	std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
		size_t x = size_t(a), y = size_t(b);

		if (size[x] == 1 || size[y] == 1 || !old[x] || !old[y])
			return false;
		return old[x] != old[y] ? old[x] > old[y] : size[x] > size[y];
	});
	lay_out(size, order.data(), stride.data());
	return stride;
}

// Scalars meet tensors as tensors without dimensions, which leave the other's
// type alone just as numbers do.
inline at::Tensor number(c10::Scalar v)
{
	at::Tensor t = at::empty_strided(c10::IntArrayRef(), c10::IntArrayRef(),
					 v.isFloatingPoint() ? c10::ScalarType::Double :
					 v.isBoolean() ? c10::ScalarType::Bool :
					 c10::ScalarType::Long);

	if (v.isFloatingPoint())
		*t.data_ptr<double>() = v.toDouble();
	else if (v.isBoolean())
		*t.data_ptr<bool>() = v.toBool();
	else
		*t.data_ptr<int64_t>() = v.toLong();
	return t;
}

} // namespace catorch

namespace at {

inline Tensor empty(IntArrayRef size, const TensorOptions &o = {},
		    optional<MemoryFormat> m = nullopt)
{
	int64_t stride[catorch::most_dims];
	MemoryFormat format = m ? *m : o.memory_format_opt().value_or(MemoryFormat::Contiguous);

	TORCH_CHECK(int64_t(size.size()) <= catorch::most_dims, "too many dimensions");
	TORCH_CHECK(catorch::strides_of(size, format, stride), "unsupported memory format");
	return empty_strided(size, {stride, size.size()}, o);
}

inline Tensor empty_like(const Tensor &t, const TensorOptions &o = {},
			 optional<MemoryFormat> m = nullopt)
{
	MemoryFormat format = m ? *m : o.memory_format_opt().value_or(MemoryFormat::Preserve);
	TensorOptions all = t.options();

	if (o.has_dtype())
		all = all.dtype(o.dtype());
	if (o.has_device())
		all = all.device(o.device());
	if (format != MemoryFormat::Preserve)
		return empty(t.sizes(), all, format);
	if (t.is_contiguous())
		return empty_strided(t.sizes(), t.strides(), all);
	return empty_strided(t.sizes(), catorch::dense_strides(t), all);
}

// Like torch's, these take no memory format from options.
inline Tensor zeros(IntArrayRef size, const TensorOptions &o = {})
{
	return empty(size, o, MemoryFormat::Contiguous).zero_();
}

inline Tensor full(IntArrayRef size, Scalar v, const TensorOptions &o = {})
{
	TensorOptions all = o;

	if (!o.has_dtype() && !v.isFloatingPoint())
		all = o.dtype(v.isBoolean() ? kBool : kLong);
	return empty(size, all, MemoryFormat::Contiguous).fill_(v);
}

inline Tensor ones(IntArrayRef size, const TensorOptions &o = {})
{
	return empty(size, o, MemoryFormat::Contiguous).fill_(1);
}

inline Tensor zeros_like(const Tensor &t, const TensorOptions &o = {},
			 optional<MemoryFormat> m = nullopt)
{
	return empty_like(t, o, m).zero_();
}

inline Tensor ones_like(const Tensor &t, const TensorOptions &o = {},
			optional<MemoryFormat> m = nullopt)
{
	return empty_like(t, o, m).fill_(1);
}

inline Tensor full_like(const Tensor &t, Scalar v, const TensorOptions &o = {},
			optional<MemoryFormat> m = nullopt)
{
	return empty_like(t, o, m).fill_(v);
}

inline Tensor from_blob(void *data, IntArrayRef size, IntArrayRef stride,
			const TensorOptions &o = {})
{
	Device d = o.device();
	AtenTensorHandle h;

	catorch::must(aoti_torch_create_tensor_from_blob(
		data, int64_t(size.size()), size.data(), stride.data(), 0,
		int32_t(o.dtype().toScalarType()), int32_t(d.type()), d.index(), &h), "from_blob");
	return Tensor(h);
}

inline Tensor from_blob(void *data, IntArrayRef size, const TensorOptions &o = {})
{
	int64_t stride[catorch::most_dims];

	TORCH_CHECK(int64_t(size.size()) <= catorch::most_dims, "too many dimensions");
	catorch::strides_of(size, MemoryFormat::Contiguous, stride);
	return from_blob(data, size, {stride, size.size()}, o);
}

inline bool Tensor::is_contiguous(MemoryFormat m) const
{
	int64_t stride[catorch::most_dims];
	IntArrayRef n = sizes(), s = strides();

	if (m == MemoryFormat::Contiguous)
		return is_contiguous();
	if (int64_t(n.size()) > catorch::most_dims || !catorch::strides_of(n, m, stride))
		return false;
	for (size_t i = 0; i < n.size(); i++)
		if (n[i] != 1 && s[i] != stride[i])
			return false;
	return true;
}

inline Tensor Tensor::clone(optional<MemoryFormat> m) const
{
	return empty_like(*this, {}, m).copy_(*this);
}

inline Tensor Tensor::contiguous(MemoryFormat m) const
{
	return is_contiguous(m) ? *this : clone(m);
}

inline Scalar Tensor::item() const
{
	Tensor t = cpu();

	TORCH_CHECK(numel() == 1, "a Tensor with ", numel(), " elements cannot be converted to "
		    "Scalar");
	switch (scalar_type()) {
#define CATORCH_ITEM(NAME, T) case ScalarType::NAME: return *t.data_ptr<T>();
	CATORCH_TYPES(CATORCH_ITEM)
#undef CATORCH_ITEM
	default: throw NotImplementedError(c10::str("item of ", scalar_type()));
	}
}

inline Tensor Tensor::to(ScalarType t, bool non_blocking, bool copy) const
{
	return to(device(), t, non_blocking, copy);
}

inline Tensor Tensor::to(Device d, ScalarType t, bool non_blocking, bool copy) const
{
	bool there = d == device() || (d.type() == device_type() && !d.has_index());

	if (there && t == scalar_type() && !copy)
		return *this;
	return empty_like(*this, TensorOptions(t).device(d)).copy_(*this, non_blocking);
}

inline Tensor Tensor::to(Device d, bool non_blocking, bool copy) const
{
	return to(d, scalar_type(), non_blocking, copy);
}

inline Tensor Tensor::to(const TensorOptions &o, bool non_blocking, bool copy) const
{
	return to(o.has_device() ? o.device() : device(),
		  o.has_dtype() ? o.dtype().toScalarType() : scalar_type(), non_blocking, copy);
}

} // namespace at
