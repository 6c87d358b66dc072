# SPDX-License-Identifier: Apache-2.0
"""A stand-in for torch.utils.cpp_extension, so that what a candidate would build
with load_inline and load is built by the toolkit instead.

A call becomes a request: plain data, named by the SHA-256 of its JSON.  In the dry
run requests are recorded (record.py), later the built modules are handed back for
the same requests.  Packages that `ca-workdir export` makes carry a copy of this
file, so it needs torch only."""
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import types

import torch.utils

NAME = "torch.utils.cpp_extension"
BOTH = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]


class RefusedError(RuntimeError):
    """A request that cannot be carried out, or that nobody has built."""


def strings(value, what):
    value = [value] if isinstance(value, str) else list(value or [])
    if not all(isinstance(v, str) for v in value):
        raise RefusedError(f"{what} must be strings")
    return value


def words(value, what):
    return [w for flag in strings(value, what) for w in flag.split()]


def quoted(text):
    return json.dumps(str(text), ensure_ascii=False)


def bindings(functions, safe):
    if functions is None:
        return []
    if not isinstance(functions, dict):
        functions = {f: f for f in strings(functions, "functions")}
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for name, doc in functions.items():
        fn = f"torch::wrap_pybind_function({name})" if safe else name
        lines.append(f"m.def({quoted(name)}, {fn}, {quoted(doc)});")
    return [*lines, "}"]


def request(name, sources, cflags, cuda_cflags, ldflags, python):
    if not python:
        raise RefusedError("is_python_module=False is not supported")
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise RefusedError("the name of an extension must be an identifier")
    return {"name": name, "sources": sources,
            "cflags": words(cflags, "extra_cflags"),
            "cuda_cflags": words(cuda_cflags, "extra_cuda_cflags"),
            "ldflags": words(ldflags, "extra_ldflags")}


def inline(name, cpp_sources, cuda_sources=None, sycl_sources=None, functions=None,
           extra_cflags=None, extra_cuda_cflags=None, extra_sycl_cflags=None, extra_ldflags=None,
           extra_include_paths=None, build_directory=None, verbose=False, with_cuda=None,
           with_sycl=None, is_python_module=True, with_pytorch_error_handling=True,
           keep_intermediates=True, use_pch=False, no_implicit_headers=False):
    """The files that torch would write."""
    if sycl_sources:
        raise RefusedError("sycl_sources are not supported")
    cpp = strings(cpp_sources, "cpp_sources")
    cuda = strings(cuda_sources, "cuda_sources")
    if not no_implicit_headers:
        cpp = ["#include <torch/extension.h>", *cpp]
        cuda = BOTH + cuda if cuda else []
    cpp += bindings(functions, with_pytorch_error_handling)
    sources = [{"path": "main.cpp", "text": "\n".join(cpp)}]
    if cuda:
        sources.append({"path": "cuda.cu", "text": "\n".join(cuda)})
    return request(name, sources, extra_cflags, extra_cuda_cflags, extra_ldflags,
                   is_python_module)


def source_file(path, root, taken):
    """A file that the candidate has written goes along as text, one of its tree by name."""
    path = os.path.join(root, os.fspath(path))
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        base = os.path.basename(path)
        if base in taken:
            raise RefusedError(f"two sources are named '{base}'")
        taken.add(base)
        return {"path": base, "text": text}
    return {"path": os.path.relpath(path, root)}


def files(root, name, sources, extra_cflags=None, extra_cuda_cflags=None,
          extra_sycl_cflags=None, extra_ldflags=None, extra_include_paths=None,
          build_directory=None, verbose=False, with_cuda=None, with_sycl=None,
          is_python_module=True, is_standalone=False, keep_intermediates=True):
    if is_standalone:
        raise RefusedError("is_standalone=True is not supported")
    taken = set()
    found = [source_file(p, root, taken) for p in
             ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    return request(name, found, extra_cflags, extra_cuda_cflags, extra_ldflags, is_python_module)


def digest(req):
    text = json.dumps(req, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class StandIn(types.ModuleType):
    """What we do not replace comes from the real module, read when first asked for."""

    real = None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.real is None:
            path = os.path.join(os.path.dirname(torch.utils.__file__), "cpp_extension.py")
            spec = importlib.util.spec_from_file_location(NAME + "_real", path)
            self.real = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self.real)
        return getattr(self.real, name)


# Messages about wrong arguments should name what was called.
inline.__qualname__ = "load_inline"
files.__qualname__ = "load"


def install(take, root, note):
    """Requests go to take(request), whose result load_inline and load return; those that
    fail go to note(exception) first.  Files are looked for from root."""
    def guarded(make, *args, **kwargs):
        try:
            return take(make(*args, **kwargs))
        except (RefusedError, TypeError, OSError, UnicodeError) as exc:
            note(exc)
            raise

    def load_inline(*args, **kwargs):
        return guarded(inline, *args, **kwargs)

    def load(*args, **kwargs):
        return guarded(files, root, *args, **kwargs)

    module = StandIn(NAME)
    module.load_inline = load_inline
    module.load = load
    sys.modules[NAME] = module
    torch.utils.cpp_extension = module


def settle_down():
    """A directory of our own for what a candidate writes; its path, or the working
    directory's where nothing can be written."""
    try:
        root = tempfile.mkdtemp()
        os.chdir(root)
    except OSError:
        return os.getcwd()
    os.environ["HOME"] = root
    return root


class Built:
    """Hands back what was built; remembers requests that were not."""

    def __init__(self, path, extensions):
        self.path = path
        self.names = {e["request"]: e["name"] for e in extensions}
        self.modules = {}
        self.failed = None

    def note(self, exc):
        self.failed = self.failed or exc

    def take(self, req):
        key = digest(req)
        if key not in self.names:
            raise RefusedError(f"the extension '{req['name']}' was not built: in its dry run the "
                               "candidate did not ask for it in this form")
        if key not in self.modules:
            name = self.names[key]
            loader = importlib.machinery.ExtensionFileLoader(name, self.path)
            spec = importlib.util.spec_from_file_location(name, self.path, loader=loader)
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            self.modules[key] = module
        return self.modules[key]
