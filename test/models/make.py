# SPDX-License-Identifier: Apache-2.0
"""make.py DIR: small random models of each family, as transformers writes
them: DIR/NAME/{config.json, model.safetensors}.  Weights are drawn wide, so
that every part of the model matters to its output."""

import sys
from pathlib import Path

import torch
import transformers as tf

SMALL = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.15}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=128)
MODELS = {
    "llama": (tf.LlamaConfig, tf.LlamaForCausalLM, {"tie_word_embeddings": True}),
    "llama-odd": (tf.LlamaConfig, tf.LlamaForCausalLM, {
        "attention_bias": True, "mlp_bias": True, "hidden_size": 60, "head_dim": 18,
        "intermediate_size": 77, "vocab_size": 301, "num_key_value_heads": 1, **LLAMA3}),
    "qwen2": (tf.Qwen2Config, tf.Qwen2ForCausalLM, {"tie_word_embeddings": True, **YARN}),
    "qwen2-linear": (tf.Qwen2Config, tf.Qwen2ForCausalLM, rope("linear", factor=2.0)),
    "qwen3": (tf.Qwen3Config, tf.Qwen3ForCausalLM, {"head_dim": 64}),
    "value": (tf.LlamaConfig, tf.LlamaForTokenClassification,
              {"num_labels": 1, "classifier_dropout": 0.0}),
}


def randomize(model):
    for name, p in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(p, 0.5, 1.5)
        elif name.endswith("bias"):
            torch.nn.init.normal_(p, std=0.2)


def main():
    torch.manual_seed(7)
    for name, (config, model, more) in MODELS.items():
        m = model(config(**{**SMALL, **more})).float()
        randomize(m)
        m.save_pretrained(Path(sys.argv[1]) / name,
                          max_shard_size="150KB" if name == "qwen3" else "1GB")


main()
