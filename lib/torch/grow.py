# SPDX-License-Identifier: Apache-2.0
"""Sizes with which a call takes as long as it should.  They are the rungs of a ladder, small to
large, which was built before the device is needed; few of them are tried on it."""
import math
from typing import NamedTuple

from catorch import pieces
from catorch.clock import Clock
from catorch.live import No

CALLS, SURE = 3, 15
LONG_S = 0.3                    # one such call is enough
START = 1 << 20                 # bytes of inputs that nothing takes long for
STRIDE = 16                     # times as many at once, at most
OVER = 4                        # times what is wanted is too much, where there is less
TRIES = 8
SLOPES = 0.25, 2.0              # of times over bytes, both as logarithms
CHECKED = 256 << 20             # bytes of inputs that are enough to see what is dead


class Rung(NamedTuple):
    nbytes: int                 # of its inputs
    code: str


def broken(exc):
    """Whether a GPU's context is of no use after this."""
    return "CUDA error" in str(exc) and "out of memory" not in str(exc)


class Grower:
    def __init__(self, device, ms):
        self.device = device
        self.clock = Clock(device)
        self.ms = ms

    def time(self, rung, calls=CALLS):
        """Milliseconds of the quickest call; raises what the call raises."""
        with self.device:
            model, make = pieces.load(rung.code)
            args = make()
        best = float("inf")
        for _ in range(calls):
            took, result = self.clock.time(lambda: model(*args))
            best = min(best, took)
            if best > LONG_S:
                break
        value, _ = pieces.first_tensor(result)
        if value is None or not value.numel():
            raise No("its result is no tensor")
        if not pieces.finite(value):
            raise No("too little of its result is finite")
        return best * 1e3

    def guess(self, rungs, took, at):
        """How many bytes it should take, from the rung just tried and the nearest other one."""
        here = rungs[at].nbytes
        others = [i for i in took if rungs[i].nbytes != here]
        slope = 1.0 if took[at] >= self.ms else SLOPES[0]
        if others:
            near = min(others, key=lambda i: abs(i - at))
            slope = math.log(took[at] / took[near]) / math.log(here / rungs[near].nbytes)
        slope = min(max(slope, SLOPES[0]), SLOPES[1])
        factor = (1.1 * self.ms / took[at]) ** (1 / slope)
        return here * min(max(factor, 1 / STRIDE), STRIDE)

    def find(self, rungs):
        """The smallest rung that was found to take long enough, else the largest that works,
        and what was found: milliseconds by rung."""
        took, why = {}, None
        low, high = -1, len(rungs)      # too quick up to low; from high on enough, or no use
        enough = None
        at = next((i for i, r in enumerate(rungs) if r.nbytes >= START), len(rungs) - 1)
        for _ in range(TRIES):
            try:
                took[at] = self.time(rungs[at])
            except Exception as exc:
                if broken(exc):
                    raise
                why, high = exc.with_traceback(None), at    # it holds tensors
                wish = None
            else:
                if self.ms <= took[at] <= OVER * self.ms:
                    return at, took
                if took[at] < self.ms:
                    low = at
                else:
                    high = enough = at
                wish = self.guess(rungs, took, at)
            between = range(low + 1, high)
            if not between:
                break
            at = between[len(between) // 2] if wish is None else \
                next((i for i in between if rungs[i].nbytes >= wish), between[-1])
        if not took:
            raise why
        return low if enough is None else enough, took

    def grow(self, rungs):
        """The rung, by its number, and its milliseconds."""
        at, took = self.find(rungs)
        ms = min(took[at], self.time(rungs[at], SURE))
        if ms < self.ms <= took[at] and at + 1 < len(rungs):
            at, ms = at + 1, self.time(rungs[at + 1], SURE)
        if ms < self.ms / 3:
            raise No(f"with the largest inputs that fit it takes {ms:.2g} ms")
        return at, ms


def checked(rungs, at):
    """The rung to check in the place of this one: not more than is needed."""
    while at and rungs[at].nbytes > CHECKED:
        at -= 1
    return at
