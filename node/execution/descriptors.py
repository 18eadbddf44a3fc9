"""File descriptors: the limit of this process, and the error when none are left.

A program that is held ready takes four: its two streams, the pipe it waits on, and its exit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

from node.model.errors import HostError

DESCRIPTORS_WANTED = 65_536
"""Enough for all runs, and low enough that programs which close every descriptor stay fast."""


def allow_many() -> int:
    """Raise this process's soft limit towards :data:`DESCRIPTORS_WANTED`, and return the new limit.

    The programs that it starts inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


@contextlib.contextmanager
def explain_exhaustion(purpose: str) -> Iterator[None]:
    """Wrap a system call that needs a descriptor; ``purpose`` says what for.

    :raises HostError: no descriptor is left.
    """
    try:
        yield
    except OSError as fault:
        if fault.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        raise HostError(
            f"no file descriptor is left for {purpose}: too many programs run at the same time; "
            "raise the limit (LimitNOFILE of the unit, or ulimit -n)"
        ) from fault


def check_spare(count: int, purpose: str) -> None:
    """Check that this process may open more descriptors.

    :raises HostError: it may not.
    """
    with contextlib.ExitStack() as opened, explain_exhaustion(purpose):
        for _ in range(count):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
