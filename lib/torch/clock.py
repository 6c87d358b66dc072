# SPDX-License-Identifier: Apache-2.0
"""How long calls take, in a process that times itself: for choosing sizes and tasks, not for
judging.  On the CPU what other processes took of it meanwhile does not count."""
import time

import torch


class Clock:
    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.threads = torch.get_num_threads()

    def time(self, call):
        """Seconds of one call, and its result."""
        if self.cuda:
            return self.time_cuda(call)
        wall, own, all_ = time.perf_counter(), time.thread_time(), time.process_time()
        result = call()
        all_ = (time.process_time() - all_) / self.threads
        own = time.thread_time() - own
        # The calling thread takes part in all that is parallel.  Who sleeps computes nothing.
        return max(min(time.perf_counter() - wall, max(own, all_)), 1e-7), result

    def time_cuda(self, call):
        torch.cuda.synchronize()
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        ends[0].record()
        result = call()
        ends[1].record()
        torch.cuda.synchronize()
        return ends[0].elapsed_time(ends[1]) / 1e3, result
