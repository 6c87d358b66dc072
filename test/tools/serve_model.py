# SPDX-License-Identifier: Apache-2.0
"""serve_model.py DIR: a model without sense but with all its files, from
nothing but Python: bytes and a few pairs as tokens, random weights, a chat
template."""

import json
import random
import struct
import sys
from pathlib import Path

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
            "{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
            "<s>{{ m.role }}: {{ m.content }}<e>\n{% endfor %}"
            "{% if add_generation_prompt %}<s>assistant: {% endif %}")


def spelling():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    return {b: chr(b) if b in plain else chr(256 + other.index(b)) for b in range(256)}


def tokenizer():
    spell = spelling()
    pairs = ["t h", "i n", "th e", f"{spell[32]} a"]
    vocab = [spell[b] for b in range(256)] + [p.replace(" ", "") for p in pairs]
    added = [{"id": len(vocab) + i, "content": t, "special": True, "normalized": False,
              "single_word": False, "lstrip": False, "rstrip": False}
             for i, t in enumerate(["<s>", "<e>"])]
    return {"model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(vocab)},
                      "merges": pairs},
            "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}}, len(vocab) + 2


def tensors(vocab):
    h, f = SIZES["hidden_size"], SIZES["intermediate_size"]
    yield "model.embed_tokens.weight", [vocab, h]
    for i in range(SIZES["num_hidden_layers"]):
        for name, shape in (
                ("input_layernorm", [h]), ("self_attn.q_proj", [h, h]),
                ("self_attn.k_proj", [h // 2, h]), ("self_attn.v_proj", [h // 2, h]),
                ("self_attn.o_proj", [h, h]), ("post_attention_layernorm", [h]),
                ("mlp.gate_proj", [f, h]), ("mlp.up_proj", [f, h]), ("mlp.down_proj", [h, f])):
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", [h]


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tok, vocab = tokenizer()
    r = random.Random(3)
    header, data = {}, b""
    for name, shape in tensors(vocab):
        n = shape[0] * (shape[1] if len(shape) == 2 else 1)
        raw = struct.pack(f"<{n}f", *((r.gauss(0, .3) if len(shape) == 2 else 1)
                                      for _ in range(n)))
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (out / "tokenizer.json").write_text(json.dumps(tok))
    (out / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab,
        "tie_word_embeddings": True, "eos_token_id": vocab - 1, **SIZES}))
    (out / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))


main()
