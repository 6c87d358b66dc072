# SPDX-License-Identifier: Apache-2.0
"""rescore.py NN DIR URL [DEVICE DTYPE]: many completions at once from the server at URL, then
one training forward (the program NN) over the same tokens: how far apart are the
log-probabilities?  Prints the largest difference; exits 1 unless it is 0."""

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import numpy as np


def complete(url, prompt, seed, found):
    body = {"prompt": prompt, "max_tokens": 60, "seed": seed, "logprobs": 0,
            "return_token_ids": True, "ignore_eos": True, "n": 2}
    with urllib.request.urlopen(urllib.request.Request(
            url + "/completions", json.dumps(body).encode()), timeout=200) as f:
        found += [(prompt, c["token_ids"], c["logprobs"]["token_logprobs"])
                  for c in json.load(f)["choices"]]


def ask(url, path, body=None):
    with urllib.request.urlopen(url.removesuffix("/v1") + path, body, timeout=200) as f:
        return f.read().decode()


def at_once(url, threads):
    """Starts them while the server sleeps, so that it finds all of them at once."""
    ask(url, "/sleep", b"")
    for t in threads:
        t.start()
    end = time.monotonic() + 100
    while f"ca_serve_waiting {2 * len(threads)}\n" not in ask(url, "/metrics"):
        if time.monotonic() > end:
            sys.exit("not all requests arrived")
        time.sleep(.02)
    ask(url, "/wake", b"")
    for t in threads:
        t.join()


def served(url, vocab):
    """Prompts with beginnings in common; the second half goes on where the first ended."""
    rng = np.random.default_rng(8)
    start, found = rng.integers(3, vocab, 120).tolist(), []
    prompts = [start[:n] + rng.integers(3, vocab, k).tolist()
               for n, k in ((0, 5), (0, 150), (64, 1), (100, 30), (120, 1), (120, 3), (33, 9))]
    for turn in range(2):
        threads = [threading.Thread(target=complete, args=(url, p, 100 * turn + i, found))
                   for i, p in enumerate(prompts)]
        at_once(url, threads)
        prompts = [p + ids + [7, 8, 9] for p, ids, _ in found[::2]]
    return found


def trained(nn, folder, found, device, dtype):
    ids = [p + c for p, c, _ in found]
    first = np.cumsum([0, *map(len, ids)])
    rows = [first[s] + len(p) - 1 + i for s, (p, c, _) in enumerate(found) for i in range(len(c))]
    targets = [t for _, c, _ in found for t in c]
    parts = ([len(ids), len(rows), 1, 0], first, sum(ids, []), rows, targets)
    with tempfile.NamedTemporaryFile() as f:
        for part in parts:
            f.write(np.array(part, np.int32).tobytes())
        f.write(np.zeros(2 * len(rows), np.float32).tobytes())
        f.flush()
        out = subprocess.run([nn, "step", folder, device, dtype, f.name, "exact"], check=True,
                             capture_output=True).stdout
    return np.frombuffer(out[:4 * len(rows)], np.float32)


def main():
    nn, folder, url, device, dtype = [*sys.argv[1:], "cpu", "fp32"][:5]
    with open(folder + "/config.json") as f:
        vocab = json.load(f)["vocab_size"]
    found = served(url, vocab)
    mine = np.array(sum((lp for _, _, lp in found), []), np.float32)
    theirs = trained(nn, folder, found, device, dtype)
    worst = np.abs(mine - theirs).max()
    print(f"{len(mine)} tokens, largest difference {worst}")
    sys.exit(not (len(mine) > 1000 and mine.tobytes() == theirs.tobytes()))


main()
