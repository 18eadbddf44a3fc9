"""Processes that left the group of the program that forked them, found by what they inherited.

A program may give a child a session of its own (``setsid``, as daemons do); no signal to its group
reaches that child. Its environment does say whose it is, until it executes another program without
it or writes over it. Who hides from that, too, is held by a cgroup only (the systemd unit has one).
"""

from __future__ import annotations

import contextlib
import os
import signal
from itertools import count

from node.execution import proctable

VARIABLE = "PARLEY_PART"
_ENVIRONMENT_BYTES = 131_072
_NUMBERS = count(1)


def new_mark() -> str:
    """A value of :data:`VARIABLE` that no other program on this host has had since it booted."""
    own = os.getpid()
    return f"{own}.{proctable.identity(own)}.{next(_NUMBERS)}"


def marked(mark: str) -> list[int]:
    """The living processes with this mark, of those we may look at; 0.4 ms for 150 processes."""
    entry = f"{VARIABLE}={mark}".encode()
    return [
        int(name)
        for name in os.listdir("/proc")  # noqa: PTH208 - a third of the price
        if name.isdecimal() and entry in _environment(name).split(b"\0")
    ]


async def chase(mark: str) -> None:
    """Kill all that have this mark, also those that they fork meanwhile; returns when all are gone.

    Whoever has used the mark last must be gone.
    """
    while strays := marked(mark):
        for pid in strays:
            _kill(pid, mark)
        await proctable.exits(strays)


def _kill(pid: int, mark: str) -> None:
    """Kill one of them, but not a stranger who was given its number meanwhile."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            if f"{VARIABLE}={mark}".encode() in _environment(str(pid)).split(b"\0"):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _environment(pid: str) -> bytes:
    """The environment a process was started with; none of one that has exited or is another's."""
    return proctable.head_of(f"/proc/{pid}/environ", _ENVIRONMENT_BYTES)
