/* SPDX-License-Identifier: Apache-2.0
 *
 * What a child of the torch host needs inside torch on the CPU: an allocator
 * that serves from the judge's result pool, so that nobody copies results,
 * and a count of the operations that go through ATen's dispatcher.
 *
 * Built by host.py at first use against the headers of the torch at hand;
 * loaded in children only, through ctypes.
 *
 * The pool's own books are kept outside the pool: its memory is shared, and
 * the judge poisons it.
 */
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "zone.h"

namespace {

constexpr size_t kAlign = 64;

/*
 * First fit with coalescing: a steady sequence of allocations gets the same
 * blocks every time, so they stay warm.  Each block has zones of its own
 * (zone.h) before and behind it: were they shared, the next block's would
 * mend this one's.
 */
struct Pool {
	std::mutex lock;
	char *base = nullptr;
	size_t len = 0;
	std::map<size_t, size_t> free;	/* offset -> bytes, zones included */
	std::map<size_t, size_t> used;	/* offset -> bytes asked for */

	static size_t whole(size_t n)
	{
		return ((n + kAlign - 1) & ~(kAlign - 1)) + 2 * CA_ZONE;
	}

	void *take(size_t n)
	{
		std::lock_guard<std::mutex> hold(lock);
		size_t size = whole(n);
		for (auto it = free.begin(); it != free.end(); ++it) {
			if (it->second < size)
				continue;
			size_t off = it->first, rest = it->second - size;
			free.erase(it);
			if (rest)
				free.emplace(off + size, rest);
			used.emplace(off + CA_ZONE, n);
			ca_zone_fill(base, off, off + CA_ZONE);
			ca_zone_fill(base, off + CA_ZONE + n, off + size);
			return base + off + CA_ZONE;
		}
		return nullptr;
	}

	/* The block that holds p; bytes 0: none. */
	std::pair<size_t, size_t> block(const char *p)
	{
		std::lock_guard<std::mutex> hold(lock);
		size_t off = (size_t)(p - base);
		auto u = used.upper_bound(off);
		if (u == used.begin())
			return {0, 0};
		--u;
		if (off - u->first >= u->second)
			return {0, 0};
		return *u;
	}

	bool holds(const void *p) const
	{
		return base && p >= base && p < base + len;
	}

	void give(void *p)
	{
		std::lock_guard<std::mutex> hold(lock);
		auto u = used.find((char *)p - base);
		if (u == used.end())
			return;
		size_t off = u->first - CA_ZONE, n = whole(u->second);
		used.erase(u);
		auto next = free.lower_bound(off);
		if (next != free.end() && off + n == next->first) {
			n += next->second;
			next = free.erase(next);
		}
		if (next != free.begin()) {
			auto prev = std::prev(next);
			if (prev->first + prev->second == off) {
				prev->second += n;
				return;
			}
		}
		free.emplace(off, n);
	}
};

Pool pool;
std::atomic<int> pool_on{0};

void release(void *p)
{
	if (pool.holds(p))
		pool.give(p);
	else
		::free(p);
}

struct PoolAllocator final : c10::Allocator {
	c10::DataPtr allocate(size_t n) override
	{
		void *p = nullptr;
		/* Outside of the pool, where nobody looks, what goes a little
		 * too far must not break the heap. */
		size_t size = Pool::whole(n);

		if (n && n < pool.len &&
		    pool_on.load(std::memory_order_relaxed))
			p = pool.take(n);
		if (n && !p && (size < n || posix_memalign(&p, kAlign, size)))
			TORCH_CHECK_WITH(OutOfMemoryError, false,
					 "can't allocate memory: ", n,
					 " bytes");
		return {p, p, &release, c10::Device(c10::DeviceType::CPU)};
	}

	c10::DeleterFnPtr raw_deleter() const override
	{
		return &release;
	}

	void copy_data(void *dest, const void *src, size_t n) const override
	{
		memcpy(dest, src, n);
	}
};

PoolAllocator allocator;

/*
 * Operations that are no computing: allocation, views, fills, copies, and
 * what Python needs to look at a tensor.  Whatever is not here computes.
 * Copies that change type are looked at one by one.
 */
const char *const kOther[] = {
#include "movers.inc"
};

enum OpClass : uintptr_t { kCompute = 1, kFree = 2, kCopy = 3 };

/* Whether every value of `from` is also one of `to`. */
bool keeps_values(c10::ScalarType from, c10::ScalarType to)
{
	if (from == to || from == c10::ScalarType::Bool)
		return true;
	if (c10::isFloatingType(from))
		return (c10::isFloatingType(to) || c10::isComplexType(to)) &&
			c10::promoteTypes(from, to) == to;
	if (c10::isComplexType(from))
		return c10::isComplexType(to) &&
			c10::promoteTypes(from, to) == to;
	if (to == c10::ScalarType::Bool)
		return false;
	if (c10::isFloatingType(to) || c10::isComplexType(to))
		return c10::elementSize(from) <= 2 &&
			c10::elementSize(to) >= 4;
	return c10::promoteTypes(from, to) == to;
}

OpClass classify(const char *name)
{
	std::string_view s(name);
	if (s == "aten::copy_")
		return kCopy;
	if (s == "inductor::_reinterpret_tensor" ||
	    s == "inductor::_alloc_from_pool")
		return kFree;
	/* Some of autograd's own records ("detach") bear no namespace. */
	if (s.substr(0, 6) == "aten::")
		s.remove_prefix(6);
	else if (s.find("::") != s.npos)
		return kCompute;
	for (const char *other : kOther)
		if (s == other)
			return kFree;
	return kCompute;
}

/* Names are kept by the dispatcher for as long as the process lives, so the
 * address is the key.  Racing threads write the same entry. */
constexpr size_t kSlots = 4096;
struct Slot {
	std::atomic<const char *> name{nullptr};
	std::atomic<uintptr_t> kind{0};
} slots[kSlots];

OpClass lookup(const char *name)
{
	size_t i = ((uintptr_t)name >> 4) * 0x9e3779b97f4a7c15u >> 52;
	for (size_t n = 0; n < 32; n++, i = (i + 1) % kSlots) {
		const char *have = slots[i].name.load(
			std::memory_order_acquire);
		if (have == name) {
			uintptr_t k = slots[i].kind.load(
				std::memory_order_acquire);
			return k ? (OpClass)k : classify(name);
		}
		if (have)
			continue;
		OpClass k = classify(name);
		if (slots[i].name.compare_exchange_strong(have, name)) {
			slots[i].kind.store(k, std::memory_order_release);
			return k;
		}
		return k;
	}
	return classify(name);
}

bool copy_computes(const at::RecordFunction &fn)
{
	auto in = fn.inputs();
	if (in.size() < 2 || !in[0].isTensor() || !in[1].isTensor())
		return true;
	const auto &to = in[0].toTensor(), &from = in[1].toTensor();
	return !to.defined() || !from.defined() ||
		!keeps_values(from.scalar_type(), to.scalar_type());
}

} /* namespace */

extern "C" {

/* Read by the shim: operations so far, over all threads. */
std::atomic<uint64_t> ca_op_compute{0}, ca_op_other{0};
/* The first that computed since the shim wrote NULL: what was called, before
 * whatever it is made of. */
std::atomic<const char *> ca_op_first{nullptr};

/* Serves allocations from [base, base + len) while on; once a process. */
void ca_pool_install(void *base, size_t len)
{
	pool.base = (char *)base;
	pool.len = len & ~(kAlign - 1);
	if (pool.len)
		pool.free.emplace(0, pool.len);
	c10::SetCPUAllocator(&allocator, 1);
}

/* The block of the pool that holds p, as offsets of its first byte and of the
 * one behind its last; both 0: none. */
void ca_pool_block(const void *p, uint64_t at[2])
{
	std::pair<size_t, size_t> b{0, 0};

	if (pool.holds(p))
		b = pool.block((const char *)p);
	at[0] = b.first;
	at[1] = b.first + b.second;
}

void ca_pool_switch(int on)
{
	pool_on.store(on, std::memory_order_relaxed);
}

void ca_ops_install(void)
{
	at::addGlobalCallback(at::RecordFunctionCallback(
		[](const at::RecordFunction &fn)
			-> std::unique_ptr<at::ObserverContext> {
			OpClass k = lookup(fn.name());
			if (k == kCopy)
				k = copy_computes(fn) ? kCompute : kFree;
			(k == kCompute ? ca_op_compute : ca_op_other)
				.fetch_add(1, std::memory_order_relaxed);
			if (k == kCompute && !ca_op_first.load()) {
				const char *none = nullptr;
				ca_op_first.compare_exchange_strong(none,
								    fn.name());
			}
			return nullptr;
		}).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

}
