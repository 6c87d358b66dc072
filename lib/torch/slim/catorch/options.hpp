// SPDX-License-Identifier: Apache-2.0
//
// Scalar and TensorOptions.
#pragma once

#include <catorch/check.hpp>

namespace c10 {

class Scalar {
	enum { I, D, B } tag_;
	union {
		int64_t i_;
		double d_;
	};

public:
	Scalar() : Scalar(int64_t(0)) {}
	template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>,
					    int> = 0>
	Scalar(T v) : tag_(I), i_(int64_t(v)) {}
	template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
	Scalar(T v) : tag_(D), d_(double(v)) {}
	Scalar(bool v) : tag_(B), i_(v) {}
	Scalar(Half v) : Scalar(float(v)) {}
	Scalar(BFloat16 v) : Scalar(float(v)) {}
	bool isIntegral(bool with_bool) const { return tag_ == I || (with_bool && tag_ == B); }
	bool isFloatingPoint() const { return tag_ == D; }
	bool isBoolean() const { return tag_ == B; }
	double toDouble() const { return to<double>(); }
	float toFloat() const { return to<float>(); }
	int64_t toLong() const { return to<int64_t>(); }
	int toInt() const { return to<int>(); }
	bool toBool() const { return to<bool>(); }
	template <class T> T to() const { return tag_ == D ? T(d_) : T(i_); }
};

// Only the parts that somebody set are set.
class TensorOptions {
	optional<ScalarType> dtype_;
	optional<Device> device_;
	optional<Layout> layout_;
	optional<MemoryFormat> format_;
	bool requires_grad_ = false, pinned_ = false;

public:
	TensorOptions() = default;
	TensorOptions(ScalarType t) : dtype_(t) {}
	TensorOptions(TypeMeta t) : dtype_(t.toScalarType()) {}
	TensorOptions(Device d) : device_(d) {}
	TensorOptions(DeviceType d) : device_(d) {}
	TensorOptions(MemoryFormat m) : format_(m) {}
	TensorOptions(Layout l) : layout_(l) {}
	TensorOptions dtype(optional<ScalarType> t) const
	{
		return with(&TensorOptions::dtype_, t);
	}
	TensorOptions dtype(ScalarType t) const { return dtype(optional<ScalarType>(t)); }
	TensorOptions dtype(TypeMeta t) const { return dtype(t.toScalarType()); }
	template <class T> TensorOptions dtype() const
	{
		return dtype(CppTypeToScalarType<T>::value);
	}
	TensorOptions device(optional<Device> d) const { return with(&TensorOptions::device_, d); }
	TensorOptions device(DeviceType t, DeviceIndex i) const { return device(Device(t, i)); }
	TensorOptions device(DeviceType t) const { return device(Device(t)); }
	TensorOptions device_index(DeviceIndex i) const { return device(kCUDA, i); }
	TensorOptions layout(optional<Layout> l) const { return with(&TensorOptions::layout_, l); }
	TensorOptions memory_format(optional<MemoryFormat> m) const
	{
		return with(&TensorOptions::format_, m);
	}
	TensorOptions requires_grad(bool v = true) const
	{
		return with(&TensorOptions::requires_grad_, v);
	}
	TensorOptions pinned_memory(bool v) const { return with(&TensorOptions::pinned_, v); }
	TypeMeta dtype() const { return dtype_.value_or(ScalarType::Float); }
	Device device() const { return device_.value_or(Device(kCPU)); }
	Layout layout() const { return layout_.value_or(kStrided); }
	bool has_dtype() const { return dtype_.has_value(); }
	bool has_device() const { return device_.has_value(); }
	bool requires_grad() const { return requires_grad_; }
	bool pinned_memory() const { return pinned_; }
	optional<ScalarType> dtype_opt() const { return dtype_; }
	optional<Device> device_opt() const { return device_; }
	optional<Layout> layout_opt() const { return layout_; }
	optional<MemoryFormat> memory_format_opt() const { return format_; }

private:
	template <class T, class U> TensorOptions with(T TensorOptions::*part, const U &v) const
	{
		TensorOptions o = *this;
		o.*part = v;
		return o;
	}
};

template <class T> TensorOptions dtype() { return TensorOptions().dtype<T>(); }
inline TensorOptions dtype(ScalarType t) { return t; }
inline TensorOptions dtype(TypeMeta t) { return t; }
inline TensorOptions device(Device d) { return d; }
inline TensorOptions device(DeviceType t) { return t; }
inline TensorOptions layout(Layout l) { return l; }
inline TensorOptions memory_format(MemoryFormat m) { return m; }
inline TensorOptions requires_grad(bool v = true) { return TensorOptions().requires_grad(v); }

} // namespace c10

namespace at {

constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char,
		     kShort = ScalarType::Short, kInt = ScalarType::Int, kLong = ScalarType::Long,
		     kHalf = ScalarType::Half, kFloat = ScalarType::Float,
		     kDouble = ScalarType::Double, kBool = ScalarType::Bool,
		     kBFloat16 = ScalarType::BFloat16, kFloat8_e5m2 = ScalarType::Float8_e5m2,
		     kFloat8_e4m3fn = ScalarType::Float8_e4m3fn;

} // namespace at

namespace torch {

constexpr ScalarType kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt,
		     kInt64 = kLong, kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble,
		     kU8 = kByte, kI8 = kChar, kI16 = kShort, kI32 = kInt, kI64 = kLong,
		     kF16 = kHalf, kF32 = kFloat, kF64 = kDouble;
using Dtype = ScalarType;

} // namespace torch
