# SPDX-License-Identifier: Apache-2.0
"""Trajectories as ca-agent writes them, without an agent.

trajs.py random N [SEED]    N of random tokens, of both outcomes, two turns each
trajs.py wrap < FILE        one of each completion that ca-serve made
trajs.py told N [SEED] [LEN]  N whose outcome the prompt determines: the first token says it;
                            then LEN tokens of the agent, with tools between
trajs.py text N             N without ids: chat messages only

Rewards are by turns -1, 2, 1, 3 unless the data say otherwise."""

import base64
import hashlib
import json
import math
import random
import struct
import sys

REWARDS = [-1, 2, 1, 3]


def b64(code, values):
    return base64.b64encode(struct.pack(f"<{len(values)}{code}", *values)).decode()


def tokens(before, prompt, answer, logprobs):
    """The member `tokens` of a turn; `before` are the segment's ids so far, which grow."""
    new = {"segment": 0, "prompt_new": len(prompt), "prompt_ids": b64("i", prompt),
           "n": len(answer), "ids": b64("i", answer), "logprobs": b64("f", logprobs)}
    if not before:
        new["opens"] = "start"
    before += prompt
    start = len(before)
    before += answer
    new["mask"] = [[start, len(before)]]
    new["total"] = len(before)
    new["hash"] = hashlib.sha256(struct.pack(f"<{len(before)}i", *before)).hexdigest()
    return new


def record(n, turns, reward, task=None, sampling=None, messages=()):
    return {"kind": "trajectory", "v": 1, "id": f"t{n}", "task": {"id": f"task{task or n}"},
            "model": {"name": "m", "weight_version": "w0",
                      "sampling": {"temperature": 1, **(sampling or {})}},
            "messages": list(messages),
            "turns": [{"turn": i + 1, "finish": "stop", "calls": [], "tokens": t}
                      for i, t in enumerate(turns)],
            "redundant_loop": False, "schema_violations": 0,
            "outcome": {"reward": reward, "trainable": True, "stop_reason": "done"}}


def emit(rec):
    print(json.dumps(rec))


def make_random(count, seed=1):
    r = random.Random(seed)
    for n in range(count):
        ids, turns = [], []
        for _ in range(2):
            prompt = [r.randrange(3, 250) for _ in range(r.randrange(2, 9))]
            answer = [r.randrange(3, 250) for _ in range(r.randrange(1, 12))]
            turns.append(tokens(ids, prompt, answer, [-5.5 - r.random() for _ in answer]))
        emit(record(n, turns, REWARDS[n % 4]))


def wrap():
    for n, line in enumerate(sys.stdin):
        rec = json.loads(line)
        c = rec["completion"]
        t = tokens([], rec["tokens"], c["tokens"], c["logprobs"])
        emit(record(n, [t], REWARDS[n % 4],
                    sampling={"temperature": rec.get("temperature", 1), "logprobs": "temperature"}))


def told(count, seed=1, length=64):
    r = random.Random(seed)
    for n in range(count):
        good = r.random() < 0.5
        ids, turns = [], []
        for part in range(4):
            prompt = [r.randrange(3, 200) for _ in range(6)]
            if part == 0:
                prompt[0] = 201 if good else 202
            answer = [r.randrange(3, 200) for _ in range(length // 4)]
            turns.append(tokens(ids, prompt, answer, [-math.log(200)] * len(answer)))
        emit(record(n, turns, 3 if good else -1))


def text(count):
    for n in range(count):
        messages = [{"role": "user", "content": f"number {n}"},
                    {"role": "assistant", "content": "in the a"},
                    {"role": "user", "content": "and then"},
                    {"role": "assistant", "content": f"the {n * 7}"}]
        rec = record(n, [], REWARDS[n % 4], messages=messages)
        rec["turns"] = [{"turn": k, "finish": "stop", "calls": [],
                         "tokens": {"missing": "the server gave no ids"}} for k in (1, 2)]
        emit(rec)


{"random": make_random, "wrap": wrap, "told": told, "text": text}[sys.argv[1]](
    *map(int, sys.argv[2:]))
