// SPDX-License-Identifier: Apache-2.0
//
// Element access by indexes, on the host and in kernels.
#pragma once

#include <catorch/types.hpp>

namespace at {

template <class T> struct DefaultPtrTraits { using PtrType = T *; };
template <class T> struct RestrictPtrTraits { using PtrType = T *__restrict__; };

// Sizes and strides lie elsewhere: the tensor's own.
template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
class TensorAccessor {
public:
	using PtrType = typename P<T>::PtrType;
	C10_HOST_DEVICE TensorAccessor(PtrType p, const I *sizes, const I *strides)
		: data_(p), sizes_(sizes), strides_(strides) {}
	C10_HOST_DEVICE I size(I d) const { return sizes_[d]; }
	C10_HOST_DEVICE I stride(I d) const { return strides_[d]; }
	C10_HOST_DEVICE PtrType data() const { return data_; }
	C10_HOST_DEVICE decltype(auto) operator[](I i) const
	{
		if constexpr (N == 1)
			return (data_[strides_[0] * i]);
		else
			return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1,
							      strides_ + 1);
	}

private:
	PtrType data_;
	const I *sizes_, *strides_;
};

// Carries them along, so that it can be a kernel's argument.
template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
class PackedTensorAccessor {
public:
	using PtrType = typename P<T>::PtrType;
	PackedTensorAccessor(PtrType p, const int64_t *sizes, const int64_t *strides) : data_(p)
	{
		for (size_t i = 0; i < N; i++) {
			sizes_[i] = I(sizes[i]);
			strides_[i] = I(strides[i]);
		}
	}
	C10_HOST_DEVICE I size(I d) const { return sizes_[d]; }
	C10_HOST_DEVICE I stride(I d) const { return strides_[d]; }
	C10_HOST_DEVICE PtrType data() const { return data_; }
	C10_HOST_DEVICE decltype(auto) operator[](I i) const
	{
		if constexpr (N == 1)
			return (data_[strides_[0] * i]);
		else
			return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1,
							      strides_ + 1);
	}

private:
	PtrType data_;
	I sizes_[N], strides_[N];
};

template <class T, size_t N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor32 = PackedTensorAccessor<T, N, P, int32_t>;
template <class T, size_t N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor64 = PackedTensorAccessor<T, N, P, int64_t>;

} // namespace at
