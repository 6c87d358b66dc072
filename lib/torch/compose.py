# SPDX-License-Identifier: Apache-2.0
"""A task file that somebody else wrote, held to what stacks of pieces are held to (live.py).
Its operators are those calls in forward that compute."""
import ast
import operator

import torch
import torch.fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

from catorch import live
from catorch.live import No
from catorch.oracle import split_init
from catorch.shim import Fail, load_module
from catorch.task import Recorder, trace

MODULES = {"torch", "math", "typing", "functools", "itertools", "collections", "dataclasses",
           "__future__"}


def check_text(code):
    """That the file is Python and needs nothing but torch."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise No("is no Python") from None
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else \
            [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0] not in MODULES for name in names):
            raise No("imports what is not torch's")
    names = [n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    if names.count("Model") != 1 or names.count("get_inputs") != 1:
        raise No("defines not one Model and one get_inputs")


class Steps(torch.fx.Interpreter):
    """Runs the graph of forward, and without one of its operators if asked to: what that one
    gets first goes on in its place."""

    def __init__(self, traced, without, shaken):
        super().__init__(traced)
        self.without = without
        self.shaken = shaken
        self.found, self.results = [], []

    def run_node(self, n):
        if n is self.without:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return next(v for v in [*args, *kwargs.values()] if isinstance(v, torch.Tensor))
        with Recorder() as seen:
            value = super().run_node(n)
        if seen.names and n.op.startswith("call_"):
            self.found.append(n)
            self.results.append(value)
            # What is returned stays: nobody works on it.
            if self.shaken and any(user.op != "output" for user in n.users):
                return live.shake(value)
        return value


class Graph:
    """What live.py asks of a chain."""

    def __init__(self, code):
        space = vars(load_module("model", code))
        args, kwargs = split_init(space.get("get_init_inputs", list)())
        self.model = space["Model"](*args, **kwargs).eval()
        self.get_inputs = space["get_inputs"]
        try:
            self.traced = torch.fx.symbolic_trace(self.model)
        except Exception:
            raise No("decides by values, or cannot be traced") from None
        self.stack = []

    def inputs(self):
        values = self.get_inputs()
        if not isinstance(values, (list, tuple)) or not values or \
                not all(isinstance(v, torch.Tensor) for v in values):
            raise No("gives inputs that are no list of tensors")
        return list(values)

    def first_user(self, i):
        return 0                # is anybody's guess

    def run(self, inputs, without=None, shaken=False, known=()):
        """Whatever is known is not used: what lies between operators is part of the graph."""
        steps = Steps(self.traced, None if without is None else self.stack[without], shaken)
        # Without an operator the next one may write to what that one was given.
        whole = steps.run(*(inputs if without is None else [t.clone() for t in inputs]))
        if without is None:
            self.stack = steps.found
        return [*steps.results, whole]

    def name(self, node):
        """How the operator is known."""
        if node.op == "call_module":
            return f"torch.nn.{type(self.traced.get_submodule(node.target)).__name__}"
        if node.op == "call_method":
            return f"torch.Tensor.{node.target}"
        name = getattr(node.target, "__name__", str(node.target))
        if any(getattr(home, name, None) is node.target for home in (operator, torch)):
            return f"torch.{name.strip('_')}"
        where = "torch.nn.functional" if getattr(F, name, None) is node.target else \
            getattr(node.target, "__module__", None) or "torch"
        return f"{where}.{name}"


def loaded(code):
    try:
        return Graph(code)
    except No:
        raise
    except Fail as exc:         # the text ends in what it raises
        why = str(exc).strip().rsplit("\n", 1)[-1].partition(":")[0]
    except Exception as exc:
        why = type(exc).__name__
    raise No(f"raises {why} before it is called")


def prove_shapes(code, count, most):
    """On fake tensors: nothing is computed and nothing large is held.  No count: any."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        graph = loaded(code)
        inputs = graph.inputs()
        try:
            results = graph.run(inputs)
        except Exception:
            raise No("shapes do not fit") from None
    if count and len(graph.stack) != count:
        raise No("has another number of operators than asked for")
    if any(t.numel() * t.element_size() > most for t in [*inputs, *map(live.first, results)]):
        raise No("a result is too large")


def check(code, count, most, device):
    """What the task is made of, or No."""
    check_text(code)
    prove_shapes(code, count, most)
    with device:
        graph = loaded(code)
        graph.model.to(device)
        inputs, others = graph.inputs(), graph.inputs()
    results = live.check_calls(graph, inputs, others)
    with Recorder() as seen:
        graph.model(*inputs)
    if live.differ(live.first(results[-1]), live.first(graph.run(inputs)[-1]), 1):
        raise No("two calls on the same inputs differ")
    live.check_pieces(graph, inputs, results)
    live.check_inputs(graph, inputs, others, results)
    live.check_rounding(graph, inputs, results)
    found = trace(graph.model, inputs)
    return {"parts": [graph.name(n) for n in graph.stack], "hash": found["hash"],
            "ops": seen.names}
