"""Ending, after a restart, the programs that a killed service left running.

They are found in two ways. The process recorded for a run is recognised by its number and start
tick, and is killed with its group. If the death signal has ended that process and only children of
it remain, they are recognised by the mark that they inherited (:mod:`.process_marks`): it names the
service that started them, which no longer runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

from node.execution import process_marks, proctable

KILL_TIMEOUT_S = 10.0
"""Time for a killed group to disappear (s); longer means that it hangs in the kernel."""


def kill_recorded(pid: int, started_ticks: int) -> bool:
    """Kill the process group recorded before a restart, if ``pid`` is still the same process.

    Return whether it was. Blocks until the whole group is gone, usually a few milliseconds.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The pidfd is opened before the comparison, so the comparison is about its process.
        if proctable.identity(pid) != started_ticks:
            return False
        kill_group(pid)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def kill_orphans() -> list[int]:
    """Kill all programs on this host whose service is gone, whichever node it belonged to.

    Return their process ids. Blocks until they are gone, usually a few milliseconds.
    """
    killed = []
    while orphans := [
        (pid, mark)
        for pid, mark in process_marks.all_marked()
        if not proctable.is_alive(*process_marks.owner(mark))
    ]:
        fresh = [orphan for orphan in orphans if orphan[0] not in killed]
        if not fresh:  # the rest cannot be killed, or hangs
            break
        for pid, mark in fresh:
            process_marks.kill(pid, mark)
        for pid, _ in fresh:
            _await_exit(pid)
        killed += [pid for pid, _ in fresh]
    return killed


def kill_group(group: int) -> None:
    """Kill a group whose leader is not reaped yet, and wait until none of its members runs.

    That of another account is ended by its keeper (:mod:`.tool_runner_program`) meanwhile.
    """
    with contextlib.suppress(PermissionError):
        os.killpg(group, signal.SIGKILL)
    for member in proctable.living_members(group):
        _await_exit(member)


def _await_exit(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(KILL_TIMEOUT_S * 1_000)
        os.close(pidfd)
