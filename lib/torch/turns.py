# SPDX-License-Identifier: Apache-2.0
"""Roles that make things and need the device to themselves only while their clocks run.

  {"op":"make",...}   {"hold":H}, or what was made
  {"op":"go"}         the same, once the lease that was asked for is there"""
import gc
import warnings

import torch

from catorch.proto import END_BAD_REQUEST, PHASE_FORWARD
from catorch.shim import Child, Fail

NONE, SHARED, ALONE = 0, 1, 2   # as device_hold takes them


def give_back():
    """Memory of a GPU that others may need; those who ask for it may be many."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


class Maker(Child):
    ready = False
    making = None

    def make(self, req):
        """A generator: yields the lease it needs, and returns what was made."""
        raise NotImplementedError

    def do_make(self, req):
        if not self.ready:
            self.begin(req)
            warnings.simplefilter("ignore")
            self.ready = True
        self.making = self.make(req)
        return self.do_go(req)

    def do_go(self, req):
        if self.making is None:
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, "nothing is being made")
        self.phase = PHASE_FORWARD
        try:
            return self.describe({"hold": next(self.making)})
        except StopIteration as made:
            self.making = None
            return self.describe(made.value)
        except BaseException:
            self.making = None
            raise
        finally:
            if self.making is None:
                give_back()
