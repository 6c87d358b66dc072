# SPDX-License-Identifier: Apache-2.0
"""Cuts a class out of a package's sources together with all that it needs, as text that
runs alone with nothing but torch and the standard library.  Nothing of it is run here."""
import ast
import builtins
import functools
import importlib.util
import sys

MOST_LINES = 600
MOST_PARTS = 60
# Decorators that change what is computed; all others are left out.
KEPT = {"staticmethod", "classmethod", "property", "cached_property", "setter", "no_grad",
        "dataclass"}
# What stands for parts that would bring the whole package along.
STAND_INS = {
    "GradientCheckpointingLayer": "from torch.nn import Module as GradientCheckpointingLayer",
    "logger": "class logger:\n"
              "    info = warning = warning_once = staticmethod(lambda *args, **kwargs: None)",
    "ALL_ATTENTION_FUNCTIONS":
        "class ALL_ATTENTION_FUNCTIONS:\n"
        "    get_interface = staticmethod(lambda name, default=None: default)",
    "is_torchdynamo_compiling":
        "from torch.compiler import is_compiling as is_torchdynamo_compiling",
    "is_tracing": "def is_tracing(*args):\n    return torch.compiler.is_compiling()",
    "ACT2FN":
        "ACT2FN = {\n"
        "    'gelu': nn.GELU(),\n"
        "    'gelu_10': lambda x: F.gelu(x).clamp(-10, 10),\n"
        "    'gelu_accurate': nn.GELU(approximate='tanh'),\n"
        "    'gelu_fast': nn.GELU(approximate='tanh'),\n"
        "    'gelu_new': nn.GELU(approximate='tanh'),\n"
        "    'gelu_python': nn.GELU(),\n"
        "    'gelu_python_tanh': nn.GELU(approximate='tanh'),\n"
        "    'gelu_pytorch_tanh': nn.GELU(approximate='tanh'),\n"
        "    'hardswish': nn.Hardswish(),\n"
        "    'laplace': lambda x: 0.5 + 0.5 * torch.erf((x - 0.707107) / (0.282095 * 2 ** 0.5)),\n"
        "    'leaky_relu': nn.LeakyReLU(),\n"
        "    'linear': nn.Identity(),\n"
        "    'mish': nn.Mish(),\n"
        "    'quick_gelu': lambda x: x * torch.sigmoid(1.702 * x),\n"
        "    'relu': nn.ReLU(),\n"
        "    'relu2': lambda x: F.relu(x).square(),\n"
        "    'relu6': nn.ReLU6(),\n"
        "    'sigmoid': nn.Sigmoid(),\n"
        "    'silu': nn.SiLU(),\n"
        "    'sqrtsoftplus': lambda x: F.softplus(x).sqrt(),\n"
        "    'swish': nn.SiLU(),\n"
        "    'tanh': nn.Tanh(),\n"
        "}",
}
for _name in ("Cache", "DynamicCache", "EncoderDecoderCache", "StaticCache"):
    STAND_INS[_name] = f"class {_name}:\n    pass"
HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn, Tensor\n"
COMMON = {"torch", "nn", "F", "Tensor"}


class Needs(Exception):
    """Why a class cannot stand alone."""


class File:
    """What a module's source defines and imports at its top."""

    def __init__(self, module):
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            raise Needs(f"the source of {module}")
        with open(spec.origin, encoding="utf-8") as source:
            tree = ast.parse(source.read())
        self.package = module if spec.submodule_search_locations else module.rpartition(".")[0]
        self.defined, self.imported = {}, {}
        self.add(tree.body)

    def add(self, body):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.defined[target.id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.defined[node.target.id] = node
            elif isinstance(node, ast.Import):
                for a in node.names:
                    whole = a.name if a.asname else a.name.split(".")[0]
                    self.imported[a.asname or whole] = (whole, None)
            elif isinstance(node, ast.ImportFrom):
                self.add_from(node)
            elif isinstance(node, (ast.If, ast.Try)):
                self.add(node.body)

    def add_from(self, node):
        module = node.module or ""
        if node.level:
            base = self.package.split(".")
            base = base[:len(base) - node.level + 1]
            module = ".".join(base + ([module] if module else []))
        for a in node.names:
            self.imported[a.asname or a.name] = (module, a.name)


@functools.lru_cache(maxsize=4096)
def file_of(module):
    return File(module)


class Strip(ast.NodeTransformer):
    """Takes annotations, docstrings and most decorators away."""

    def function(self, node):
        self.generic_visit(node)
        node.returns = None
        args = node.args
        for a in [*args.args, *args.posonlyargs, *args.kwonlyargs, args.vararg, args.kwarg]:
            if a is not None:
                a.annotation = None
        return self.bare(node)

    def bare(self, node):
        node.decorator_list = [d for d in node.decorator_list if last_name(d) in KEPT]
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    visit_FunctionDef = function

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        return self.bare(node)

    def visit_AnnAssign(self, node):
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def last_name(node):
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def names_in(node):
    return dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


class Cut:
    def __init__(self):
        self.parts = []         # texts, what is needed first
        self.lines = 0
        self.done = {}          # name: where it comes from

    def want(self, module, name):
        """Makes `name`, as `module` knows it, known to the text."""
        if name in COMMON or hasattr(builtins, name):
            return
        if name in STAND_INS:
            if self.done.setdefault(name, "") == "" and STAND_INS[name] not in self.parts:
                self.parts.append(STAND_INS[name])
            return
        here = file_of(module)
        if name in here.defined:
            self.define(module, name, here.defined[name])
        elif name in here.imported:
            self.follow(name, *here.imported[name])

    def follow(self, name, module, original):
        top = module.split(".")[0]
        if top in sys.stdlib_module_names or top == "torch":
            if original is None:
                text = f"import {module}" + (f" as {name}" if name != module else "")
            else:
                text = f"from {module} import {original}" + (
                    f" as {name}" if name != original else "")
            self.once(name, text, text)
        elif top != "transformers" or original is None:
            raise Needs(f"{name} of {module}")
        else:
            self.want(module, original)
            if original != name:
                self.once(name, f"{module}:{original}", f"{name} = {original}")

    def once(self, name, where, text):
        if name in self.done:
            if self.done[name] != where:
                raise Needs(f"two things called {name}")
            return
        self.done[name] = where
        self.parts.append(text)

    def define(self, module, name, node):
        where = f"{module}:{name}"
        if name in self.done:
            if self.done[name] != where:
                raise Needs(f"two things called {name}")
            return
        self.done[name] = where
        if len(self.done) > MOST_PARTS:
            raise Needs(f"more than {MOST_PARTS} definitions")
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if last_name(base) in ("PreTrainedModel", "ModelOutput", "PreTrainedConfig"):
                    raise Needs(last_name(base))
        node = ast.fix_missing_locations(Strip().visit(ast.parse(ast.unparse(node)).body[0]))
        for other in names_in(node):
            if other != name:
                self.want(module, other)
        text = ast.unparse(node)
        self.lines += text.count("\n") + 1
        if self.lines > MOST_LINES:
            raise Needs(f"more than {MOST_LINES} lines")
        self.parts.append(text)


def cut(module, name):
    """The text that defines class `name` of `module`."""
    work = Cut()
    work.want(module, name)
    if not work.parts:
        raise Needs(f"{name}, which {module} does not define")
    return HEAD + "\n\n" + "\n\n\n".join(work.parts) + "\n"
