# SPDX-License-Identifier: Apache-2.0
"""random_model.py DIR SHAPE: a Llama in bf16 with random weights and the
sizes of a real one (135m, 1b), a small one to try a bench, or one that
costs next to nothing (tiny), so that what serves it is what is timed."""

import json
import struct
import sys
from pathlib import Path

import torch

SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
             "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 4096},
    "small": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096},
    "135m": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
             "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
}


def tensors(s):
    h, f, d = s["hidden_size"], s["intermediate_size"], 64
    q, kv = s["num_attention_heads"] * d, s["num_key_value_heads"] * d
    yield "model.embed_tokens.weight", (s["vocab_size"], h)
    for i in range(s["num_hidden_layers"]):
        for name, shape in (
                ("input_layernorm", (h,)), ("self_attn.q_proj", (q, h)),
                ("self_attn.k_proj", (kv, h)), ("self_attn.v_proj", (kv, h)),
                ("self_attn.o_proj", (h, q)), ("post_attention_layernorm", (h,)),
                ("mlp.gate_proj", (f, h)), ("mlp.up_proj", (f, h)), ("mlp.down_proj", (h, f))):
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", (h,)


def main():
    out, shape = Path(sys.argv[1]), SHAPES[sys.argv[2]]
    out.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, size in tensors(shape):
        n = 2 * torch.Size(size).numel()
        header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    torch.manual_seed(1)
    # Drawing takes longer than anything else: the same numbers, begun elsewhere each time.
    size = 1 << 24
    pool = torch.empty(size, dtype=torch.bfloat16).uniform_(-.035, .035).repeat(2)
    with open(out / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for i, (_, shape_of) in enumerate(tensors(shape)):
            n, at = torch.Size(shape_of).numel(), i * 65537 % size
            t = pool[at:at + size].repeat(n // size + 1)[:n] if n > size else pool[at:at + n]
            t = torch.ones(n, dtype=torch.bfloat16) if len(shape_of) == 1 else t
            f.write(t.view(torch.int16).numpy())
    (out / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": 64,
        "tie_word_embeddings": True, "max_position_embeddings": 131072, "rope_theta": 500000,
        "eos_token_id": 2, **shape}))


main()
