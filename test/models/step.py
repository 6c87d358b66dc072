# SPDX-License-Identifier: Apache-2.0
"""step.py NN DIR...: a training step of our engine (the program NN) against
transformers and autograd in fp32: log-probabilities of all tokens (of some,
where the vocabulary is large), entropies, the gradient of every tensor.

--device cuda --dtype bf16 computes ours there; then the error against the
fp32 reference is compared with that of transformers' own bf16."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as tf

LENGTHS = [37, 1, 64, 19]
TEXT = """A pointer holds the address of an object; the operator * gives the object itself.
int add(int a, int b) { return a + b; }
CUDA kernels run in blocks of threads, which share memory and can wait for each other.
for (int i = 0; i < n; i += blockDim.x) sum += x[i] * y[i];
The quick brown fox jumps over the lazy dog, and nobody knows why it does so every day."""


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("nn")
    p.add_argument("dirs", nargs="+")
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", default="fp32")
    p.add_argument("--once", action="store_true", help="not with recomputation too")
    return p.parse_args()


def batch(folder, vocab, sets):
    """Random tokens for random models, but text for a real one: it is badly conditioned on
    what it has never seen."""
    rng = np.random.default_rng(5)
    first = np.cumsum([0, *LENGTHS]).astype(np.int32)
    # Autograd gives the padding token, 0, no gradient.
    ids = rng.integers(1, vocab, first[-1])
    if (Path(folder) / "tokenizer.json").exists():
        ids = np.array(tf.AutoTokenizer.from_pretrained(folder)(TEXT * 2).input_ids)[:first[-1]]
    ids = ids.astype(np.int32)
    rows = np.sort(rng.permutation(first[-1])[:100]).astype(np.int32)
    count = min(vocab, sets)
    base = rng.integers(0, vocab, len(rows))
    targets = np.stack([(base + k) % vocab for k in range(count)]).astype(np.int32)
    weights = rng.normal(size=(2, len(rows))).astype(np.float32)
    return first, ids, rows, targets, weights


def ours(a, folder, data, recompute, value):
    first, ids, rows, targets, weights = data
    head = np.array([len(LENGTHS), len(rows), len(targets), recompute], np.int32)
    with tempfile.NamedTemporaryFile() as f:
        for part in (head, first, ids, rows, targets, weights):
            f.write(part.tobytes())
        f.flush()
        p = subprocess.run([a.nn, "step", folder, a.device, a.dtype, f.name],
                           capture_output=True, check=False)
    if p.returncode:
        sys.exit(p.stderr.decode())
    out = np.frombuffer(p.stdout, np.float32)
    n = targets.size
    return (out[:n].reshape(targets.shape), out[n:n + len(rows)], out[n + len(rows):],
            p.stderr.decode().split())


def reference(model, data, value):
    first, ids, rows, targets, weights = data
    states = []
    for s in range(len(LENGTHS)):
        part = torch.tensor(ids[first[s]:first[s + 1]].astype(np.int64))[None]
        states.append(model(part.to(model.device)).logits[0].float())
    logits = torch.cat(states)[torch.tensor(rows.astype(np.int64))]
    w = torch.tensor(weights, device=logits.device)
    if value:
        picked = logits[:, 0][None]
        entropy = torch.zeros_like(picked[0])
    else:
        logs = torch.log_softmax(logits, -1)
        t = torch.tensor(targets.astype(np.int64), device=logits.device)
        picked = torch.stack([logs.gather(1, row[:, None])[:, 0] for row in t])
        entropy = -(logs.exp() * logs).sum(-1)
    model.zero_grad()
    (w[0] * picked[-1] + w[1] * entropy).sum().backward()
    grads = {n: p.grad.float().cpu().numpy() for n, p in model.named_parameters()}
    return picked.detach().cpu().numpy(), entropy.detach().cpu().numpy(), grads


def load(folder, dtype, device):
    value = "value" in folder
    kind = tf.AutoModelForTokenClassification if value else tf.AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to(device).eval()


def compare(a, folder, recompute):
    value = "value" in folder
    model = load(folder, torch.float32, "cpu")
    vocab = model.config.vocab_size
    data = batch(folder, vocab, 1 if value else vocab if vocab < 400 else 3)
    want, entropy, grads = reference(model, data, value)
    got, h, flat, names = ours(a, folder, data, recompute, value)
    report = {"logprob": np.abs(got - want).max()}
    if not value:
        report["entropy"] = np.abs(h - entropy).max()
    at, worst, far = 0, 1.0, 0.0
    for name in names:
        g = grads[name].reshape(-1).astype(np.float64)
        o = flat[at:at + g.size].astype(np.float64)
        at += g.size
        norm = np.linalg.norm(g)
        assert norm > 0, name
        worst = min(worst, o @ g / (norm * np.linalg.norm(o) + 1e-300))
        far = max(far, np.linalg.norm(o - g) / norm)
    assert at == flat.size and set(names) == set(grads), set(names) ^ set(grads)
    report |= {"cosine": worst, "far": far}
    return report, model, data, want, grads


def rms(x):
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def compare_half(a, folder):
    """bf16: distances from fp32, ours and transformers', of log-probabilities and (relative, on
    average) of gradients."""
    value = "value" in folder
    model = load(folder, torch.float32, "cpu")
    data = batch(folder, model.config.vocab_size, 1)
    want, _, grads = reference(model, data, value)
    theirs, _, half = reference(load(folder, torch.bfloat16, a.device), data, value)
    got, _, flat, names = ours(a, folder, data, 0, value)
    at, g_ours, g_theirs = 0, [], []
    for name in names:
        g = grads[name].reshape(-1)
        g_ours.append(rms(flat[at:at + g.size] - g) / rms(g))
        g_theirs.append(rms(half[name].reshape(-1) - g) / rms(g))
        at += g.size
    ratio = rms(got - want) / rms(theirs - want)
    print(f"{folder}: log-probabilities {rms(got - want):.3g}, "
          f"transformers' {rms(theirs - want):.3g}, ratio {ratio:.2f}; "
          f"gradients {np.mean(g_ours):.3g}, transformers' {np.mean(g_theirs):.3g}, "
          f"worst {names[int(np.argmax(g_ours))]} {max(g_ours):.3g}")
    return ratio > 1.2 or np.mean(g_ours) > 1.2 * np.mean(g_theirs)


def main():
    a = arguments()
    if a.dtype == "bf16":
        sys.exit(int(any([compare_half(a, folder) for folder in a.dirs])))
    bad = False
    for folder in a.dirs:
        for recompute in (0,) if a.once else (0, 1):
            r, *_ = compare(a, folder, recompute)
            print(folder, f"recompute={recompute}", *(f"{k}={v:.3g}" for k, v in r.items()),
                  f"1-cosine={1 - r['cosine']:.2g}")
            bad |= (r["logprob"] > 2e-4 or r.get("entropy", 0) > 2e-4 or
                    r["cosine"] < 0.99999 or r["far"] > 1e-4)
    sys.exit(int(bad))


main()
