// SPDX-License-Identifier: Apache-2.0
//
// at::Tensor over a handle of the C shim.
#pragma once

#include <catorch/accessor.hpp>
#include <catorch/call.hpp>

// Operators without arguments that have a twin in place.
#define CATORCH_UNARIES(_)                                                                         \
	_(exp) _(log) _(log2) _(log1p) _(sqrt) _(rsqrt) _(abs) _(neg) _(relu) _(sigmoid) _(tanh)   \
	_(sin) _(cos) _(erf) _(floor) _(ceil) _(round) _(reciprocal) _(square) _(sign)

namespace catorch {
template <> struct Unpack<at::Tensor>;
at::Tensor number(c10::Scalar v);
} // namespace catorch

namespace at {

// What the deprecated Tensor::type() gives.
struct DeprecatedTypeProperties {
	ScalarType type_;
	DeviceType device_;
	ScalarType scalarType() const { return type_; }
	bool is_cuda() const { return device_ == kCUDA; }
	std::string toString() const
	{
		return c10::str(device_ == kCUDA ? "CUDA" : "CPU", type_, "Type");
	}
	friend bool operator==(DeprecatedTypeProperties a, DeprecatedTypeProperties b)
	{
		return a.type_ == b.type_ && a.device_ == b.device_;
	}
	friend bool operator!=(DeprecatedTypeProperties a, DeprecatedTypeProperties b)
	{
		return !(a == b);
	}
	operator TensorOptions() const { return TensorOptions(type_).device(device_); }
};

class Tensor {
	catorch::Handle h_;

	template <class T>
	T ask(AOTITorchError (*fn)(AtenTensorHandle, T *), const char *what) const
	{
		T v;
		catorch::must(fn(h_.get(), &v), what);
		return v;
	}

public:
	Tensor() = default;
	explicit Tensor(AtenTensorHandle h) : h_(h) {}		// takes it over
	AtenTensorHandle handle() const { return h_.get(); }
	bool defined() const { return h_ && ask(aoti_torch_is_defined, "defined"); }
	bool is_same(const Tensor &o) const { return h_.same(o.h_); }
	void reset() { h_ = {}; }

	int64_t dim() const { return ask(aoti_torch_get_dim, "dim"); }
	int64_t ndimension() const { return dim(); }
	int64_t numel() const { return ask(aoti_torch_get_numel, "numel"); }
	int64_t size(int64_t d) const { return sizes()[wrap(d)]; }
	int64_t stride(int64_t d) const { return strides()[wrap(d)]; }
	IntArrayRef sizes() const
	{
		return {ask<int64_t *>(aoti_torch_get_sizes, "sizes"), size_t(dim())};
	}
	IntArrayRef strides() const
	{
		return {ask<int64_t *>(aoti_torch_get_strides, "strides"), size_t(dim())};
	}
	int64_t storage_offset() const { return ask(aoti_torch_get_storage_offset, "offset"); }
	ScalarType scalar_type() const
	{
		return ScalarType(ask(aoti_torch_get_dtype, "dtype"));
	}
	caffe2::TypeMeta dtype() const { return scalar_type(); }
	size_t element_size() const { return elementSize(scalar_type()); }
	int64_t itemsize() const { return int64_t(element_size()); }
	size_t nbytes() const { return size_t(numel()) * element_size(); }
	DeviceType device_type() const
	{
		return DeviceType(ask(aoti_torch_get_device_type, "device"));
	}
	int64_t get_device() const { return ask(aoti_torch_get_device_index, "device"); }
	Device device() const { return {device_type(), DeviceIndex(get_device())}; }
	bool is_cuda() const { return device_type() == kCUDA; }
	bool is_cpu() const { return device_type() == kCPU; }
	Layout layout() const { return Layout(ask(aoti_torch_get_layout, "layout")); }
	bool is_sparse() const { return layout() != kStrided; }
	bool is_floating_point() const { return isFloatingType(scalar_type()); }
	bool is_contiguous() const { return ask(aoti_torch_is_contiguous, "is_contiguous"); }
	bool is_contiguous(MemoryFormat m) const;
	TensorOptions options() const
	{
		return TensorOptions(scalar_type()).device(device()).layout(layout());
	}
	DeprecatedTypeProperties type() const { return {scalar_type(), device_type()}; }

	void *data_ptr() const { return ask(aoti_torch_get_data_ptr, "data_ptr"); }
	void *mutable_data_ptr() const { return data_ptr(); }
	const void *const_data_ptr() const { return data_ptr(); }
	template <class T> T *data_ptr() const
	{
		constexpr ScalarType want = CppTypeToScalarType<std::remove_const_t<T>>::value;

		TORCH_CHECK(scalar_type() == want, "expected scalar type ", want, " but found ",
			    scalar_type());
		return static_cast<T *>(data_ptr());
	}
	template <class T> T *mutable_data_ptr() const { return data_ptr<T>(); }
	template <class T> const T *const_data_ptr() const { return data_ptr<T>(); }
	template <class T> T *data() const { return data_ptr<T>(); }

	template <class T, size_t N> TensorAccessor<T, N> accessor() const
	{
		TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ",
			    dim());
		return {data_ptr<T>(), sizes().data(), strides().data()};
	}
	template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
	PackedTensorAccessor<T, N, P, I> generic_packed_accessor() const
	{
		TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ",
			    dim());
		return {data_ptr<T>(), sizes().data(), strides().data()};
	}
	template <class T, size_t N, template <class> class P = DefaultPtrTraits>
	PackedTensorAccessor<T, N, P, int32_t> packed_accessor32() const
	{
		TORCH_CHECK(numel() <= INT32_MAX, "numel needs to be smaller than int32_t max; "
			    "otherwise, please use packed_accessor64");
		return generic_packed_accessor<T, N, P, int32_t>();
	}
	template <class T, size_t N, template <class> class P = DefaultPtrTraits>
	PackedTensorAccessor<T, N, P, int64_t> packed_accessor64() const
	{
		return generic_packed_accessor<T, N, P, int64_t>();
	}

	Tensor clone() const
	{
		AtenTensorHandle h;
		catorch::must(aoti_torch_clone(handle(), &h), "clone");
		return Tensor(h);
	}
	Tensor clone(optional<MemoryFormat> m) const;
	Tensor contiguous(MemoryFormat m = MemoryFormat::Contiguous) const;
	Tensor &copy_(const Tensor &from, bool non_blocking = false)
	{
		catorch::must(aoti_torch_copy_(handle(), from.handle(), non_blocking), "copy_");
		return *this;
	}
	Tensor &zero_() { return catorch::must(aoti_torch_zero_(handle()), "zero_"), *this; }
	Tensor &fill_(Scalar v)
	{
		catorch::must(aoti_torch_aten_fill__Scalar(handle(), v.toDouble()), "fill_");
		return *this;
	}
	Scalar item() const;
	template <class T> T item() const { return item().to<T>(); }
	Tensor to(ScalarType t, bool non_blocking = false, bool copy = false) const;
	Tensor to(Device d, bool non_blocking = false, bool copy = false) const;
	Tensor to(Device d, ScalarType t, bool non_blocking = false, bool copy = false) const;
	Tensor to(const TensorOptions &o, bool non_blocking = false, bool copy = false) const;
	Tensor to(caffe2::TypeMeta t) const { return to(t.toScalarType()); }
	Tensor toType(ScalarType t) const { return to(t); }
	Tensor cuda() const { return to(Device(kCUDA)); }
	Tensor cpu() const { return to(Device(kCPU)); }

	// Views (views.hpp).
	Tensor detach() const;
	Tensor t() const;
	Tensor view(IntArrayRef size) const;
	Tensor reshape(IntArrayRef size) const;
	Tensor flatten(int64_t from = 0, int64_t to = -1) const;
	Tensor permute(IntArrayRef dims) const;
	Tensor transpose(int64_t a, int64_t b) const;
	Tensor unsqueeze(int64_t dim) const;
	Tensor squeeze() const;
	Tensor squeeze(int64_t dim) const;
	Tensor expand(IntArrayRef size) const;
	Tensor select(int64_t dim, int64_t i) const;
	Tensor narrow(int64_t dim, int64_t from, int64_t n) const;
	Tensor slice(int64_t dim = 0, optional<int64_t> from = nullopt,
		     optional<int64_t> to = nullopt, int64_t step = 1) const;
	Tensor operator[](int64_t i) const { return select(0, i); }

	Tensor clamp(optional<Scalar> low = nullopt, optional<Scalar> high = nullopt) const;
	Tensor pow(Scalar e) const;
	Tensor add(const Tensor &o, Scalar alpha = 1) const;
	Tensor sub(const Tensor &o, Scalar alpha = 1) const;
	Tensor add(Scalar o) const;
	Tensor sub(Scalar o) const;
	Tensor &add_(const Tensor &o, Scalar alpha = 1) { return copy_(add(o, alpha)); }
	Tensor &sub_(const Tensor &o, Scalar alpha = 1) { return copy_(sub(o, alpha)); }
	Tensor &add_(Scalar o) { return copy_(add(o)); }
	Tensor &sub_(Scalar o) { return copy_(sub(o)); }

#include <catorch/methods.hpp>

private:
	size_t wrap(int64_t d) const
	{
		int64_t n = dim();

		TORCH_CHECK_INDEX(d >= -n && d < n, "Dimension out of range (expected to be in "
				  "range of [", -n, ", ", n - 1, "], but got ", d, ")");
		return size_t(d < 0 ? d + n : d);
	}
};

} // namespace at

namespace catorch {

inline uint64_t pack(const at::Tensor &t)
{
	AtenTensorHandle h;
	must(aoti_torch_new_tensor_handle(t.handle(), &h), "handle");
	return reinterpret_cast<uint64_t>(h);
}

template <> struct Unpack<at::Tensor> {
	static constexpr size_t n = 1;
	static at::Tensor get(const uint64_t *v)
	{
		return at::Tensor(reinterpret_cast<AtenTensorHandle>(*v));
	}
};

template <class... T> struct Unpack<std::tuple<T...>> {
	static constexpr size_t n = sizeof...(T);
	static std::tuple<T...> get(const uint64_t *v)
	{
		return get(v, std::index_sequence_for<T...>());
	}
	template <size_t... I>
	static std::tuple<T...> get(const uint64_t *v, std::index_sequence<I...>)
	{
		return {Unpack<T>::get(v + I)...};
	}
};

} // namespace catorch

namespace at {
using TensorList = c10::ArrayRef<Tensor>;
}
