# SPDX-License-Identifier: Apache-2.0
"""engine_peer.py DIR DEVICE decode BATCH LEN | train SEQS LEN: what transformers does of the work
that the engine's bench times, on the same weights: tokens per second, the best of two rounds of
`generate`, or of six steps of forward, backward and (fused, bf16 alone) AdamW with SDPA."""

import sys
import time

import torch
import transformers as tf


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def decode(model, device, batch, length):
    ids = torch.arange(3, 3 + 16 * batch, device=device).reshape(batch, 16)
    best = 0.0
    for _ in range(2):
        start = time.perf_counter()
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True,
                                 top_k=0, min_new_tokens=length, max_new_tokens=length,
                                 pad_token_id=0)
        synchronize(device)
        took = time.perf_counter() - start
        best = max(best, (out.numel() - ids.numel()) / took)
    return best


def train(model, device, seqs, length):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    ids = torch.randint(0, model.config.vocab_size, (seqs, length), device=device)
    best = 0.0
    for _ in range(6):
        synchronize(device)
        start = time.perf_counter()
        model(ids, labels=ids, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        synchronize(device)
        best = max(best, ids.numel() / (time.perf_counter() - start))
    return best


def main():
    folder, device, what, n, length = sys.argv[1:]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype,
                                                    attn_implementation="sdpa").to(device)
    work = {"decode": decode, "train": train}[what]
    try:
        print(f"{work(model, device, int(n), int(length)):.1f}")
    except torch.OutOfMemoryError:
        print("null")


main()
