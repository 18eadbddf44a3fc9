"""Processes that left the group of the program that forked them, found by what they inherited.

A program may give a child a session of its own (``setsid``, as daemons do); no signal to its group
reaches that child. Its environment does say whose it is, until it executes another program without
it or writes over it. Who hides from that, too, is held by a cgroup only (the systemd unit has one).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from itertools import count

from node.execution import proctable

VARIABLE = "PARLEY_PART"
_ENVIRONMENT_BYTES = 131_072
_NUMBERS = count(1)
_MARKED = re.compile(rb"PARLEY_PART=([0-9]{1,10}\.[0-9]{1,20}\.[0-9]{1,20})")


def new_mark() -> str:
    """A value of :data:`VARIABLE` that no other program on this host has had since it booted."""
    own = os.getpid()
    return f"{own}.{proctable.identity(own)}.{next(_NUMBERS)}"


def marked_processes(mark: str) -> list[int]:
    """The living processes with this mark, of those we may look at; 0.4 ms for 150 processes."""
    entry = f"{VARIABLE}={mark}".encode()
    return [
        int(name)
        for name in os.listdir("/proc")  # noqa: PTH208 - a third of the price
        if name.isdecimal() and entry in _environment(name).split(b"\0")
    ]


def owner(mark: str) -> tuple[int, int]:
    """The number and the start tick of the process that has made this mark."""
    pid, ticks, _ = mark.split(".")
    return int(pid), int(ticks)


def all_marked() -> Iterator[tuple[int, str]]:
    """Every living process but this one that has a mark, and the mark.

    Of those that we may look at, and whose numbers of processes are ours: what runs in a container
    names its owner by a number of its own.
    """
    own = (os.getpid(), _numbering("self"))
    for name in os.listdir("/proc"):  # noqa: PTH208 - a third of the price
        if not name.isdecimal() or int(name) == own[0]:
            continue
        for entry in _environment(name).split(b"\0"):
            found = _MARKED.fullmatch(entry)
            if found and _numbering(name) == own[1]:
                yield int(name), found[1].decode()


async def kill_marked(mark: str) -> None:
    """Kill all that have this mark, also those that they fork meanwhile; returns when all are gone.

    Whoever has used the mark last must be gone.
    """
    while strays := marked_processes(mark):
        for pid in strays:
            kill(pid, mark)
        await proctable.wait_for_exits(strays)


def kill(pid: int, mark: str) -> None:
    """Kill one that has this mark, but not a stranger who was given its number meanwhile."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            if f"{VARIABLE}={mark}".encode() in _environment(str(pid)).split(b"\0"):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _numbering(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/pid")  # noqa: PTH115 - no path, but a name
    except OSError:
        return None


def _environment(pid: str) -> bytes:
    """The environment a process was started with; none of one that has exited or is another's."""
    return proctable.read_small_file(f"/proc/{pid}/environ", _ENVIRONMENT_BYTES)
