# SPDX-License-Identifier: Apache-2.0
"""serve_client.py URL streams N LEN [PROMPT] | turn PREFIX NEW | chat PREFIX NEW | reload N LEN:
what serve.sh measures, through HTTP, in numbers on a line each, or a line of JSON.

streams: tokens a second that N streams of LEN tokens get, behind prompts of PROMPT tokens (4) of
their own, and the same by the seconds that the
server's engine has spent in steps (of a replica). The clients are processes of their own that look
at their sockets every 10 ms, where what was sent waits for them, so that they are not what is
measured. turn: milliseconds to the first token of a prompt of NEW
tokens alone, and of the same ones behind a prefix of PREFIX that is in the cache: medians, tenths,
and what of them the server spent in steps of the engine and on the prompt before them.
chat: likewise, of the 20th turn of a conversation of PREFIX tokens, and how many of its tokens
were not in the cache. reload: milliseconds without a step while N streams of LEN tokens run."""

import http.client
import json
import multiprocessing
import os
import socket
import statistics
import sys
import threading
import time
import urllib.parse
import urllib.request

PROCESSES = max(2, min(24, (os.cpu_count() or 1) * 3 // 4))
TURNS = 25
NAP = .01


def connect(url):
    u = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(u.hostname, u.port, timeout=600)


def stream(url, prompt, length):
    """Asks for a stream; the socket on which it comes."""
    u = urllib.parse.urlsplit(url)
    body = json.dumps({"prompt": prompt, "max_tokens": length, "ignore_eos": True,
                       "stream": True, "stream_options": {"include_usage": True}})
    s = socket.create_connection((u.hostname, u.port))
    s.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: {u.netloc}\r\nConnection: close\r\n"
               f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
    return s


def drain(sockets, length):
    """Reads streams to their ends, with as little work as can be: what is measured is theirs."""
    ends = {s: b"" for s in sockets}
    for s in sockets:
        s.setblocking(False)
    while ends:
        time.sleep(NAP)
        for s in list(ends):
            try:
                data = s.recv(1 << 18)
            except BlockingIOError:
                continue
            if data:
                ends[s] = (ends[s] + data)[-1000:]
                continue
            if f'"completion_tokens":{length}'.encode() not in ends[s]:
                sys.exit(f"a stream is not whole: {ends[s]}")
            del ends[s]
            s.close()


def own_prompt(which, n):
    """Tokens that no other has the like of from the first page on."""
    own = 3 + which % 250, 5 + which // 250
    return [*own, *((11 * i + 7 * which) % 250 + 3 for i in range(n - 2))]


def some_streams(url, which, length, go, prompt=4):
    prompts = [own_prompt(i, prompt) for i in which]
    go.wait()
    drain([stream(url, p, length) for p in prompts], length)


def streams(url, n, length, prompt, first):
    go = multiprocessing.Barrier(PROCESSES + 1)
    parts = [multiprocessing.Process(target=some_streams, args=(
        url, range(first + k, first + n, PROCESSES), length, go, prompt))
        for k in range(PROCESSES)]
    for p in parts:
        p.start()
    was = counted(url)[0]
    go.wait()
    start = time.perf_counter()
    for p in parts:
        p.join()
    took = time.perf_counter() - start
    if any(p.exitcode for p in parts):
        sys.exit("a client failed")
    return n * length / took, n * length / (counted(url)[0] - was)


def ask(url, path, question):
    """An answer and its milliseconds; the request is written before the clock starts."""
    c, body = connect(url), json.dumps(question).encode()
    c.connect()
    start = time.perf_counter()
    c.request("POST", path, body)
    r = c.getresponse()
    text = r.read()
    took = 1e3 * (time.perf_counter() - start)
    if r.status != 200:
        sys.exit(text.decode())
    return text, took


def first_token(url, prompt):
    """Milliseconds of an answer of one token."""
    return ask(url, "/v1/completions", {"prompt": prompt, "max_tokens": 1})[1]


def counted(url):
    """Seconds that the server has spent in steps, and in prompts before them."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=60) as f:
        seen = dict(line.rsplit(" ", 1) for line in f.read().decode().splitlines()
                    if line[0] != "#")
    return [float(seen[f"ca_serve_{k}_seconds_total"]) for k in ("busy", "prepare")]


def parts(url, prompt):
    """Milliseconds to the first token, and of them in steps and in the prompt."""
    before = counted(url)
    took = first_token(url, prompt)
    return [took, *(1e3 * (b - a) for a, b in zip(before, counted(url), strict=True))]


def spread(x):
    x = sorted(x)
    return {"median": statistics.median(x), "low": x[len(x) // 10], "high": x[-1 - len(x) // 10]}


def turn(url, prefix, new):
    """The same new tokens by themselves and behind the prefix that is in the cache, in turns."""
    shared = [(7 * i) % 1000 + 3 for i in range(prefix)]
    first_token(url, shared)
    alone, behind = [], []
    for k in range(TURNS):
        mine = [new + 1003, k + 2100, *((11 * i + 13 * k) % 1000 + 3 for i in range(new - 2))]
        alone.append(parts(url, mine))
        behind.append(parts(url, shared + mine))
    names = "ms", "steps", "prompt"
    print(json.dumps({
        "new": new, "prefix": prefix,
        "ratio": spread([b[0] / a[0] for a, b in zip(alone, behind, strict=True)]),
        "alone": {n: spread(x) for n, x in zip(names, zip(*alone, strict=True), strict=True)},
        "behind": {n: spread(x) for n, x in zip(names, zip(*behind, strict=True), strict=True)}}))


def say(url, messages, most):
    text, took = ask(url, "/v1/chat/completions", {"messages": messages, "max_tokens": most})
    return json.loads(text), took


def chat(url, prefix, new):
    def words(n, k):
        return " ".join(f"word{(7 * i + k) % 100}" for i in range(n // 3))

    messages, alone, behind, left = [], [], [], 0
    for k in range(19):
        have = say(url, [*messages, {"role": "user", "content": "a"}], 1)[0] if messages else None
        want = prefix * (k + 1) // 19 - (have["usage"]["prompt_tokens"] if have else 0)
        messages.append({"role": "user", "content": words(max(want - 30, 3), k)})
        answer = say(url, messages, 60)[0]["choices"][0]["message"]
        messages.append({"role": "assistant", "content": answer["content"]})
    for k in range(9):
        mine = {"role": "user", "content": words(new, 31 * k + 5)}
        alone.append(say(url, [mine], 1)[1])
        answer, took = say(url, [*messages, mine], 1)
        behind.append(took)
        usage = answer["usage"]
        left = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    print(f"{statistics.median(alone):.2f}\n{statistics.median(behind):.2f}")
    print(f"{usage['prompt_tokens']}\n{left}")


def reload(url, n, length):
    running = threading.Thread(target=some_streams, args=(
        url, range(n), length, threading.Barrier(1)))
    running.start()
    time.sleep(.5)
    order = urllib.request.Request(url.removesuffix("/v1") + "/reload", b"{}")
    for _ in range(3):
        with urllib.request.urlopen(order, timeout=600) as f:
            print(f"{1e3 * json.load(f)['pause_s']:.2f}")
    running.join()


def main():
    url, what, a, b = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if what == "streams":
        prompt = int(sys.argv[5]) if len(sys.argv) > 5 else 4
        streams(url, a, b, prompt, 0)
        print("{:.1f}\n{:.1f}".format(*streams(url, a, b, prompt, a)))
    else:
        {"turn": turn, "chat": chat, "reload": reload}[what](url, a, b)


if __name__ == "__main__":
    main()
