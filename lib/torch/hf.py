# SPDX-License-Identifier: Apache-2.0
"""The role `hf` (turns.py): makes tasks of the modules of transformers, each a file of its own.

`list` tells the package's version too.  A draft is {"code", "bytes", "batches", "hash"}: BATCH
in the code stands for a number, with each of which inputs take so many bytes; the hash is the
graph's.  Of it becomes {"code", "hash", "ms"}.

A module is built from a small configuration, cut out of its source (extract.py), and the file
has to compute what the module in the package computes.  Attention gets a causal mask."""
import ast
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys

import torch

from catorch import extract, grow
from catorch.live import No
from catorch.pieces import finite, first_tensor, load
from catorch.proto import END_BAD_REQUEST, END_UNSUPPORTED, PHASE_FORWARD
from catorch.shim import Fail
from catorch.task import trace
from catorch.turns import ALONE, Maker

SMALL = {
    "hidden_size": 256, "d_model": 256, "n_embd": 256, "dim": 256, "embed_dim": 256,
    "intermediate_size": 512, "ffn_dim": 512, "d_ff": 512, "n_inner": 512,
    "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "moe_intermediate_size": 256,
    "num_attention_heads": 8, "n_head": 8, "num_heads": 8, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "d_kv": 32,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "vocab_size": 1024,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "max_position_embeddings": 512, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "attention_dropout": 0.0, "hidden_dropout": 0.0, "dropout": 0.0, "activation_dropout": 0.0,
}
SEQUENCE = 128
BATCH = "__BATCH__"
LARGEST = 1 << 14               # of a batch
FLOATS = {"hidden_states", "hidden_state", "x", "input", "inputs", "input_tensor", "residual",
          "embeddings", "features", "inputs_embeds", "hidden", "query_states", "image_features"}
MASKS = {"attention_mask", "causal_mask", "mask"}


def root():
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        raise Fail(END_UNSUPPORTED, PHASE_FORWARD, f"{sys.executable} has no transformers: pip "
                   "install it there, or name a Python with torch and it in CA_PYTHON")
    return spec.submodule_search_locations[0]


def body_key(node):
    """Equal for classes that differ in the name of their model only.  Changes the tree."""
    name = node.name
    text = ast.dump(extract.Strip().visit(node))
    model = re.match("[A-Z]+[a-z0-9]*", name)
    return hashlib.sha256((text.replace(model[0], "") if model else text).encode()).digest()


def classes():
    """(names that are worth a try, [name, why] of the others) of all models."""
    names, skipped, bodies = [], [], {}
    models = os.path.join(root(), "models")
    for model in sorted(os.listdir(models)):
        path = os.path.join(models, model, f"modeling_{model}.py")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as source:
            tree = ast.parse(source.read())
        for node in tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            name, bases = f"{model}.{node.name}", {extract.last_name(b) for b in node.bases}
            if not any(isinstance(n, ast.FunctionDef) and n.name == "forward" for n in node.body):
                continue
            if not bases & {"Module", "GradientCheckpointingLayer"}:
                skipped.append([name, "is a whole model, or inherits from another class"])
                continue
            if not knows(node):
                skipped.append([name, "forward wants an argument that is not known"])
                continue
            other = bodies.setdefault(body_key(node), name)
            if other != name:
                skipped.append([name, "has another's body"])
            else:
                names.append(name)
    return names, skipped


def knows(node):
    """Whether forward can be called with what is known here."""
    forward = next(n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    args = forward.args.args[1:]
    needed = [a.arg for a in args[:len(args) - len(forward.args.defaults)]]
    return set(needed) <= FLOATS | MASKS | {"position_embeddings"}


class Spy:
    """A configuration that remembers what it was asked for."""

    def __init__(self, config):
        self.__dict__["_real"], self.__dict__["_asked"] = config, {}

    def __getattr__(self, name):
        value = getattr(self._real, name)
        self._asked[name] = value
        return value


def small(config):
    for name, value in SMALL.items():
        if isinstance(getattr(config, name, None), (int, float)):
            try:
                setattr(config, name, value)
            except Exception:
                continue
    config._attn_implementation = "eager"
    return config


def config_of(cls):
    """The small configuration that the class's own module speaks of; None: it takes none."""
    hint = inspect.signature(cls.__init__).parameters.get("config")
    if hint is None:
        return None
    kind = hint.annotation
    home = importlib.import_module(cls.__module__)
    if isinstance(kind, str):
        kind = getattr(home, kind, None)
    if not isinstance(kind, type) or kind is hint.empty:
        kinds = [v for k, v in vars(home).items() if k.endswith("Config") and
                 isinstance(v, type) and k not in ("PreTrainedConfig", "PretrainedConfig")]
        if len(kinds) != 1:
            raise No("its configuration is not known")
        kind = kinds[0]
    return small(kind())


def init_words(cls, config):
    """The arguments of the constructor, by name."""
    words = {}
    for name, p in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if name == "config":
            words[name] = Spy(config)
        elif p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        elif name in ("layer_idx", "layer_id", "layer_index"):
            words[name] = 0
        elif name in SMALL:
            words[name] = SMALL[name]
        elif name in ("in_features", "out_features", "in_dim", "out_dim", "input_dim",
                      "output_dim", "hidden_dim", "channels", "in_channels", "out_channels"):
            words[name] = 256
        else:
            raise No("its constructor wants an argument that is not known")
    return words


def literal(value):
    try:
        return ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError, TypeError):
        return False


class Draft:
    """A class with what it is constructed and called with, and the file of it."""

    def __init__(self, name):
        model, _, self.name = name.partition(".")
        self.module = f"transformers.models.{model}.modeling_{model}"
        self.cls = getattr(importlib.import_module(self.module), self.name)
        self.config = config_of(self.cls)
        self.text = extract.cut(self.module, self.name)
        self.width = next((getattr(self.config, n) for n in ("hidden_size", "d_model", "n_embd")
                           if isinstance(getattr(self.config, n, None), int)), 256)

    def build(self):
        self.words = init_words(self.cls, self.config)
        return self.cls(**self.words).eval()

    def arguments(self, wide, shape):
        """(parameters in order, expressions of inputs, arguments, whether there is a mask)."""
        names, inputs, args, mask = [], [], [], False
        head = getattr(self.config, "head_dim", None) or wide // 8
        for name, p in list(inspect.signature(self.cls.forward).parameters.items())[1:]:
            if name in FLOATS and (p.default is p.empty or not inputs):
                names.append(name)
                inputs.append(f"torch.randn({shape})")
                args.append(f"{name}={name}")
            elif name == "position_embeddings":
                names += ["cos", "sin"]
                inputs += [f"torch.{f}(torch.rand(1, {SEQUENCE}, {head}) * 6.28)"
                           for f in ("cos", "sin")]
                args.append("position_embeddings=(cos, sin)")
            elif name in MASKS and re.search("Att|Layer|Block", self.name):
                mask = True
                args.append(f"{name}=self.mask")
            elif p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise No("forward wants an argument that is not known")
        if not inputs:
            raise No("forward takes no tensor that is known")
        return names, inputs, args, mask

    def shapes(self):
        """Shapes of inputs to try, the batch as B."""
        for wide in dict.fromkeys((self.width, 256, 512)):
            yield wide, f"B, {SEQUENCE}, {wide}"
        yield self.width, f"B, {self.width}, 16, 16"
        yield self.width, "B, 3, 64, 64"

    def render(self, batch, wide, shape):
        names, inputs, args, mask = self.arguments(wide, shape.replace("B", str(batch), 1))
        words = {k: f"Config({', '.join(f'{n}={v!r}' for n, v in sorted(w._asked.items()))})"
                 if isinstance(w, Spy) else repr(w) for k, w in self.words.items()}
        for w in self.words.values():
            if isinstance(w, Spy) and not all(map(literal, w._asked.values())):
                raise No("its configuration holds more than numbers and words")
        made = ", ".join(f"{k}={v}" for k, v in words.items())
        causal = (f"        hidden = torch.full(({SEQUENCE}, {SEQUENCE}), float('-inf')).triu(1)\n"
                  "        self.register_buffer('mask', hidden[None, None])\n") if mask else ""
        config = "from types import SimpleNamespace as Config\n" if "Config(" in made else ""
        body = "".join(f"        {text},\n" for text in inputs)
        return (config + self.text + "\n\nclass Model(nn.Module):\n    def __init__(self):\n"
                f"        super().__init__()\n        self.inner = {self.name}({made})\n{causal}\n"
                f"    def forward(self, {', '.join(names)}):\n"
                f"        result = self.inner({', '.join(args)})\n"
                "        return result[0] if isinstance(result, (tuple, list)) else result\n\n\n"
                f"def get_inputs():\n    return [\n{body}    ]\n\n\n"
                "def get_init_inputs():\n    return []\n")


def same(draft, real, code):
    """Whether the file computes what the package's module does."""
    model, get_inputs = load(code)
    model.inner.load_state_dict(real.state_dict())
    args = get_inputs()
    mine = first_tensor(model(*args))[0]
    model.inner = real
    whole = first_tensor(model(*args))[0]
    if mine is None or whole is None or not mine.numel():
        raise No("its result is no tensor")
    if not finite(mine):
        raise No("too little of its result is finite")
    return mine.shape == whole.shape and torch.allclose(mine, whole, 1e-4, 1e-4, equal_nan=True)


def sizes(code, most):
    """What inputs of a batch of one take, and batches that are not too large."""
    _, get_inputs = load(code)
    each = max(sum(t.numel() * t.element_size() for t in get_inputs()), 1)
    batches = [1 << i for i in range(LARGEST.bit_length())]
    return each, [n for n in batches if n * each <= most] or [1]


class Hf(Maker):
    def ready(self):
        root()
        importlib.import_module("transformers.modeling_utils")

    def do_list(self, req):
        names, skipped = classes()
        from importlib.metadata import version
        return self.describe({"names": names, "skipped": skipped,
                              "version": version("transformers")})

    def prepare(self, name, most):
        if not re.fullmatch(r"\w+\.\w+", name):
            raise Fail(END_BAD_REQUEST, PHASE_FORWARD, "no name of a class")
        try:
            draft = Draft(name)
            real, first = draft.build(), None
        except extract.Needs as exc:
            raise No(f"needs {exc}") from None
        for wide, shape in draft.shapes():
            try:
                draft.render(1, wide, shape)
                real = draft.build()    # asks for what forward asks for, too
                self.call(draft, real, wide, shape)
                code = draft.render(1, wide, shape)
                if not same(draft, real, code):
                    raise No("alone it computes something else")
                each, batches = sizes(code, most)
                model, get_inputs = load(draft.render(2, wide, shape))
                return {"drafts": [{"code": draft.render(BATCH, wide, shape), "bytes": each,
                                    "batches": batches,
                                    "hash": trace(model, get_inputs())["hash"]}]}
            except No:
                raise
            except Exception as exc:
                first = first or exc
        raise first

    def call(self, draft, real, wide, shape):
        """The package's own module, so that its configuration hears all questions."""
        names, inputs, args, mask = draft.arguments(wide, shape.replace("B", "1", 1))
        space = {"torch": torch, "real": real}
        space.update(zip(names, (eval(text, {"torch": torch}) for text in inputs), strict=True))
        space["mask"] = torch.full((SEQUENCE, SEQUENCE), float("-inf")).triu(1)[None, None]
        eval(f"real({', '.join(args)})".replace("self.mask", "mask"), space)

    def grow(self, draft, ms):
        rungs = [grow.Rung(n * draft["bytes"], draft["code"].replace(BATCH, str(n)))
                 for n in draft["batches"]]
        yield ALONE
        at, took = grow.Grower(self.device, ms).grow(rungs)
        return {"code": rungs[at].code, "ms": took, "hash": draft["hash"]}
