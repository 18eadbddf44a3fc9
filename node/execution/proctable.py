"""What the kernel's table of processes says: who runs, since when, in which group, and until when.

Only looks; what starts and ends programs is :mod:`.process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from node.execution.descriptors import explain_exhaustion


def identity(pid: int) -> int:
    """The clock tick since boot at which the process started: with its number, who it is.

    :raises ProcessLookupError: there is no such process.
    """
    return int(_stat(pid)[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether the process of that number that started at that tick runs; a zombie does not."""
    try:
        fields = _stat(pid)
    except ProcessLookupError:
        return False
    return int(fields[19]) == ticks and fields[0] not in "ZX"


def processor_ticks(pid: int) -> int:
    """Clock ticks of processor time that a process and those it has waited for have had.

    :raises ProcessLookupError: there is no such process; one that waits to be reaped is still.
    """
    return sum(int(ticks) for ticks in _stat(pid)[11:15])


def living_members(group: int) -> list[int]:
    """The processes of a group that still run; those that only wait to be reaped do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []  # the usual case, for the price of one system call
    except PermissionError:
        pass
    members = []
    for pid in _all():
        with contextlib.suppress(ProcessLookupError):
            state, _, process_group, *_ = _stat(pid)
            if int(process_group) == group and state not in "ZX":
                members.append(pid)
    return members


def working_in(directory: Path) -> list[int]:
    """The processes whose working directory this is, of those we may look at."""
    found = []
    for pid in _all():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink() == directory:
                found.append(pid)
    return found


def read_small_file(path: str, length: int) -> bytes:
    """A small file of /proc, read at once; nothing of one that is not there, or not for us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, length)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


async def wait_for_exits(pids: Sequence[int]) -> None:
    """Return when none of these processes runs any more; they need not be our children.

    :raises HostError: there are too few file descriptors.
    """
    await asyncio.gather(*(_exit_of(pid) for pid in pids))


async def _exit_of(pid: int) -> None:
    """Return when the process has exited; it may still wait to be reaped."""
    try:
        with explain_exhaustion(f"the exit of process {pid}"):
            pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(pidfd, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _all() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the third on: state, parent, group, session, and on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    return text.rpartition(")")[2].split()  # the second field, the name, may hold blanks and )
