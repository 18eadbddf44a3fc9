"""What a service that was killed outright has left running, ended after its restart.

Two ways lead to it. The process that was recorded for a run is recognised by its number and start
tick, and its group goes with it. Where the death signal has ended that one, and only what it forked
goes on, the mark that all of them have inherited (:mod:`.strays`) tells who started them; whoever
that was lives no more.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal

from node.execution import process_marks, proctable

KILL_TIMEOUT_S = 10.0
"""How long a killed group may take to disappear; longer means it hangs in the kernel."""


def kill_recorded(pid: int, started_ticks: int) -> bool:
    """Kill the process group recorded before a restart, if ``pid`` is still that very process.

    Returns whether it was there. Blocks until all of it is gone, usually for a few milliseconds.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The pidfd is taken before the comparison: what is compared is what the pidfd names.
        if proctable.identity(pid) != started_ticks:
            return False
        kill_group(pid)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def kill_orphans() -> list[int]:
    """Kill all that were started, on this host and by whatever node, by a service that is gone.

    Returns whom. Blocks until they are gone, usually for a few milliseconds.
    """
    killed = []
    while orphans := [
        (pid, mark)
        for pid, mark in process_marks.all_marked()
        if not proctable.is_alive(*process_marks.owner(mark))
    ]:
        fresh = [orphan for orphan in orphans if orphan[0] not in killed]
        if not fresh:  # it does not go away, or may not be killed
            break
        for pid, mark in fresh:
            process_marks.kill(pid, mark)
        for pid, _ in fresh:
            _await_exit(pid)
        killed += [pid for pid, _ in fresh]
    return killed


def kill_group(group: int) -> None:
    """Kill a group whose leader is not reaped yet, and wait until nobody of it runs."""
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
