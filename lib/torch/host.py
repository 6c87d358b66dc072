# SPDX-License-Identifier: Apache-2.0
"""The PyTorch host: imports torch once and forks a fresh child for every job.

    python3 -I host.py FD CACHE [FOLDER KEY IDLE]

FD is the tool's end of a SOCK_SEQPACKET channel, CACHE a directory for what is
built at first use.  With more arguments the host is one that tools share: FD listens
at FOLDER/KEY, and the host leaves when it had no tool for IDLE seconds (shared.py).
proto.h and ca-torch(5) describe the protocol.  No tensor operation and no parallel
region may ever run here: a child's first parallel operation would hang.
"""
import contextlib
import ctypes
import os
import sys

os.dup2(2, 1)                   # nothing but us writes to the tool's stdout
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIGKILL = 9
QUIET_MS = 50                   # a tool that starts has said by then what it wants
PARKED_MAX = 8
PARKED_LIKE = 2                 # of one kind
PARKED_SECONDS = 60             # then they go
GRACE_SECONDS = 2               # for children of a tool that has left to end by themselves
LINGER_SECONDS = 30             # for the tool, and for what does not end when it is killed
RECENT_SECONDS = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number, parent):
    """Ends this process when its parent does, which may have happened already."""
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__" and len(sys.argv) == 3:
    die_with_parent(SIGKILL, os.getppid())

import array  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402
import warnings  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def own_package():
    """Puts our modules under a name of their own: -I keeps this directory off sys.path, so
    that no task's `import state` finds ours."""
    warnings.simplefilter("ignore")     # torch's own, at its import
    package = types.ModuleType("catorch")
    package.__path__ = [HERE]
    sys.modules["catorch"] = package
    # Nothing here needs NumPy, and torch does without.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")


def known_children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
        return [int(pid) for pid in f.read().split()]


def end_as(status):
    """Ends this process the way another one did."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def compiles(req):
    return req["role"] == "compile" or bool(req.get("may_exec"))


class Job:
    """One child: its jail and its workshop."""

    def __init__(self, host, req):
        self.req = req
        self.env = host.env
        self.jail = host.jail.Jail(host.env.child, req)
        self.shop = None
        if compiles(req):
            self.shop = host.jail.Workshop(host.env.cache, req.get("cache"), self.jail)
            self.jail.rw.append(self.shop.path)
            self.jail.ro += self.env.compiled_headers()

    def run(self, role, fd):
        """In the child."""
        channel = self.env.settle(fd)
        child = role(channel, self.env, self.req, self)
        try:
            if self.jail.level:
                self.confine(channel)
        except Exception as exc:
            child.refuse = f"{type(exc).__name__}: {exc}"
        child.serve()

    def confine(self, channel):
        """Returns in the confined process only; this one waits for it."""
        host = os.getppid()
        self.jail.leave()
        die_with_parent(SIGKILL, host)          # forgotten with the uid
        pid = os.fork()
        if not pid:
            self.jail.enter()
            return
        channel.close()
        end_as(os.waitpid(pid, 0)[1])

    def ended(self):
        """In the host."""
        try:
            self.jail.ended()
        finally:
            if self.shop:
                self.shop.end()


class Client:
    """A tool that is connected."""

    def __init__(self, channel, known):
        self.channel = channel
        self.known = known      # it has shown that it may ask
        self.worked = False
        self.since = time.monotonic()
        self.held = []          # what is open until it and its children have ended
        self.pidfd = -1         # then: its process

    def hold(self, fds):
        """Takes descriptors over; the lease of a device, so that nobody's clock runs while
        contexts end."""
        if self.held or not fds:
            raise ValueError("hold needs descriptors, once")
        cred = self.channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pidfd = os.pidfd_open(struct.unpack("iII", cred)[0])
        for fd in fds:
            self.held.append(os.dup(fd))

    def ended(self):
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1

    def let_go(self):
        for fd in self.held:
            os.close(fd)
        self.held = []


class Parked:
    """A child that no code of others has run in: it waits for a tool that wants such a one.
    `kept` are the descriptors that go to that tool: its channel, and memory if any."""

    FIELDS = "role", "device", "jail", "node", "may_exec", "mem_bytes", "gpu", "queues"

    def __init__(self, req, registration, kept):
        self.pidfd = -1
        self.wish = self.wish_of(req)
        self.since = time.monotonic()
        self.held = []
        try:
            for fd in (registration, *kept):
                self.held.append(os.dup(fd))
        except OSError:
            self.close()
            raise

    @property
    def kept(self):
        return self.held[1:]

    @classmethod
    def wish_of(cls, req):
        return [req.get(name) for name in cls.FIELDS]

    def close(self):
        for fd in self.held:
            os.close(fd)
        self.held = []


class Ending:
    """A child that has ended, and confined processes that have yet to, in the driver
    perhaps: others are not to wait for those meanwhile."""

    def __init__(self, pid, job, client, status, orphans):
        self.pid = pid
        self.job = job
        self.client = client
        self.status = status
        self.orphans = orphans


class Clearing:
    """One who lacks the memory of those who were parked waits for their end."""

    def __init__(self, client, name, parked):
        self.client = client
        self.name = name
        self.parked = parked    # descriptors of those who still live
        self.ended = 0
        self.since = time.monotonic()


class Host:
    def __init__(self, env, roles, jail, hello, door=None):
        self.env = env
        self.roles = roles
        self.jail = jail
        self.hello = hello
        self.door = door
        self.leaving = False
        self.served = 0
        self.began = time.monotonic()
        self.clients = {}       # descriptor -> Client
        self.children = {}      # pidfd -> (pid, job, client; None: parked)
        self.parked = []
        self.lingering = {}     # pidfd -> Client that has left, whose process may not have
        self.left = []          # clients for whom something is held
        self.orphans = {}       # pidfd -> (pid, since when)
        self.endings = []
        self.clearings = []
        self.later = []         # what is prepared when nobody wants a child
        self.poll = select.poll()
        if door:
            self.poll.register(door.listener, select.POLLIN)
            door.rely(env.files)

    # -- tools

    def admit(self, channel, known):
        client = Client(channel, known)
        self.clients[channel.fileno()] = client
        self.poll.register(channel, select.POLLIN)
        if known:
            self.send(client, self.hello)

    def drop(self, client):
        """The tool has left: its children end.  Where we hold something until they have,
        those that it killed, and those that see it gone, do so by themselves: to wait for
        the end of a context would keep other tools waiting."""
        fd = client.channel.fileno()
        if fd < 0:
            return
        del self.clients[fd]
        self.poll.unregister(fd)
        client.channel.close()
        if self.door and client.worked:
            self.door.since = time.monotonic()
        if client.held:
            client.since = time.monotonic()
            self.left.append(client)
            self.lingering[client.pidfd] = client
            self.poll.register(client.pidfd, select.POLLIN)
        else:
            self.kill_all(client)
            client.ended()

    def kill_all(self, client):
        for pid, _, owner in self.children.values():
            if owner is client:
                os.kill(pid, SIGKILL)

    def tool_ended(self, pidfd):
        client = self.lingering.pop(pidfd)
        self.poll.unregister(pidfd)
        client.ended()
        self.settle(client)

    def settle(self, client):
        """Nothing is held any more for one that has ended with all of its children."""
        if client.channel.fileno() < 0 and client.pidfd < 0 and \
                all(owner is not client for _, _, owner in self.children.values()) and \
                all(ending.client is not client for ending in self.endings):
            self.release(client)

    def release(self, client):
        client.let_go()
        if client in self.left:
            self.left.remove(client)

    def hurry(self):
        """Those that should have ended by themselves.  What does not end when it is killed,
        in the driver for ever, is not to keep the device from everybody."""
        now = time.monotonic()
        for client in list(self.left):
            if now - client.since > GRACE_SECONDS:
                self.kill_all(client)
            if now - client.since > LINGER_SECONDS:
                if client.pidfd in self.lingering:
                    self.tool_ended(client.pidfd)
                self.release(client)

    def send(self, client, value, fds=()):
        if client.channel.fileno() < 0:
            return
        try:
            socket.send_fds(client.channel, [json.dumps(value, separators=(",", ":")).encode()],
                            fds)
        except OSError:         # gone, or it does not listen
            self.drop(client)

    def greeted(self, client, req, fds):
        """The first request of a tool that shares this host."""
        if req.get("op") != "hello" or not self.door.knows(fds):
            self.drop(client)
            return
        client.known = True
        if self.leaving or self.door.outdated():
            self.leave()
            self.send(client, {"stale": True})
        else:
            self.send(client, self.hello)

    def leave(self):
        """Takes nobody any more, and ends when the tools that are here have left."""
        if not self.leaving:
            self.leaving = True
            self.poll.unregister(self.door.listener)
            self.door.close()

    def status(self, req, client):
        now = time.monotonic()
        others = [c for c in self.clients.values() if c is not client]
        self.send(client, {
            "id": req["id"], "pid": os.getpid(), "torch": self.hello["torch"],
            "leaving": self.leaving, "clients": len(others),
            "children": len(self.children) + len(self.orphans),
            "served": self.served, "age_s": round(now - self.began, 1),
            "parked": len(self.parked),
            "idle_s": 0 if others else round(now - self.door.since, 1),
            "memory_bytes": self.door.memory_bytes()})

    # -- children

    def reap_orphans(self):
        """Confined processes whose intermediate process was killed come to us.  Those that
        may be of one that has just ended: who came with another is told from them by time."""
        ours = {pid for pid, _, _ in self.children.values()}
        ours |= {pid for pid, _ in self.orphans.values()}
        now = time.monotonic()
        for pid in known_children():
            if pid not in ours:
                os.kill(pid, SIGKILL)
                pidfd = os.pidfd_open(pid)
                self.orphans[pidfd] = pid, now
                self.poll.register(pidfd, select.POLLIN)
        return {pidfd for pidfd, (_, since) in self.orphans.items()
                if now - since < RECENT_SECONDS}

    def orphan_ended(self, pidfd):
        self.poll.unregister(pidfd)
        os.waitpid(self.orphans.pop(pidfd)[0], 0)
        os.close(pidfd)
        for ending in list(self.endings):
            ending.orphans.discard(pidfd)
            if not ending.orphans:
                self.endings.remove(ending)
                self.report(ending)

    def reap(self, pidfd):
        pid, job, client = self.children.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        for parked in [p for p in self.parked if p.pidfd == pidfd]:
            self.parked.remove(parked)
            parked.close()
        ending = Ending(pid, job, client, status, self.reap_orphans())
        if ending.orphans:
            self.endings.append(ending)
        else:
            self.report(ending)

    def report(self, ending):
        """Of what was forked for that child nothing is left."""
        ending.job.ended()
        if ending.client:
            self.send(ending.client, {"exit": ending.pid, "status": ending.status})
            self.settle(ending.client)
        for clearing in list(self.clearings):
            if ending.pid in clearing.parked:
                clearing.parked.remove(ending.pid)
                clearing.ended += 1
            self.answer_cleared(clearing)

    def fork(self, job, fd):
        me = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent(SIGKILL, me)
            job.run(self.roles[job.req["role"]], fd)
        except BaseException:
            os._exit(70)
        os._exit(0)

    def begin(self, req, fd, client):
        """A child; the descriptor that it is known by."""
        job = Job(self, req)
        pid = None
        try:
            if self.door and job.jail.level < self.jail.LEVELS["uid"]:
                raise ValueError("a shared host forks confined children only")
            pid = self.fork(job, fd)
            pidfd = os.pidfd_open(pid)
        except BaseException:
            if pid:
                os.kill(pid, SIGKILL)
                os.waitpid(pid, 0)
                self.reap_orphans()
            job.ended()
            raise
        self.children[pidfd] = pid, job, client
        self.poll.register(pidfd, select.POLLIN)
        self.served += 1
        return pidfd

    def prepare(self, role, device=None):
        if self.env.prepare(role, device):
            settle_memory()
        if self.door:
            self.door.rely(self.env.files)

    def take(self, req, client):
        """Gives the tool a parked child, if one is as it wants it."""
        wish = Parked.wish_of(req)
        for parked in self.parked:
            if parked.wish == wish:
                break
        else:
            return False
        self.parked.remove(parked)
        pid, job, _ = self.children[parked.pidfd]
        self.children[parked.pidfd] = pid, job, client
        self.send(client, {"id": req["id"], "pid": pid, "parked": True}, parked.kept)
        parked.close()
        return True

    def expire(self):
        """Parked ones that nobody has wanted for a while hold memory of a GPU."""
        age = min(PARKED_SECONDS, self.door.idle)
        for parked in list(self.parked):
            if time.monotonic() - parked.since > age:
                self.discard(parked)

    def discard(self, parked):
        os.kill(self.children[parked.pidfd][0], SIGKILL)
        self.parked.remove(parked)      # nobody is to get it now
        parked.close()

    def unpark(self, req, client):
        """All of them end, for one who lacks the memory that they hold."""
        clearing = Clearing(client, req["id"],
                            {self.children[parked.pidfd][0] for parked in self.parked})
        for parked in list(self.parked):
            self.discard(parked)
        self.clearings.append(clearing)
        self.answer_cleared(clearing)

    def answer_cleared(self, clearing):
        if clearing.parked and time.monotonic() - clearing.since < LINGER_SECONDS:
            return
        self.clearings.remove(clearing)
        self.send(clearing.client, {"id": clearing.name, "ended": clearing.ended})

    def check_parking(self, req, fds):
        if not self.door or compiles(req) or not 3 <= len(fds) <= 4:
            raise ValueError("only a shared host parks, children that compile nothing")
        alike = [p for p in self.parked if p.wish == Parked.wish_of(req)]
        if len(self.parked) >= PARKED_MAX or len(alike) >= PARKED_LIKE:
            raise ValueError("no room for more parked children")

    def spawn(self, req, fds, client):
        park = req.get("park", False)
        if req.get("role") not in self.roles or (len(fds) != 1 and not park):
            raise ValueError("spawn needs a role and one descriptor")
        if park:
            self.check_parking(req, fds)
        elif req.get("parked") and self.take(req, client):
            return
        self.prepare("compile" if compiles(req) else req["role"], req.get("device"))
        if park:
            self.park(req, fds)
            return
        pid, job, _ = self.children[self.begin(req, fds[0], client)]
        note = {"note": job.shop.note} if job.shop and job.shop.note else {}
        self.send(client, {"id": req["id"], "pid": pid, **note})

    def park(self, req, fds):
        parked = Parked(req, fds[1], fds[2:])
        try:
            parked.pidfd = self.begin(req, fds[0], None)
        except BaseException:
            parked.close()
            raise
        self.parked.append(parked)

    # -- requests

    def answer(self, req, fds, client):
        if not client.known:
            self.greeted(client, req, fds)
        elif req["op"] == "spawn":
            client.worked = True
            self.spawn(req, fds, client)
        elif req["op"] == "prepare":
            client.worked = True
            self.later.append((req["role"], req["id"], client))
        elif self.door and req["op"] == "hold":
            client.hold(fds)
        elif self.door and req["op"] == "unpark":
            self.unpark(req, client)
        elif self.door and req["op"] in ("status", "leave"):
            if req["op"] == "leave":
                self.leave()
            self.status(req, client)
        else:
            raise ValueError("unknown op")

    def refuse(self, client, name, exc):
        kind = "" if isinstance(exc, ValueError) else f"{type(exc).__name__}: "
        self.send(client, {"id": name, "error": f"{kind}{exc}"[:500]})

    def prepare_one(self):
        role, name, client = self.later.pop(0)
        try:
            self.prepare(role)
        except Exception as exc:
            self.refuse(client, name, exc)
        else:
            self.send(client, {"id": name})

    def receive(self, client):
        """One request, or the tool's leave."""
        try:
            data, anc, _, _ = client.channel.recvmsg(65536, socket.CMSG_SPACE(4 * 8))
        except BlockingIOError:
            return
        except OSError:
            data, anc = b"", []
        fds = array.array("i")
        for level, kind, payload in anc:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[:len(payload) // 4 * 4])
        req = None
        try:
            if not data:
                self.drop(client)
                return
            req = json.loads(data)
            self.answer(req, fds, client)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as exc:
            self.refuse(client, req.get("id") if isinstance(req, dict) else None, exc)
        finally:
            for fd in fds:
                os.close(fd)

    # -- the loop

    def patience(self):
        """For how many milliseconds to wait for something to happen."""
        if self.later:
            return QUIET_MS
        if not self.door:
            return None
        if self.clients or self.children or self.orphans or self.left:
            return 1000
        return max(0, int((self.door.ends() - time.monotonic()) * 1000) + 1)

    def time_passed(self):
        """Nothing has happened for that long."""
        if self.later:
            self.prepare_one()
            return
        now = time.monotonic()
        for client in list(self.clients.values()):
            if not client.known and now - client.since > self.door.greet_s:
                self.drop(client)
        if self.clients:
            return
        if self.leaving or now >= self.door.ends():
            for parked in self.parked:
                os.kill(self.children[parked.pidfd][0], SIGKILL)
        if not self.children and now >= self.door.ends():
            self.leave()

    def happened(self, fd):
        if fd in self.children:
            self.reap(fd)
        elif fd in self.orphans:
            self.orphan_ended(fd)
        elif fd in self.lingering:
            self.tool_ended(fd)
        elif fd in self.clients:
            self.receive(self.clients[fd])
        elif self.door and not self.leaving:
            channel = self.door.accept()
            if channel:
                self.admit(channel, False)

    def run(self):
        while True:
            if not self.clients and not self.left and (self.leaving or not self.door):
                return
            events = self.poll.poll(self.patience())
            for fd, _ in events:
                self.happened(fd)
            if not events:
                self.time_passed()
            if self.parked:
                self.expire()
            if self.left:
                self.hurry()
            for clearing in list(self.clearings):
                self.answer_cleared(clearing)

    def end(self):
        for pid, _, _ in self.children.values():
            os.kill(pid, SIGKILL)
        jobs = [job for _, job, _ in self.children.values()]
        for pid, _, _ in self.children.values():
            os.waitpid(pid, 0)
        self.children = {}
        self.reap_orphans()
        for pid, _ in self.orphans.values():
            os.waitpid(pid, 0)
        for job in [*jobs, *(ending.job for ending in self.endings)]:
            job.ended()


@contextlib.contextmanager
def no_bytecode():
    """The toolkit's folder is not for writing to."""
    sys.dont_write_bytecode, was = True, sys.dont_write_bytecode
    yield
    sys.dont_write_bytecode = was


def load(cache):
    """torch, and what children inherit from here."""
    with no_bytecode():
        from catorch import children, jail, setup
    env = setup.Env(HERE, cache)
    return env, children.ROLES, jail, env.hello()


def settle_memory():
    """What is here now is no garbage: children need not look through it, which takes
    each of them a tenth of a second and copies of all the pages."""
    gc.collect()
    gc.freeze()


def leave_at_once(*_):
    raise SystemExit


def serve(host):
    settle_memory()
    if host.door:
        signal.signal(signal.SIGTERM, leave_at_once)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        host.run()
    except SystemExit:
        host.leave()
    finally:
        host.end()


def main():
    fd, cache, place = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    own_package()
    with no_bytecode():
        from catorch import shared
    if place:
        shared.detach()
        door = shared.Door(fd, *place)
    else:
        channel = socket.socket(fileno=fd)
        channel.set_inheritable(False)
    try:
        parts = load(cache)
    except Exception as exc:
        why = json.dumps({"error": f"{type(exc).__name__}: {exc}"[:2000]}).encode()
        if place:
            door.refuse_all(why)
        else:
            channel.send(why)
        return 1
    host = Host(*parts, door if place else None)
    if not place:
        host.admit(channel, True)
    serve(host)
    return 0


if __name__ == "__main__":
    # Python would take a second to tear torch down, and the tool waits.
    os._exit(main())
