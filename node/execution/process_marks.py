"""Marks in the environment, by which processes that left their program's group are found.

A program may give a child a session of its own (``setsid``, as daemons do), and no signal to the
group reaches that child. Its environment shows where it comes from, until it executes another
program with a new environment or overwrites its own. Against processes that hide from that, too,
only a cgroup helps (the systemd unit has one).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from node.execution import proctable, tool_terms
from node.runtime.threads import aside

VARIABLE = tool_terms.MARK
_ENVIRONMENT_BYTES = 131_072
_LOOKS = 2
"""Looks that must find nothing: one that became a zombie may have forked during the first one."""
_NUMBERS = count(1)
_MARKED = re.compile(rb"PARLEY_PART=([0-9]{1,10}\.[0-9]{1,20}\.[0-9]{1,20})")


def new_mark() -> str:
    """Return a value of :data:`VARIABLE` that is unique on this host since it booted."""
    own = os.getpid()
    return f"{own}.{proctable.identity(own)}.{next(_NUMBERS)}"


def marked_processes(mark: str) -> list[int]:
    """Return the living processes with this mark that we may inspect."""
    return _strays(mark)[0]


def owner(mark: str) -> tuple[int, int]:
    """Return the number and the start tick of the process that created this mark."""
    pid, ticks, _ = mark.split(".")
    return int(pid), int(ticks)


def all_marked() -> Iterator[tuple[int, str]]:
    """Yield every other living process that has a mark, with the mark.

    Only processes that we may inspect and that are in our PID namespace: in a container, the mark
    has the owner's number in the container's own numbering.
    """
    own = (os.getpid(), _pid_namespace("self"))
    for name in os.listdir("/proc"):  # noqa: PTH208 - three times faster
        if not name.isdecimal() or int(name) == own[0]:
            continue
        for entry in _environment(name).split(b"\0"):
            match = _MARKED.fullmatch(entry)
            if match and _pid_namespace(name) == own[1]:
                yield int(name), match[1].decode()


async def kill_marked(mark: str) -> None:
    """Kill all processes with this mark, and those they fork meanwhile; return when all are gone.

    The program that was started with the mark must have ended.
    """
    clean = 0
    while clean < _LOOKS:
        strays, certain = (
            _strays(mark) if clean else await aside(partial(_strays, mark), "look at processes")
        )
        clean = 0 if strays or not certain else clean + 1
        await proctable.wait_for_exits([pid for pid in strays if kill(pid, mark)])


def _strays(mark: str) -> tuple[list[int], bool]:
    """Return the processes with this mark, and whether no other one can have it.

    Another one may have it if a process ended during the look, since it may have forked one, or if
    one was just executing another program, since it then has no environment.
    """
    strays, certain = [], True
    _, since = owner(mark)
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - three times faster
        environment = _environment(pid)
        if f"{VARIABLE}={mark}".encode() in environment.split(b"\0"):
            strays.append(int(pid))
        elif not environment and os.access(f"/proc/{pid}/environ", os.R_OK):
            certain = certain and proctable.is_settled(int(pid), since)
        elif not environment:  # it has exited, or we may not inspect it
            certain = certain and Path(f"/proc/{pid}").exists()
    return strays, certain


def kill(pid: int, mark: str) -> bool:
    """Kill a process with this mark, but not another one that has got its number meanwhile.

    Returns whether it is being killed: not if it just has no mark, because it executes a program.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            if f"{VARIABLE}={mark}".encode() in _environment(str(pid)).split(b"\0"):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _pid_namespace(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/pid")  # noqa: PTH115 - not a path, but a name
    except OSError:
        return None


def _environment(pid: str) -> bytes:
    """Return the environment a process started with; nothing if it has exited or is not ours."""
    return proctable.read_small_file(f"/proc/{pid}/environ", _ENVIRONMENT_BYTES)
