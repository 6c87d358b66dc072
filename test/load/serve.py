# SPDX-License-Identifier: Apache-2.0
"""serve.py URL PID REQUESTS CONNECTIONS: many clients at once, who stream, wait, leave in the
middle, send nonsense; then the server, process PID, must hold no slot, no page and no more
memory than when it was warm.  Exit 0 if so."""

import asyncio
import json
import random
import sys
import urllib.parse
import urllib.request

SHARED = "the in " * 8


def body(r):
    b = {"prompt": SHARED[:r.randrange(1, 56)] + str(r.randrange(50)), "seed": r.randrange(1 << 30),
         "max_tokens": r.randrange(1, 24), "n": r.choice((1, 1, 1, 2)), "stream": r.random() < .5,
         "user": f"u{r.randrange(20)}", "logprobs": r.choice((None, 0, 2))}
    return json.dumps(b).encode()


async def request(reader, writer, data, leave):
    """Status, or None for a client that left."""
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                 % len(data) + data)
    await writer.drain()
    if leave:
        await asyncio.sleep(random.random() * .02)
        return None
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    if b"content-length" in fields:
        await reader.readexactly(int(fields[b"content-length"]))
    else:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    return int(head.split()[1])


async def client(address, todo, counts, r):
    reader = writer = None
    while todo:
        todo.pop()
        if writer is None:
            reader, writer = await asyncio.open_connection(*address)
        kind = r.random()
        data = b'{"prompt":' if kind < .05 else body(r)
        status = await asyncio.wait_for(request(reader, writer, data, .05 <= kind < .12), 300)
        counts[status] = counts.get(status, 0) + 1
        if status is None:
            writer.transport.abort()
            writer = None
        elif status == 429:
            await asyncio.sleep(.2)
    if writer:
        writer.close()


async def batch(address, requests, connections, seed):
    todo, counts = list(range(requests)), {}
    await asyncio.gather(*(client(address, todo, counts, random.Random(seed * 1000003 + i))
                           for i in range(connections)))
    return counts


def metrics(url):
    with urllib.request.urlopen(url + "/metrics") as f:
        lines = [line.split() for line in f.read().decode().splitlines() if line[0] != "#"]
    return {name.removeprefix("ca_serve_"): float(value) for name, value in lines}


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


async def idle(url):
    for _ in range(300):
        m = await asyncio.to_thread(metrics, url)
        if not m["running"] and not m["waiting"] and m["pages"] == m["pages_free"]:
            return True
        await asyncio.sleep(.1)
    return False


async def warm(url, pid, address, requests, connections):
    """Tenths of the requests until memory stays as it is, twice: its size."""
    size, still = memory(pid), 0
    for i in range(12):
        if still == 2:
            break
        await batch(address, max(requests // 10, 2 * connections), connections, 10 + i)
        if not await idle(url):
            sys.exit("slots or pages are lost after the first requests")
        now = memory(pid)
        still = 0 if now > size * 1.02 else still + 1
        size = now
    return size


async def main():
    url, pid, requests, connections = sys.argv[1].removesuffix("/v1"), *map(int, sys.argv[2:])
    u = urllib.parse.urlsplit(url)
    address = (u.hostname, u.port)
    before = await warm(url, pid, address, requests, connections)
    counts = await batch(address, requests, connections, 2)
    if not await idle(url):
        sys.exit("slots or pages are lost")
    after = memory(pid)
    print(f"answers by status (None: the client left): {counts}; "
          f"memory {before} KiB, then {after} KiB")
    if set(counts) - {200, 400, 429, None}:
        sys.exit("answers that were not to be expected")
    if after > before * 1.05 + 1024:
        sys.exit("memory has grown")


asyncio.run(main())
