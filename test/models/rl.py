# SPDX-License-Identifier: Apache-2.0
"""rl.py RL DIR: losses and gradients of lib/rl (the program RL) against the same in PyTorch, in
double precision, for every combination of loss, aggregation, mode of GAE and layout; and against
itself for every split of a batch.  DIR holds the small models of make.py."""

import base64
import hashlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import transformers as tf

RL, MODELS = sys.argv[1], Path(sys.argv[2])
# Layouts of a trajectory: segments of prompts (.) and answers (a; x: without log-probability).
LAYOUTS = {
    "one turn": ["....aaaaaa", "..aaa"],
    "tools between": ["...aaaa.....aaa..a", "..aa...aaaaa", "......a"],
    "a token each": ["..a", ".a", "..........a"],
    "segments": ["...aa..aaa|....aaaa..a", ".aaa"],
    "masked": ["...aaxxa..xaa", "..xx", "...aaaa", "....xxx..a"],
}
TEMPERATURE = 0.8


def make(layout, seed):
    rng = np.random.default_rng(seed)
    out = []
    for k, text in enumerate(layout):
        t = {"reward": float(rng.choice([-1, 1, 2, 3])), "seg": []}
        for part in text.split("|"):
            n = len(part)
            t["seg"].append({"part": part, "id": rng.integers(1, 300, n).astype(np.int32),
                             "lp": np.where([c == "x" for c in part], np.nan,
                                            -rng.exponential(4, n)).astype(np.float32)})
        t["n"] = k
        out.append(t)
    return out


def b64(a):
    return base64.b64encode(a.tobytes()).decode()


def record(t):
    turns = []
    for s in t["seg"]:
        at, opens = 0, True
        for env, group in itertools.groupby(range(len(s["part"])), lambda i: s["part"][i] == "."):
            span = list(group)
            if env:
                at = span[0]
                continue
            a, b = span[0], span[-1] + 1
            k = {"prompt_new": a - at, "prompt_ids": b64(s["id"][at:a]), "n": b - a,
                 "ids": b64(s["id"][a:b]), "logprobs": b64(s["lp"][a:b]), "mask": [[a, b]],
                 "total": b, "hash": hashlib.sha256(s["id"][:b].tobytes()).hexdigest()}
            if opens:
                k["opens"] = "start"
            opens = False
            turns.append({"turn": len(turns) + 1, "finish": "stop", "tokens": k})
    return json.dumps({"kind": "trajectory", "v": 1, "id": str(t["n"]), "turns": turns,
                       "outcome": {"reward": t["reward"]}})


def ours(lines, loss, mode, agg, tokens=64, seqs=8, ranks=1):
    p = subprocess.run([RL, loss, MODELS / "llama", MODELS / "value", mode, agg, str(tokens),
                        str(seqs), str(ranks)], input="\n".join([*lines, ""]).encode(),
                       capture_output=True, check=False)
    if p.returncode:
        sys.exit(p.stderr.decode())
    head, *names = p.stderr.decode().splitlines()
    value, _, used = head.split()
    return float(value), np.frombuffer(p.stdout, np.float32).astype(np.float64), names, int(used)


def steps(t, every):
    """(segment, position) of the outputs of a trajectory, and which are the agent's."""
    out = []
    for k, s in enumerate(t["seg"]):
        mine = [i for i, c in enumerate(s["part"]) if c == "a"]
        if not mine:
            continue
        for i in range(mine[0], mine[-1] + 1):
            if every or i in mine:
                out.append((k, i, i in mine))
    return out


def advantages(mode, rows, values, reward, lam):
    """The definitions, written down once more: sums over what is left."""
    if mode == "turn":
        turn, turns = [], []
        for (k, i, _), v in zip(rows, values):
            if turns and turns[-1][-1] == (k, i - 1):
                turns[-1].append((k, i))
            else:
                turns.append([(k, i)])
                turn.append(v)
        count = [len(x) for x in turns]
    else:
        turn, count = list(values), [1] * len(values)
    # The reward lies on the agent's last token, which is the last step of all.
    delta = [(turn[i + 1] - turn[i]) if i + 1 < len(turn) else reward - turn[i]
             for i in range(len(turn))]
    a = [sum(lam ** (j - i) * delta[j] for j in range(i, len(delta))) for i in range(len(delta))]
    adv = np.repeat(a, count)
    return adv, adv + np.repeat(turn, count)


def weights(agg, counts):
    have = [c for c in counts if c]
    total, n = sum(have), len(have)
    return [{"token-mean": 1 / total, "seq-mean-token-sum": 1 / n,
             "seq-mean-token-mean": 1 / (n * c) if c else 0, "token-sum": 1}[agg] for c in counts]


class Reference:
    def __init__(self):
        self.actor = tf.AutoModelForCausalLM.from_pretrained(MODELS / "llama", dtype=torch.float64)
        self.critic = tf.AutoModelForTokenClassification.from_pretrained(
            MODELS / "value", dtype=torch.float64).eval()

    def outputs(self, model, t):
        return [model(torch.tensor(s["id"].astype(np.int64))[None]).logits[0] for s in t["seg"]]

    def values(self, t, rows):
        out = self.outputs(self.critic, t)
        return torch.stack([out[k][i - 1, 0] for k, i, _ in rows])

    def logprobs(self, t, rows):
        out = [torch.log_softmax(x / TEMPERATURE, -1) for x in self.outputs(self.actor, t)]
        return torch.stack([out[k][i - 1, int(t["seg"][k]["id"][i])] for k, i, _ in rows])

    def loss(self, trajs, loss, mode, agg):
        trajs = [t for t in trajs if steps(t, False)]
        self.actor.zero_grad()
        self.critic.zero_grad()
        every = mode == "all"
        rows = [steps(t, every) for t in trajs]
        mine = [[r for r in x if r[2]] for x in rows]
        with torch.no_grad():
            value = [self.values(t, r).numpy() for t, r in zip(trajs, rows)]
        adv = [advantages(mode, r, v, t["reward"], .95)[0][[x[2] for x in r]]
               for t, r, v in zip(trajs, rows, value)]
        target = [advantages(mode, r, v, t["reward"], .9)[1]
                  for t, r, v in zip(trajs, rows, value)]
        flat = np.concatenate(adv)
        mean, var = flat.mean(), flat.var(ddof=1)
        total, size = torch.zeros((), dtype=torch.float64), 0.0
        w = weights(agg, [len(x) for x in (rows if loss == "value" else mine)])
        for i, t in enumerate(trajs):
            if loss == "value":
                term = 0.5 * (self.values(t, rows[i]) - torch.tensor(target[i])) ** 2
            else:
                term = -self.logprobs(t, mine[i])
            if loss == "ppo":
                a = torch.tensor((adv[i] - mean) / np.sqrt(var + 1e-8))
                old = torch.tensor([float(t["seg"][k]["lp"][p]) for k, p, _ in mine[i]])
                rho = torch.exp(torch.clamp(-term - old, -20, 20))
                term = torch.maximum(-a * rho, -a * rho.clamp(.8, 1.28))
            total = total + w[i] * term.sum()
            size += w[i] * term.abs().sum().item()
        total.backward()
        model = self.critic if loss == "value" else self.actor
        return total.item(), size, {n: p.grad for n, p in model.named_parameters()}, len(trajs)


def far(a, b):
    return np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-9)


def against_torch():
    ref, worst = Reference(), (0.0, 0.0)
    cases = itertools.product(LAYOUTS, ["rft", "ppo", "value"], ["skip", "all", "turn"],
                              ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                               "token-sum"])
    for n, (layout, loss, mode, agg) in enumerate(cases):
        if loss == "rft" and mode != "skip":
            continue
        trajs = make(LAYOUTS[layout], n)
        value, flat, names, used = ours([record(t) for t in trajs], loss, mode, agg)
        want, size, grads, count = ref.loss(trajs, loss, mode, agg)
        assert used == count, (layout, used, count)
        g = np.concatenate([grads[name].numpy().reshape(-1) for name in names])
        # Terms of both signs: relative to the sum of their sizes.
        d = abs(value - want) / (size + 1e-9), far(flat, g)
        worst = max(worst[0], d[0]), max(worst[1], d[1])
        if max(d) > 1e-5:
            sys.exit(f"{layout}, {loss}, {mode}, {agg}: loss {value} against {want}, gradient off "
                     f"by {d[1]:.3g}")
    print(f"loss within {worst[0]:.2g}, gradient within {worst[1]:.2g}")


def against_itself():
    rng = np.random.default_rng(1)
    layout = ["." * int(a) + "a" * int(b) + "..." + "a" * int(c)
              for a, b, c in rng.integers(1, 12, (8, 3))]
    lines = [record(t) for t in make(layout, 99)]
    worst = 0.0
    for loss in ("ppo", "value"):
        base = ours(lines, loss, "skip", "seq-mean-token-mean", 256, 1)
        for tokens, seqs, ranks in [(256, 2, 1), (256, 8, 1), (64, 8, 1), (256, 1, 2),
                                    (64, 8, 2), (64, 2, 4), (256, 1, 4)]:
            got = ours(lines, loss, "skip", "seq-mean-token-mean", tokens, seqs, ranks)
            d = far(got[1], base[1])
            worst = max(worst, d)
            if d > 1e-6 or got[0] != base[0]:
                sys.exit(f"{loss}, {tokens} tokens, {seqs} sequences, {ranks} ranks: off by "
                         f"{d:.3g}")
    print(f"splits within {worst:.2g}")


against_torch()
against_itself()
