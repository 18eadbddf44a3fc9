"""A hostile tool: it tries to get at the node and the host, and prints the outcome.

Its argument is a JSON object of what to try; see :mod:`test_hostile_tools`. It needs nothing but
the standard library, and is passed to an interpreter by ``-c``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

PTRACE_SEIZE = 0x4206
TIOCSTI = 0x5412
NEW_USER, NEW_NETWORK = 0x1000_0000, 0x4000_0000
NUMBERS = {"x86_64": (56, 435, 250, 425), "aarch64": (220, 435, 219, 425)}
"""The numbers of clone, clone3, keyctl and io_uring_setup, by machine."""
MEBIBYTE = 2**20


def outcome(attempt: Callable[[], object]) -> str:
    """Return ``done``, or the name of the error."""
    try:
        attempt()
    except (OSError, MemoryError) as fault:
        return type(fault).__name__
    return "done"


def names(directory: str) -> list[str]:
    """Return the names in a directory."""
    return [entry.name for entry in Path(directory).iterdir()]


def reach(path: str) -> None:
    """Connect to a socket in the file system."""
    with socket.socket(socket.AF_UNIX) as it:
        it.connect(path)


def datagram(path: str) -> None:
    """Send a datagram to a socket in the file system, as syslog does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as it:
        it.sendto(b"<34>of-a-tool", path)


def called(number: int) -> int:
    """Raise the error of a system call that has failed."""
    if number < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return number


def fork_by(call: int, *arguments: object) -> None:
    """Make a child by a system call."""
    if called(ctypes.CDLL(None, use_errno=True).syscall(call, *arguments)) == 0:
        os._exit(0)


def escapes() -> dict[str, Callable[[], object]]:
    """Return calls for which a tool has no use, by name."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone, clone3, keyctl, io_uring = NUMBERS[os.uname().machine]
    arguments = (ctypes.c_uint64 * 8)(NEW_USER, 0, 0, 0, signal.SIGCHLD)
    own = "/proc/self/ns/net"
    return {
        "unshare": lambda: called(libc.unshare(NEW_USER)),
        "clone": lambda: fork_by(clone, NEW_USER | signal.SIGCHLD, 0, 0, 0, 0),
        "clone3": lambda: fork_by(clone3, arguments, ctypes.c_size_t(64)),
        "setns": lambda: called(libc.setns(os.open(own, os.O_RDONLY), NEW_NETWORK)),
        "io_uring": lambda: called(libc.syscall(io_uring, 1, (ctypes.c_uint64 * 15)())),
        "sniff": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
        "keys": lambda: called(libc.syscall(keyctl, 0, -3, 1)),
        "connection": lambda: socket.socket().close(),
        "messages": lambda: socket.socket(type=socket.SOCK_SEQPACKET, proto=132).close(),
        "datagrams": lambda: socket.socket(type=socket.SOCK_DGRAM).close(),
        "type": lambda: called(libc.ioctl(0, ctypes.c_ulong(TIOCSTI), b"x")),
    }


def trace(pid: int) -> None:
    """Take over a process as a debugger does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) != 0:
        raise PermissionError


def trace_child() -> None:
    """Trace a process of one's own."""
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        trace(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.wait()


def fill_memory() -> None:
    """Take memory until there is no more."""
    taken = list[bytearray]()
    while len(taken) < 64:
        taken.append(bytearray(b"x") * 64 * MEBIBYTE)


def share_memory(processes: int, mebibytes: int) -> None:
    """Take memory in several processes, each only some, and wait for the end."""
    for _ in range(processes):
        if os.fork() == 0:
            break
    taken = bytearray(b"x") * mebibytes * MEBIBYTE
    while len(taken) <= mebibytes * MEBIBYTE:
        signal.pause()


def share_by_key() -> None:
    """Make memory of System V, which stays when every process is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (libc.shmget, libc.semget, libc.msgget):
        if call(0, ctypes.c_size_t(1), ctypes.c_int(0o1600)) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def fill_directory(directory: str) -> int:
    """Write files of a mebibyte until that is refused; return how many."""
    count, content = 0, bytes(MEBIBYTE)
    with contextlib.suppress(OSError):
        while count < 64:
            Path(directory, f"filler{count}").write_bytes(content)
            count += 1
    return count


def write_long(directory: str) -> None:
    """Write one long file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Path(directory, "long").open("wb") as file:
        for _ in range(500):
            file.write(bytes(MEBIBYTE))
            file.flush()


def open_many() -> int:
    """Open files until that is refused; return how many."""
    opened = list[int]()
    with contextlib.suppress(OSError):
        while len(opened) < 10_000:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    for descriptor in opened:
        os.close(descriptor)
    return len(opened)


def leave_daemon(token: str) -> None:
    """Leave a process of another session, without its environment, that ignores what ends it."""
    script = f": {token}; trap '' TERM HUP; while :; do sleep 77; done"
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for descriptor in range(3):
                os.close(descriptor)
            os.execve("/bin/sh", ["sh", "-c", script], {})
        os._exit(0)
    os.wait()


def bomb() -> None:
    """Fork without end, each process in a session of its own; print once when that is refused."""
    deadline, first = time.monotonic() + 60, os.getpid()
    while time.monotonic() < deadline:
        try:
            if os.fork() == 0:
                os.setsid()
        except OSError:
            if os.getpid() == first:
                os.write(1, b" refused")
                first = 0
    os._exit(0)


def rights() -> dict[str, Any]:
    """Return what this process runs with."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    return {
        "uid": os.getuid(),
        "environment": sorted(os.environ),
        "descriptors": sorted(int(name) for name in names("/proc/self/fd")),
        "capabilities": status["CapPrm"].strip(),
        "no_new": status["NoNewPrivs"].strip(),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "directory": names("."),
    }


def tried(asked: dict[str, Any]) -> dict[str, str]:
    """Return what became of each attempt to get at the node."""
    attempts: dict[str, Callable[[], object]] = {}
    for path in asked.get("read", ()):
        attempts[f"read {path}"] = Path(path).read_bytes
    for path in asked.get("list", ()):
        attempts[f"list {path}"] = partial(names, path)
    for path in asked.get("write", ()):
        attempts[f"write {path}"] = partial(Path(path).write_text, "")
    for path in asked.get("connect", ()):
        attempts[f"connect {path}"] = partial(reach, path)
    for path in asked.get("log", ()):
        attempts[f"log {path}"] = partial(datagram, path)
    for call in asked.get("call", ()):
        attempts[f"call {call}"] = escapes()[call]
    for pid in asked.get("attack", ()):
        attempts[f"signal {pid}"] = partial(os.kill, pid, signal.SIGCONT)
        attempts[f"trace {pid}"] = partial(trace, pid)
    return {what: outcome(attempt) for what, attempt in attempts.items()}


def filled() -> dict[str, Any]:
    """Fill what can be filled, and return how far that went."""
    return {
        "long": outcome(lambda: write_long(".")),
        "files": fill_directory("."),
        "open": open_many(),
        "nameless": outcome(lambda: os.memfd_create("of-a-tool")),
        "by key": outcome(share_by_key),
        "root": outcome(lambda: os.setuid(0)),
        "trace": outcome(trace_child),
    }


def exceed(asked: dict[str, Any]) -> None:
    """Take more than a tool may, of what is asked for."""
    if asked.get("memory"):
        fill_memory()
    if asked.get("long"):
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        Path("long").write_bytes(bytes(50 * MEBIBYTE))
    if asked.get("bomb"):
        bomb()
    if asked.get("hoard"):
        share_memory(4, asked["hoard"])
    if asked.get("crowd"):
        share_memory(asked["crowd"], 0)


def main() -> None:
    """Try what is asked for, and print a JSON object."""
    asked = json.loads(sys.argv[1])
    found: dict[str, Any] = {"rights": rights(), **tried(asked)}
    if asked.get("fill"):
        found |= filled()
    if asked.get("daemon"):
        leave_daemon(asked["token"])
    if asked.get("stay"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    exceed(asked)
    while asked.get("stay"):
        signal.pause()


if __name__ == "__main__":
    main()
