# SPDX-License-Identifier: Apache-2.0
"""serve_model.py DIR [TEXT...]: a model without sense but with all its files,
from nothing but Python: bytes and a few pairs as tokens, random weights, a
chat template.  With texts it is one that says just these in any chat: each is
a token, and a token is all that the next one depends on."""

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


def tokenizer(says):
    spell = spelling()
    pairs = ["t h", "i n", "th e", f"{spell[32]} a"]
    vocab = [spell[b] for b in range(256)] + [p.replace(" ", "") for p in pairs]
    vocab += ["".join(spell[b] for b in t.encode()) for t in says]
    added = [{"id": len(vocab) + i, "content": t, "special": True, "normalized": False,
              "single_word": False, "lstrip": False, "rstrip": False}
             for i, t in enumerate(["<s>", "<e>"])]
    return {"model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(vocab)},
                      "merges": pairs},
            "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}}, len(vocab) + 2


def tensors(vocab, sizes):
    h, f = sizes["hidden_size"], sizes["intermediate_size"]
    yield "model.embed_tokens.weight", [vocab, h]
    for i in range(sizes["num_hidden_layers"]):
        for name, shape in (
                ("input_layernorm", [h]), ("self_attn.q_proj", [h, h]),
                ("self_attn.k_proj", [h // 2, h]), ("self_attn.v_proj", [h // 2, h]),
                ("self_attn.o_proj", [h, h]), ("post_attention_layernorm", [h]),
                ("mlp.gate_proj", [f, h]), ("mlp.up_proj", [f, h]), ("mlp.down_proj", [h, f])):
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", [h]
    if not sizes["tie_word_embeddings"]:
        yield "lm_head.weight", [vocab, h]


def random_weights():
    r = random.Random(3)
    return lambda name, shape: [r.gauss(0, .3) if len(shape) == 2 else 1
                                for _ in range(shape[0] * (shape[1] if len(shape) == 2 else 1))]


def parrot(says, vocab):
    """Token i is unit vector i, and the head gives its successor; layers add nothing."""
    end = vocab - 1
    chain = [spelled for spelled in range(end - 1 - len(says), end - 1)] + [end]
    follows = {32: chain[0], **dict(zip(chain, chain[1:]))}

    def weights(name, shape):
        x = [0.0 if len(shape) == 2 else 1.0] * (shape[0] * (shape[1] if len(shape) == 2 else 1))
        if name == "model.embed_tokens.weight":
            for i in range(vocab):
                x[i * shape[1] + i] = 1.0
        if name == "lm_head.weight":
            for i, j in follows.items():
                x[j * shape[1] + i] = 2.0
        return x
    return weights


def main():
    out, says = Path(sys.argv[1]), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    tok, vocab = tokenizer(says)
    sizes, template, fill = dict(SIZES, tie_word_embeddings=True), TEMPLATE, random_weights()
    if says:
        sizes.update(hidden_size=(vocab + 7) // 8 * 8, num_hidden_layers=1, intermediate_size=8,
                     tie_word_embeddings=False, max_position_embeddings=32768)
        template, fill = TEMPLATE[TEMPLATE.index("{% for"):], parrot(says, vocab)
    header, data = {}, b""
    for name, shape in tensors(vocab, sizes):
        x = fill(name, shape)
        raw = struct.pack(f"<{len(x)}f", *x)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (out / "tokenizer.json").write_text(json.dumps(tok))
    (out / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab,
        "eos_token_id": vocab - 1, **sizes}))
    (out / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


main()
