# SPDX-License-Identifier: Apache-2.0
"""How a parked child waits before it starts CUDA, which would be in somebody's way."""
import fcntl
import os
import select

STEP_MS = 10


def try_lock(fd, how):
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share(gate, lease):
    """The lease, as lib/cu/lease.c takes it: whoever waits for it holds the gate."""
    if not try_lock(gate, fcntl.LOCK_SH):
        return False
    got = try_lock(lease, fcntl.LOCK_SH)
    fcntl.flock(gate, fcntl.LOCK_UN)
    return got


def wait(channel, parker, turn=None, gate=None, lease=None):
    """Until the tool that had us parked has gone (`parker` is at its end), then for our
    turn among those who are parked and for the device's lease.  Or until a tool takes
    us, which has a lease itself and says so on the channel."""
    waiting = select.poll()
    for fd in (channel.fileno(), parker):
        waiting.register(fd, select.POLLIN)
    seen = [fd for fd, _ in waiting.poll()]
    waiting.unregister(parker)
    while channel.fileno() not in seen:
        if turn is None or (try_lock(turn, fcntl.LOCK_EX) and share(gate, lease)):
            return
        seen = [fd for fd, _ in waiting.poll(STEP_MS)]
    if not channel.recv(64):
        os._exit(0)             # the host has gone
