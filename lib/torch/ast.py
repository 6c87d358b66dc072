# SPDX-License-Identifier: Apache-2.0
"""Parses Python files into trees for lib/ast, in a process of its own.

    python3 -I ast.py FD

A request on FD is a length (u32, little endian) and so many bytes of source.
The answer is four u32 (kind, bytes of names, bytes of nodes, 0) and then:

    kind 0  the names of labels that were not used before, each with an LF, and the nodes in
            pre-order, three u16 each: label, number of children, label in the normalised
            tree.  Labels are numbered from 1.  A node whose normalised label is 0 is
            absent there, with all below it.
    kind 1  what is wrong with the source, as names

The normalised tree has no docstrings and other bare constants, no `pass`, no `x = x`, no
annotations; an attribute is told from others by its name (so relu is not tanh) unless
it is one of self's, and so is a name that was imported.  No code is run.
"""
import array
import ast
import resource
import socket
import struct
import sys
import warnings

MEMORY = 4 << 30
DEPTH = 900                     # of nodes; the paper's own tool gives up at about 1000
HEAD = struct.Struct("<IIII")
SIZE = struct.Struct("<I")
MAX_FRESH = 30000
MAX_NODES = 20000               # as in store.h
ANNOTATION = {"annotation", "returns"}


class Labels:
    """Numbers of names.  No file brings more than MAX_FRESH, and the tool starts a new
    process when it has seen that many, so that the numbers last."""

    def __init__(self):
        self.number = {}
        self.fresh = []

    def get(self, name, fallback=None):
        n = self.number.get(name)
        if n is None:
            if fallback and len(self.fresh) >= MAX_FRESH:
                return fallback
            n = self.number[name] = len(self.number) + 1
            self.fresh.append(name)
        return n


LABELS = Labels()
# class -> (label, fields)
SHAPES = {}
# Fields that never hold nodes; looking at them costs time.
PLAIN = {"id", "attr", "arg", "module", "level", "type_comment", "kind", "is_async", "simple",
         "asname", "conversion", "rest"}


def shape_of(cls):
    shape = SHAPES.get(cls)
    if shape is None:
        shape = SHAPES[cls] = (LABELS.get(cls.__name__),
                                tuple(f for f in cls._fields if f not in PLAIN))
    return shape


def is_idle(stmt):
    """Statements that a copy may gain or lose."""
    if isinstance(stmt, ast.Pass):
        return True
    if isinstance(stmt, ast.Expr):
        return isinstance(stmt.value, ast.Constant)
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
        to = stmt.targets[0]
        return isinstance(to, ast.Name) and isinstance(stmt.value, ast.Name) and \
            to.id == stmt.value.id
    return False


class Walk:
    def __init__(self):
        self.nodes = array.array("H")
        self.imported = set()

    def normal(self, node, label):
        """The label in the normalised tree."""
        cls = node.__class__
        if cls is ast.Attribute:
            on = node.value
            if on.__class__ is ast.Name and on.id == "self":
                return label
            return LABELS.get("Attribute." + node.attr, label)
        if cls is ast.Name:
            return LABELS.get("Name." + node.id, label) if node.id in self.imported else label
        if cls is ast.AnnAssign:
            return LABELS.get("Assign")
        if cls is ast.ImportFrom:
            self.imported.update(a.asname or a.name for a in node.names)
            return label
        return 0 if is_idle(node) else label

    def add(self, node, normal=True, depth=0):
        if depth > DEPTH:
            raise RecursionError
        shape = SHAPES.get(node.__class__) or shape_of(node.__class__)
        label, fields = shape
        nodes = self.nodes
        at = len(nodes)
        if at >= 3 * MAX_NODES:
            raise ValueError("too long")
        own = label
        if not normal:
            own = 0
        elif node.__class__ in SPECIAL:
            own = self.normal(node, label)
        nodes.append(label)
        nodes.append(0)
        nodes.append(own)
        count = 0
        depth += 1
        for field in fields:
            value = getattr(node, field, None)
            if value.__class__ is list:
                for v in value:
                    if isinstance(v, ast.AST):
                        count += 1
                        self.add(v, own != 0, depth)
            elif isinstance(value, ast.AST):
                count += 1
                self.add(value, own != 0 and field not in ANNOTATION, depth)
        nodes[at + 1] = count


SPECIAL = {ast.Attribute, ast.Name, ast.AnnAssign, ast.ImportFrom, ast.Pass, ast.Expr, ast.Assign}


def parse(source):
    """(names, nodes) or (text, None)."""
    try:
        tree = ast.parse(source.decode(), "model.py")
        walk = Walk()
        walk.add(tree)
    except SyntaxError as exc:
        return f"line {exc.lineno}: {exc.msg}".encode("utf-8", "replace")[:500], None
    except UnicodeDecodeError:
        return b"not UTF-8", None
    except ValueError as exc:
        return str(exc).encode("utf-8", "replace")[:500], None
    except RecursionError:
        return b"nested too deeply", None
    except MemoryError:
        return b"too complex", None
    names = "".join(f"{n}\n" for n in LABELS.fresh).encode("utf-8", "replace")
    LABELS.fresh.clear()
    return names, walk.nodes


def read(channel, n):
    out = bytearray()
    while len(out) < n:
        part = channel.recv(n - len(out))
        if not part:
            return None
        out += part
    return bytes(out)


def main():
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(DEPTH + 200)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    channel = socket.socket(fileno=int(sys.argv[1]))
    while True:
        head = read(channel, SIZE.size)
        source = head and read(channel, SIZE.unpack(head)[0])
        if source is None or head is None:
            return
        names, nodes = parse(source)
        raw = b"" if nodes is None else nodes.tobytes()
        channel.sendall(HEAD.pack(nodes is None, len(names), len(raw), 0) + names + raw)


if __name__ == "__main__":
    main()
