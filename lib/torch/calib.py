# SPDX-License-Identifier: Apache-2.0
"""The trusted process that measures what a bracket costs by itself: it touches
what a candidate touches, in the same loop, for a known time."""
import time

import torch

from catorch.proto import PHASE_LOAD
from catorch.shim import Child


class Calib(Child):
    foreign = False

    def do_load(self, req):
        self.phase = PHASE_LOAD
        self.begin(req)
        self.timer = self.env.cuda().Timer() if self.device.type == "cuda" else None
        self.worked = []
        self.out_bytes = [int(n) for n in req["result_bytes"]]
        nbytes = int(req["input_bytes"])
        self.inputs = []
        for which in (0, 1):
            region = self.regions.get(f"in{which}")
            self.inputs.append(region.bytes_at(0, nbytes) if region else None)
        self.start_ops()

    def arguments(self, which):
        return self.inputs[which & 1]

    def call(self, args, which, idle):
        if self.timer:
            return self.on_gpu(args, idle)
        end = time.perf_counter_ns() + idle * 1000
        touched = self.touch(args) if args is not None else 0
        out = [torch.full((n,), touched, dtype=torch.uint8, device=self.device)
               for n in self.out_bytes]
        while time.perf_counter_ns() < end:
            pass
        return out

    def on_gpu(self, args, idle):
        """The same without waiting for the GPU.  Its own work begins with the first
        thing that the GPU is told, so that C holds what everybody pays before it."""
        with self.timer:
            if args is not None:
                args[:args.numel() // 8 * 8].view(torch.int64).sum()
            out = [torch.full((n,), 1, dtype=torch.uint8, device=self.device)
                   for n in self.out_bytes]
            self.timer.work(idle)
        return out

    def own_ns(self, host_ns):
        """On the GPU that of the call before the last: events are read when no clock
        runs, and between two timed calls there is one that is not."""
        if not self.timer:
            return host_ns
        return self.worked[-2] if len(self.worked) > 1 else 0

    def rest(self):
        if self.timer:
            self.worked = [*self.worked[-1:], self.timer.ns()]
        super().rest()

    def touch(self, data):
        """Reads every byte once; the result is of no interest."""
        n = data.numel() // 8 * 8
        return int(data[:n].view(torch.int64).sum()) & 127 if n else 0
