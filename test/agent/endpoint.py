#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A scripted OpenAI-compatible model, for tests of what real servers do rarely.

endpoint.py SCRIPT            serves HTTP on a free port of 127.0.0.1, printed as first line
endpoint.py --stdio SCRIPT    reads request lines, writes answer lines (ca-agent --model-cmd)

SCRIPT is a JSON array of turns; the number of assistant messages in a request says which one it
gets (the last one again when there are no more).  Or it is {seed: S, turns: [...]}, and a
request's seed less S says it; or {scripts: [{code, turns}, ...]}, of which a request gets the one
whose code its user message shows.  A turn:
  content, calls [{name, args (object, or a string taken as it is), id}], finish, usage [p, c],
  message (instead of these), extra (members of the answer), wait (seconds before it, HTTP only),
  faults (before the answer, one for each attempt): {status, headers, body} | {reset} | {cut} |
  {stall: s} | {drip: s} | {empty} | {huge: bytes}
The server checks histories as real ones do: each call is answered, arguments are JSON; else 500.
"""
import asyncio
import hashlib
import json
import sys


def load(path):
    with open(path) as f:
        return json.load(f)


def complain(req):
    """What a strict server would find wrong with this history; None if nothing."""
    due = []
    for m in req["messages"]:
        if m["role"] == "tool":
            if not due or due.pop(0) != m["tool_call_id"]:
                return "a tool message answers no call, or not in order"
            continue
        if due:
            return f"calls without answer: {due}"
        for c in m.get("tool_calls", []):
            due.append(c["id"])
            if not isinstance(json.loads(c["function"]["arguments"]), dict):
                return "arguments are no object"
    return f"calls without answer: {due}" if due else None


def turn_of(script, req):
    n = sum(m["role"] == "assistant" for m in req["messages"])
    if "scripts" in script:
        user = next(m["content"] for m in req["messages"] if m["role"] == "user")
        script = next(s["turns"] for s in script["scripts"] if s["code"] in user)
    elif isinstance(script, dict):
        n, script = req["seed"] - script["seed"], script["turns"]
    return n, script[min(n, len(script) - 1)]


def answer(script, req):
    n, t = turn_of(script, req)
    message = t.get("message")
    if message is None:
        calls = [
            {
                "id": c.get("id", f"c{n}_{i}"),
                "type": "function",
                "function": {
                    "name": c["name"],
                    "arguments": c["args"] if isinstance(c["args"], str) else json.dumps(c["args"]),
                },
            }
            for i, c in enumerate(t.get("calls", []))
        ]
        message = {"role": "assistant", "content": t.get("content")}
        if calls:
            message["tool_calls"] = calls
    usage = t.get("usage", [100 + 10 * n, 10])
    finish = t.get("finish", "tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": message, "finish_reason": finish}
    choice.update(t.get("choice", {}))
    return {
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
        **t.get("extra", {}),
    }


def checked(script, body):
    """(status, answer) of a request that no fault is scripted for."""
    try:
        req = json.loads(body)
        bad = complain(req)
    except (ValueError, KeyError, TypeError) as e:
        bad = f"{type(e).__name__}: {e}"
    if bad:
        return 500, {"error": {"message": bad, "code": 500}}
    return 200, answer(script, req)


class Server:
    def __init__(self, script):
        self.script = script
        self.attempts = {}

    def fault(self, body):
        key = hashlib.sha256(body).digest()
        n = self.attempts[key] = self.attempts.get(key, -1) + 1
        faults = turn_of(self.script, json.loads(body))[1].get("faults", [])
        return faults[n] if n < len(faults) else None

    async def handle(self, reader, writer):
        try:
            while await self.one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = 0
        for line in head.split("\r\n"):
            if line.lower().startswith("content-length:"):
                length = int(line[15:])
        body = await reader.readexactly(length)
        fault = self.fault(body)
        if fault is None:
            status, got = checked(self.script, body)
            await asyncio.sleep(turn_of(self.script, json.loads(body))[1].get("wait", 0))
            return await self.say(writer, status, json.dumps(got).encode())
        return await self.misbehave(writer, body, fault)

    async def say(self, writer, status, body, headers=None, declared=None):
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json"]
        lines.append(f"Content-Length: {len(body) if declared is None else declared}")
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        return True

    async def misbehave(self, writer, body, fault):
        good = json.dumps(checked(self.script, body)[1]).encode()
        if "status" in fault:
            text = json.dumps(fault.get("body", {"error": {"message": "scripted"}})).encode()
            return await self.say(writer, fault["status"], text, fault.get("headers"))
        if "empty" in fault:
            text = json.dumps({"choices": [{"message": {"content": ""}}], "usage": {}}).encode()
            return await self.say(writer, 200, text)
        if "huge" in fault:
            return await self.say(writer, 200, b" " * fault["huge"] + good)
        if "cut" in fault:
            await self.say(writer, 200, good[: len(good) // 2], declared=len(good))
            return False
        if "reset" in fault:
            writer.transport.abort()
            return False
        if "stall" in fault:
            await asyncio.sleep(fault["stall"])
            return False
        await self.say(writer, 200, b"", declared=len(good))
        for i in range(0, len(good), 64):
            writer.write(good[i : i + 64])
            await writer.drain()
            await asyncio.sleep(fault["drip"])
        return True


async def serve(script):
    handle = Server(script).handle
    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=1 << 26, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def stdio(script):
    for line in sys.stdin:
        print(json.dumps(checked(script, line)[1]), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--stdio":
        stdio(load(sys.argv[2]))
    else:
        asyncio.run(serve(load(sys.argv[1])))
