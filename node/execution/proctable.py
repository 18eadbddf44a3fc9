"""Queries to the kernel's process table: who runs, since when, in which group, and until when.

This module only looks; :mod:`.process` starts and ends programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from node.execution.descriptors import explain_exhaustion

_STARTED, _MEMORY, _ARGUMENTS = 19, 20, 45
"""Fields of ``/proc/PID/stat`` from the third on: start tick, bytes of memory, address of argv."""


def identity(pid: int) -> int:
    """Return the clock tick since boot at which the process started, which with ``pid`` is unique.

    :raises ProcessLookupError: there is no such process.
    """
    return int(_stat_fields(pid)[_STARTED])


def is_alive(pid: int, ticks: int) -> bool:
    """Return whether the process ``pid`` that started at this tick runs; a zombie does not."""
    try:
        fields = _stat_fields(pid)
    except ProcessLookupError:
        return False
    return int(fields[_STARTED]) == ticks and fields[0] not in "ZX"


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal, and does nothing until the next one.

    :raises ProcessLookupError: there is no such process.
    """
    return _stat_fields(pid)[0] == "T"


def processor_ticks(pid: int) -> int:
    """Return the processor time of a process and its reaped children, in clock ticks.

    :raises ProcessLookupError: there is no such process; a zombie still counts.
    """
    return sum(int(ticks) for ticks in _stat_fields(pid)[11:15])


def living_members(group: int) -> list[int]:
    """Return the processes of a group that still run, without zombies."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []  # the usual case costs one system call
    except PermissionError:
        pass
    members = []
    for pid in _process_ids():
        with contextlib.suppress(ProcessLookupError):
            state, _, process_group, *_ = _stat_fields(pid)
            if int(process_group) == group and state not in "ZX":
                members.append(pid)
    return members


def working_in(directory: Path) -> list[int]:
    """Return the processes with this working directory that we may inspect."""
    pids = []
    for pid in _process_ids():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink() == directory:
                pids.append(pid)
    return pids


def read_small_file(path: str, length: int) -> bytes:
    """Read a small file of /proc in one go; return nothing if it is absent or not permitted."""
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


def is_settled(pid: int, since: int) -> bool:
    """Return whether a process is there and not just executing another program.

    While it does, it has memory and no arguments yet. Only of a process that we may inspect; one
    that started before the tick ``since`` counts as settled, since it may hide its arguments.
    """
    try:
        fields = _stat_fields(pid)
    except ProcessLookupError:
        return False
    is_executing = int(fields[_MEMORY]) > 0 and int(fields[_ARGUMENTS]) == 0
    return fields[0] in "ZX" or int(fields[_STARTED]) < since or not is_executing


async def wait_for_exits(pids: Sequence[int]) -> None:
    """Return when none of these processes runs any more; they need not be our children.

    :raises HostError: no file descriptor is left.
    """
    await asyncio.gather(*(_wait_for_exit(pid) for pid in pids))


async def _wait_for_exit(pid: int) -> None:
    """Return when the process has exited; it may be a zombie."""
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


def _process_ids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the third on (state, parent, …)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    return text.rpartition(")")[2].split()  # the second field, the name, may contain blanks and )
