# SPDX-License-Identifier: Apache-2.0
"""lines.py DIR [TOKENIZER.json...]: tokenizers of three families, trained
here, and what the library `tokenizers` makes of 10,000 lines of all kinds.

DIR/NAME/tokenizer.json, DIR/lines.bin (each line after its length, 4 bytes)
and DIR/NAME/ids.bin (the ids of each line after their number); further
tokenizers are only run."""

import random
import struct
import sys
import time
import unicodedata
from pathlib import Path

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, trainers)

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = ("float int void return kernel block thread shared grid idx for if while the a of and to "
         "in is that model tensor sum mean self def class import torch nn forward x y z stride "
         "offset const template typename struct launch stream warp shuffle don't we'll it's I'M "
         "naïve Straße école Привет мир مرحبا שלום").split()
OPS = ("+ - * / % = == != < > <= >= && || ! & | ^ ~ << >> <<<grid, block>>> -> . , ; : "
       "( ) [ ] { }").split()
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]


def code(r):
    pad = r.choice(["", "  ", "    ", "\t", "\t\t", "        "])
    parts = [r.choice(WORDS) if r.random() < .6 else
             r.choice(OPS) if r.random() < .7 else str(r.randrange(10 ** r.randrange(1, 12)))
             for _ in range(r.randrange(1, 30))]
    return pad + r.choice([" ", "", " "]).join(parts) + r.choice(["", ";", " {", "\r", "  "])


def letters(r, low, high, n=60):
    return "".join(chr(r.randrange(low, high)) for _ in range(r.randrange(1, n)))


def anything(r):
    """Characters of Unicode 3.2: libraries disagree about the latest."""
    points = (chr(r.randrange(0x110000)) for _ in range(r.randrange(1, 200)))
    return "".join(c for c in points if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs"))


def line(r):
    kinds = [
        code, code, code, code,
        lambda r: letters(r, 0x4e00, 0x9fff) + r.choice(["。", "，", "", "!"]),
        lambda r: letters(r, 0x3040, 0x30ff) + code(r),
        lambda r: letters(r, 0xac00, 0xd7a3),
        lambda r: "".join(r.choice("aeiouncs ") + r.choice(["", "\u0301", "\u0308\u0323", "\u0327"])
                          for _ in range(r.randrange(40))),
        lambda r: letters(r, 0x1f300, 0x1faff, 12) + "\u200d" + letters(r, 0x1f300, 0x1f600, 4),
        lambda r: letters(r, 1, 0x20, 20) + code(r) + letters(r, 0x7f, 0xa1, 9),
        lambda r: "".join(r.choice(" \t\r\n\u00a0\u3000\u2028") for _ in range(r.randrange(30))),
        lambda r: r.choice(SPECIAL) + code(r) + r.choice(SPECIAL) + r.choice(SPECIAL)[:-1],
        lambda r: letters(r, 0x660, 0x66a) + "½²Ⅷ" + str(r.random()),
        anything,
    ]
    return r.choice(kinds)(r)


def long_lines(r):
    yield "a" * 1000000
    yield " " * 999999 + "x"
    yield "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef0123456789+/") for _ in range(1000000))
    text = []
    while sum(map(len, text)) < 1000000:
        text.append(code(r))
    yield " ".join(text)
    yield "é" * 300000 + "e\u0301" * 100000


def train(kind, corpus):
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "smol")
    if kind == "smol":
        first = pre_tokenizers.Digits(individual_digits=True)
    else:
        first = pre_tokenizers.Split(Regex(QWEN if kind == "qwen" else LLAMA), "isolated")
    t.pre_tokenizer = pre_tokenizers.Sequence([first, byte_level])
    if kind == "qwen":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, special_tokens=SPECIAL[:3],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens([AddedToken(s, normalized=False) for s in SPECIAL[3:]])
    return t


def main():
    out = Path(sys.argv[1])
    r = random.Random(20261129)
    lines = [line(r) for _ in range(9995)]
    corpus = [code(r) for _ in range(3000)] + lines[:1000]
    lines += long_lines(r)
    with open(out / "lines.bin", "wb") as f:
        for text in lines:
            raw = text.encode()
            f.write(struct.pack("<I", len(raw)) + raw)
    for path in sys.argv[2:] or ["smol", "qwen", "llama"]:
        if path.endswith(".json"):
            t, d = Tokenizer.from_file(path), out / Path(path).parent.name
        else:
            t, d = train(path, corpus), out / path
        d.mkdir(exist_ok=True)
        if not path.endswith(".json"):
            t.save(str(d / "tokenizer.json"))
        start = time.process_time()
        ids = [t.encode(text, add_special_tokens=False).ids for text in lines]
        print(f"{d.name}: {time.process_time() - start:.3f} s", file=sys.stderr)
        with open(d / "ids.bin", "wb") as f:
            for row in ids:
                f.write(struct.pack(f"<I{len(row)}i", len(row), *row))


main()
