"""File descriptors: how many this process may have, and what to say when there are none left.

A program that is held takes four: its two streams, what it waits for, and its exit.
"""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Iterator

from node.model.errors import HostError

WANTED = 65_536
"""Enough for every run there can be; programs that close all they may have do so in no time."""


def allow_many() -> int:
    """Raise this process's soft limit as far as it may, to :data:`WANTED`; returns the new one.

    The programs it starts have it as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


@contextlib.contextmanager
def described(wanted: str) -> Iterator[None]:
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
