// SPDX-License-Identifier: Apache-2.0
//
// at::parallel_for on torch's own threads.
#pragma once

#include <catorch/check.hpp>

namespace at {

template <class F> void parallel_for(int64_t begin, int64_t end, int64_t grain, const F &f)
{
	catorch::must(torch_parallel_for(begin, end, grain, [](int64_t b, int64_t e, void *fn) {
		(*static_cast<const F *>(fn))(b, e);
	}, const_cast<F *>(&f)), "parallel_for");
}

inline int get_num_threads()
{
	uint32_t n;
	catorch::must(torch_get_num_threads(&n), "get_num_threads");
	return int(n);
}

inline int get_thread_num()
{
	uint32_t n;
	catorch::must(torch_get_thread_idx(&n), "get_thread_num");
	return int(n);
}

} // namespace at
