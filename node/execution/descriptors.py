"""File descriptors: how many this process may have, and what to say when there are none left.

A program that is held takes four: its two streams, what it waits for, and its exit.
"""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Iterator

from node.model.errors import HostError

DESCRIPTORS_WANTED = 65_536
"""Enough for every run there can be; programs that close all they may have do so in no time."""


def allow_many() -> int:
    """Raise this process's soft limit towards :data:`DESCRIPTORS_WANTED`, and return the new limit.

    The programs it starts have it as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


@contextlib.contextmanager
def explain_exhaustion(wanted: str) -> Iterator[None]:
    """Around a system call that needs a descriptor.

    :raises HostError: there are none left.
    """
    try:
        yield
    except OSError as fault:
        if fault.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        raise HostError(
            f"no file descriptor is left for {wanted}: too much runs at the same time. "
            "Raise the limit (LimitNOFILE of the unit, or ulimit -n)"
        ) from fault
