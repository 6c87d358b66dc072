// SPDX-License-Identifier: Apache-2.0
//
// Handles of tensors, and calls of torch's operators by name.
#pragma once

#include <catorch/options.hpp>

namespace at {
class Tensor;
}

namespace catorch {

// A handle with a count of those that hold it.
class Handle {
	struct Rep {
		AtenTensorHandle h;
		long users;
	} *rep_ = nullptr;

	void drop()
	{
		if (rep_ && !__atomic_sub_fetch(&rep_->users, 1, __ATOMIC_ACQ_REL)) {
			aoti_torch_delete_tensor_object(rep_->h);
			delete rep_;
		}
	}

public:
	Handle() = default;
	explicit Handle(AtenTensorHandle h) : rep_(new Rep{h, 1}) {}	// takes it over
	Handle(const Handle &o) : rep_(o.rep_)
	{
		if (rep_)
			__atomic_add_fetch(&rep_->users, 1, __ATOMIC_RELAXED);
	}
	Handle(Handle &&o) noexcept : rep_(o.rep_) { o.rep_ = nullptr; }
	Handle &operator=(Handle o) noexcept
	{
		std::swap(rep_, o.rep_);
		return *this;
	}
	~Handle() { drop(); }
	explicit operator bool() const { return rep_; }
	bool same(const Handle &o) const { return rep_ == o.rep_; }
	AtenTensorHandle get() const
	{
		if (!rep_)
			throw c10::Error("tensor does not have a device");
		return rep_->h;
	}
};

// An owned list of torch's.
struct List {
	StableListOpaque *l;
	explicit List(size_t n) { must(torch_new_list_reserve_size(n, &l), "list"); }
	explicit List(StableListOpaque *list) : l(list) {}
	List(const List &) = delete;
	~List()
	{
		if (l)
			torch_delete_list(l);
	}
	void add(uint64_t v) { must(torch_list_push_back(l, v), "list"); }
	uint64_t give()
	{
		uint64_t v = reinterpret_cast<uint64_t>(l);
		l = nullptr;
		return v;
	}
};

// Arguments as torch's stable stack wants them: 64 bits each, what is larger
// behind a pointer that the callee takes over.
inline uint64_t pack(int64_t v) { return uint64_t(v); }
inline uint64_t pack(int v) { return uint64_t(int64_t(v)); }
inline uint64_t pack(bool v) { return v; }
inline uint64_t pack(double v) { return bits<uint64_t>(v); }
inline uint64_t pack(c10::ScalarType v) { return uint32_t(v); }
inline uint64_t pack(c10::Layout v) { return uint32_t(v); }
inline uint64_t pack(c10::MemoryFormat v) { return uint32_t(v); }
inline uint64_t pack(c10::Device v)
{
	return uint64_t(uint32_t(v.type())) << 32 | uint32_t(int32_t(v.index()));
}
inline uint64_t pack(c10::nullopt_t) { return 0; }
uint64_t pack(const at::Tensor &);
template <class T> uint64_t pack(c10::ArrayRef<T> v)
{
	List list(v.size());
	for (const T &one : v)
		list.add(pack(one));
	return list.give();
}
template <class T> uint64_t pack(const std::vector<T> &v) { return pack(c10::ArrayRef<T>(v)); }
template <class T> uint64_t pack(const c10::optional<T> &v)
{
	return v ? reinterpret_cast<uint64_t>(new uint64_t(pack(*v))) : 0;
}

template <class R> struct Unpack;
template <> struct Unpack<void> {
	static constexpr size_t n = 0;
	static void get(const uint64_t *) {}
};

// aten::NAME.OVERLOAD with every argument of its schema.
template <class R, class... Args>
R call(const char *name, const char *overload, const Args &...args)
{
	constexpr size_t most = sizeof...(Args) > Unpack<R>::n ? sizeof...(Args) : Unpack<R>::n;
	uint64_t stack[most + 1] = {pack(args)...};

	must(torch_call_dispatcher(name, overload, stack, abi_version), name);
	return Unpack<R>::get(stack);
}

} // namespace catorch
