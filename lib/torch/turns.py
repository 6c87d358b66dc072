# SPDX-License-Identifier: Apache-2.0
"""Roles that make things in two steps, of which only the second needs the device.

  {"op":"list"}                    {"names", "skipped": [[name, why], ...]}
  {"op":"ready"}                   what takes long for the first time is done
  {"op":"prepare","name":N,"bytes":B}   {"drafts": [...], "why"}: on the CPU
  {"op":"grow","draft":D,"ms":M}   {"hold":H}, or what was made of the draft in file D
  {"op":"go"}                      the same, once the lease that was asked for is there
  {"op":"rest"}                    gives memory back that others may need

What cannot be made is told as well: {"why", "oom", "broken"}, the last where the process
should not be asked again."""
import gc
import json
import logging
import warnings

import torch

from catorch.grow import broken
from catorch.live import No
from catorch.proto import END_BAD_REQUEST, PHASE_FORWARD
from catorch.shim import Child, Fail, is_oom, read_fd, tail_of

SHARED, ALONE = 1, 2            # as device_hold takes them


def give_back():
    """Memory of a GPU that others may need; those who ask for it may be many."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def why(exc):
    if isinstance(exc, No):
        return str(exc)
    last = (tail_of(exc).strip().splitlines() or [""])[-1]
    return f"raises {type(exc).__name__}: {last[:120]}"


class Maker(Child):
    begun = False
    growing = None

    def ready(self):
        """Imports what `prepare` needs."""

    def prepare(self, name, most):
        """Drafts, the best one first; No where there is none."""
        raise NotImplementedError

    def grow(self, draft, ms):
        """A generator: yields the lease it needs, and returns what was made."""
        raise NotImplementedError

    def start(self, req):
        if not self.begun:
            self.begin(req)
            warnings.simplefilter("ignore")
            logging.disable(logging.ERROR)      # of fake tensors, on sizes that do not fit
            self.begun = True
        self.phase = PHASE_FORWARD

    def do_ready(self, req):
        self.start(req)
        self.ready()
        return {}

    def do_prepare(self, req):
        self.start(req)
        self.ready()
        torch.manual_seed(0)
        try:
            return self.describe(self.prepare(req["name"], int(req["bytes"])))
        except Fail:
            raise
        except Exception as exc:
            return self.describe({"drafts": [], "why": why(exc)})

    def do_grow(self, req):
        self.start(req)
        torch.manual_seed(0)
        self.growing = self.grow(json.loads(read_fd(self.fd(req["draft"]))), float(req["ms"]))
        return self.do_go(req)

    def do_go(self, req):
        if self.growing is None:
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, "nothing is being made")
        self.phase = PHASE_FORWARD
        try:
            told = {"hold": next(self.growing)}
        except StopIteration as made:
            self.growing, told = None, made.value
        except Exception as exc:
            self.growing = None
            told = {"why": why(exc), "oom": is_oom(exc), "broken": broken(exc)}
            del exc
            if told["oom"]:
                give_back()
        return self.describe(told)

    def do_rest(self, req):
        give_back()
        return {}
