// SPDX-License-Identifier: Apache-2.0
//
// Element types, devices, layouts, array references and TensorOptions; errors.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catorch/abi.hpp>
#include <catorch/half.hpp>

#define C10_HOST_DEVICE CATORCH_HD
#ifdef __CUDACC__
#define C10_DEVICE __device__
#define C10_HOST __host__
#else
#define C10_DEVICE
#define C10_HOST
#endif
#define C10_UNLIKELY(x) (__builtin_expect(static_cast<bool>(x), 0))
#define C10_LIKELY(x) (__builtin_expect(static_cast<bool>(x), 1))
#define C10_RESTRICT __restrict
#define C10_ALWAYS_INLINE __attribute__((__always_inline__)) inline
#define C10_EXPORT
#define C10_API
#define TORCH_API
#define AT_CUDA_API

namespace c10 {

class Error : public std::runtime_error {
public:
	using std::runtime_error::runtime_error;
	const char *what_without_backtrace() const { return what(); }
};
class IndexError : public Error { using Error::Error; };
class ValueError : public Error { using Error::Error; };
class TypeError : public Error { using Error::Error; };
class NotImplementedError : public Error { using Error::Error; };

template <class... Args> std::string str(const Args &...args)
{
	std::ostringstream s;
	(void)(s << ... << args);
	return s.str();
}

// The numbers are torch's.
enum class ScalarType : int8_t {
	Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, Double = 7,
	ComplexHalf = 8, ComplexFloat = 9, ComplexDouble = 10, Bool = 11, BFloat16 = 15,
	Float8_e5m2 = 23, Float8_e4m3fn = 24, UInt16 = 27, UInt32 = 28, UInt64 = 29, Undefined = 47
};

#define CATORCH_TYPES(_)                                                                           \
	_(Byte, uint8_t) _(Char, int8_t) _(Short, int16_t) _(Int, int32_t) _(Long, int64_t)        \
	_(Half, Half) _(Float, float) _(Double, double) _(Bool, bool) _(BFloat16, BFloat16)        \
	_(UInt16, uint16_t) _(UInt32, uint32_t) _(UInt64, uint64_t)

template <ScalarType> struct catorch_cpp_type;
template <class T> struct CppTypeToScalarType;
#define CATORCH_MAP(NAME, T)                                                                       \
	template <> struct catorch_cpp_type<ScalarType::NAME> { using type = T; };                 \
	template <> struct CppTypeToScalarType<T> {                                                \
		static constexpr ScalarType value = ScalarType::NAME;                              \
	};
CATORCH_TYPES(CATORCH_MAP)
#undef CATORCH_MAP

namespace impl {
template <ScalarType S> using ScalarTypeToCPPTypeT = typename catorch_cpp_type<S>::type;
template <ScalarType S> struct ScalarTypeToCPPType : catorch_cpp_type<S> {};
} // namespace impl

inline const char *toString(ScalarType t)
{
	switch (t) {
#define CATORCH_NAME(NAME, T) case ScalarType::NAME: return #NAME;
	CATORCH_TYPES(CATORCH_NAME)
#undef CATORCH_NAME
	case ScalarType::ComplexHalf: return "ComplexHalf";
	case ScalarType::ComplexFloat: return "ComplexFloat";
	case ScalarType::ComplexDouble: return "ComplexDouble";
	case ScalarType::Float8_e5m2: return "Float8_e5m2";
	case ScalarType::Float8_e4m3fn: return "Float8_e4m3fn";
	default: return "UNKNOWN_SCALAR";
	}
}

inline size_t elementSize(ScalarType t)
{
	switch (t) {
#define CATORCH_SIZE(NAME, T) case ScalarType::NAME: return sizeof(T);
	CATORCH_TYPES(CATORCH_SIZE)
#undef CATORCH_SIZE
	case ScalarType::ComplexHalf: return 4;
	case ScalarType::ComplexFloat: return 8;
	case ScalarType::ComplexDouble: return 16;
	case ScalarType::Float8_e5m2: case ScalarType::Float8_e4m3fn: return 1;
	default: throw Error("element size of an unknown type");
	}
}

inline bool isFloatingType(ScalarType t)
{
	return t == ScalarType::Half || t == ScalarType::Float || t == ScalarType::Double ||
	       t == ScalarType::BFloat16 || t == ScalarType::Float8_e5m2 ||
	       t == ScalarType::Float8_e4m3fn;
}

inline bool isIntegralType(ScalarType t, bool with_bool = false)
{
	return t <= ScalarType::Long || t == ScalarType::UInt16 || t == ScalarType::UInt32 ||
	       t == ScalarType::UInt64 || (with_bool && t == ScalarType::Bool);
}

inline std::ostream &operator<<(std::ostream &s, ScalarType t) { return s << toString(t); }

} // namespace c10

namespace caffe2 {

// What Tensor::dtype() gives.
class TypeMeta {
	c10::ScalarType type_ = c10::ScalarType::Undefined;

public:
	TypeMeta() = default;
	TypeMeta(c10::ScalarType t) : type_(t) {}
	template <class T> static TypeMeta Make() { return c10::CppTypeToScalarType<T>::value; }
	c10::ScalarType toScalarType() const { return type_; }
	size_t itemsize() const { return c10::elementSize(type_); }
	const char *name() const { return c10::toString(type_); }
	friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
	friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }
	friend std::ostream &operator<<(std::ostream &s, TypeMeta t) { return s << t.name(); }
};

} // namespace caffe2

namespace c10 {

using caffe2::TypeMeta;
inline ScalarType typeMetaToScalarType(TypeMeta t) { return t.toScalarType(); }
using std::nullopt;
using std::nullopt_t;
using std::optional;

using DeviceIndex = int8_t;
enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Meta = 15 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;

inline std::ostream &operator<<(std::ostream &s, DeviceType t)
{
	return s << (t == kCPU ? "cpu" : t == kCUDA ? "cuda" : "meta");
}

struct Device {
	DeviceType type_;
	DeviceIndex index_;
	Device(DeviceType t, DeviceIndex i = -1) : type_(t), index_(i) {}
	Device(const std::string &s) : type_(kCPU), index_(-1)
	{
		size_t colon = s.find(':');
		std::string name = s.substr(0, colon);

		if (name != "cpu" && name != "cuda" && name != "meta")
			throw Error("Invalid device string: '" + s + "'");
		type_ = name == "cpu" ? kCPU : name == "cuda" ? kCUDA : kMeta;
		if (colon != std::string::npos)
			index_ = DeviceIndex(std::stoi(s.substr(colon + 1)));
	}
	Device(const char *s) : Device(std::string(s)) {}
	DeviceType type() const { return type_; }
	DeviceIndex index() const { return index_; }
	bool has_index() const { return index_ != -1; }
	bool is_cuda() const { return type_ == kCUDA; }
	bool is_cpu() const { return type_ == kCPU; }
	std::string str() const { return c10::str(*this); }
	friend bool operator==(Device a, Device b)
	{
		return a.type_ == b.type_ && a.index_ == b.index_;
	}
	friend bool operator!=(Device a, Device b) { return !(a == b); }
	friend std::ostream &operator<<(std::ostream &s, const Device &d)
	{
		s << d.type_;
		return d.has_index() ? s << ':' << int(d.index_) : s;
	}
};

enum class Layout : int8_t { Strided = 0, Sparse = 1 };
constexpr Layout kStrided = Layout::Strided;
enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2,
				   ChannelsLast3d = 3 };

// A view of values that somebody else keeps.
template <class T> class ArrayRef {
	const T *data_ = nullptr;
	size_t size_ = 0;

public:
	using value_type = T;
	using iterator = const T *;
	using const_iterator = const T *;
	ArrayRef() = default;
	ArrayRef(const T &one) : data_(&one), size_(1) {}
	ArrayRef(const T *p, size_t n) : data_(p), size_(n) {}
	ArrayRef(const T *b, const T *e) : data_(b), size_(size_t(e - b)) {}
	ArrayRef(const std::vector<T> &v) : data_(v.data()), size_(v.size()) {}
	template <size_t N> ArrayRef(const std::array<T, N> &v) : data_(v.data()), size_(N) {}
	template <size_t N> ArrayRef(const T (&v)[N]) : data_(v), size_(N) {}
	// Lives as long as the full expression, as torch's does.
	ArrayRef(const std::initializer_list<T> &v) : data_(v.begin()), size_(v.size()) {}
	const T *begin() const { return data_; }
	const T *end() const { return data_ + size_; }
	const T *data() const { return data_; }
	size_t size() const { return size_; }
	bool empty() const { return !size_; }
	const T &operator[](size_t i) const { return data_[i]; }
	const T &at(size_t i) const
	{
		if (i >= size_)
			throw Error("ArrayRef: invalid index " + std::to_string(i));
		return data_[i];
	}
	const T &front() const { return at(0); }
	const T &back() const { return at(size_ - 1); }
	ArrayRef slice(size_t from, size_t n) const { return {data_ + from, n}; }
	ArrayRef slice(size_t from) const { return {data_ + from, size_ - from}; }
	std::vector<T> vec() const { return {begin(), end()}; }
	bool equals(ArrayRef o) const
	{
		return size_ == o.size_ && std::equal(begin(), end(), o.begin());
	}
	friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
	friend bool operator!=(ArrayRef a, ArrayRef b) { return !a.equals(b); }
	friend std::ostream &operator<<(std::ostream &s, ArrayRef a)
	{
		s << '[';
		for (size_t i = 0; i < a.size_; i++)
			s << (i ? ", " : "") << a.data_[i];
		return s << ']';
	}
};
using IntArrayRef = ArrayRef<int64_t>;

} // namespace c10

namespace at {
using namespace c10;
}

namespace torch {
using namespace at;
}
