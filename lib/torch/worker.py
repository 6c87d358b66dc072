# SPDX-License-Identifier: Apache-2.0
"""The worker (a candidate's model_new.py) and the baselines (model.py): the same
binding, the same loop."""
import json
import os

import torch

from catorch import inline, launch, nodes, proto, state, table
from catorch.proto import END_BAD_REQUEST, END_CONSTRUCT, PHASE_CONSTRUCT, PHASE_LOAD
from catorch.shim import Child, Fail, failing, load_module, need, read_fd


def source_of(child, req):
    raw = read_fd(child.fd(req["code"]))
    try:
        return raw.decode("utf-8-sig")      # Python passes over a byte order mark too
    except UnicodeDecodeError:
        raise Fail(proto.END_SYNTAX, PHASE_LOAD, "the code is not UTF-8") from None


class Runner(Child):
    """Loads a model, binds its state and runs iterations."""

    model = None
    module_name = "model"
    class_name = "Model"

    def do_load(self, req):
        self.begin(req)
        if "spec" in req:
            req = {**json.loads(read_fd(self.fd(req["spec"]))), **req}
        source = source_of(self, req)
        self.prepare(req)
        module = load_module(self.module_name, source)
        make = need(module, self.class_name)
        self.phase = PHASE_CONSTRUCT
        model = self.construct(make, req)
        self.phase = proto.PHASE_STATE
        self.buffers = [] if req.get("own_state") else \
            state.bind(model, req.get("state") or [], self.regions.get("params"))
        self.phase = proto.PHASE_INPUTS
        self.bind_inputs(req["inputs"])
        self.model = self.finish(model, req)
        self.start_ops()

    def prepare(self, req):
        pass

    def finish(self, model, req):
        return model

    def construct(self, make, req):
        init = req.get("init") or {}
        dec = nodes.Decoder(self.device)
        args = [dec.maker(n)() for n in init.get("args", [])]
        kwargs = {k: dec.maker(n)() for k, n in init.get("kwargs", {}).items()}
        torch.manual_seed(int(req.get("seed", 0)))
        with self.building(req):
            model = failing(END_CONSTRUCT, PHASE_CONSTRUCT, make, *args, **kwargs)
        if not callable(model):
            raise Fail(END_CONSTRUCT, PHASE_CONSTRUCT, f"{self.class_name} cannot be called")
        if isinstance(model, torch.nn.Module):
            train = bool(req.get("own_state"))
            failing(END_CONSTRUCT, PHASE_CONSTRUCT,
                    lambda: model.to(self.device).train(train))
        return model

    def bind_inputs(self, inputs):
        self.sets = []
        for which in (0, 1):
            dec = nodes.SetDecoder(self.device, self.regions.get(f"in{which}"),
                                   inputs["storages"], self.regions.get("slots"), which)
            self.sets.append([dec.maker(n) for n in inputs["args"]])

    def arguments(self, which):
        if which > 1 or self.model is None:
            raise Fail(END_BAD_REQUEST, 0, "an iteration before load, or of a third set")
        return [make() for make in self.sets[which]]

    def call(self, args, which, idle):
        result = self.model(*args)
        if self.buffers:
            state.settle(self.buffers)
        return result


class Worker(Runner):
    module_name = "model_new"
    class_name = "ModelNew"

    object = None
    built = None

    def begin(self, req):
        if req.get("object") is not None:
            self.object = os.dup(self.fd(req["object"]))
        super().begin(req)

    def prepare(self, req):
        form = req.get("form", "light")
        if self.object is None or form == "inline":
            self.built = inline.Built(f"/proc/self/fd/{self.object}", req.get("launchers") or [])
            inline.install(self.built.take, inline.settle_down(), self.built.note)
        else:
            failing(proto.END_SYNTAX, PHASE_LOAD, launch.install, form, self.object,
                    req.get("launchers") or [], self.device)

    def check_built(self, end, phase):
        """A candidate that asks for what was not built has failed, though it may go on."""
        if self.built is not None and self.built.failed is not None:
            raise Fail(end, phase, str(self.built.failed))

    def finish(self, model, req):
        self.check_built(END_CONSTRUCT, PHASE_CONSTRUCT)
        return model

    def call(self, args, which, idle):
        result = super().call(args, which, idle)
        self.check_built(proto.END_RAISED, proto.PHASE_FORWARD)
        return result


class Baseline(Runner):
    compiled = False

    def do_table(self, req):
        """Where the time of a call goes, over the inputs that the last iterations left."""
        self.phase = proto.PHASE_FORWARD
        which, iterations = req.get("set", 0), int(req["iterations"])
        if self.pool is None or not 1 <= iterations <= table.ITERATIONS:
            raise Fail(END_BAD_REQUEST, 0, "a table before load, or of too many iterations")
        self.pool.on()
        try:
            value = table.table(lambda: self.call(self.arguments(which), which, 0), iterations,
                                self.device.type == "cuda", self.compiled)
        finally:
            self.pool.off()
        return self.describe(value)


class Eager(Baseline):
    pass


class Compiled(Baseline):
    compiled = True

    def prepare(self, req):
        self.job.shop.use()

    def finish(self, model, req):
        mode = req.get("mode", "default")
        if mode not in ("default", "max-autotune"):
            raise Fail(END_BAD_REQUEST, PHASE_LOAD, f"unknown mode {mode!r}")
        self.first = True
        return torch.compile(model, mode=None if mode == "default" else mode)

    def call(self, args, which, idle):
        result = super().call(args, which, idle)
        if self.first:
            self.first = False
            self.job.shop.complete()
        return result
