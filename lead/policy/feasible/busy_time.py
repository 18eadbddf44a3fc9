"""The busy hint: before which instant nothing new can start. Pure.

Work that must come first is put, in the order given, each on the seat with the least before it
(and on those after it, if it needs several). Whatever is asked for can start no earlier than where
the least burdened seat ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from lead.policy.share.recent_work import WorkItem


def busy_for(first: Iterable[WorkItem], seats: int) -> int:
    """How long (µs) no seat becomes free, with this work ahead of all else."""
    ends = [0] * seats
    for work in first:
        least = ends.index(min(ends))
        for offset in range(int(work.seats)):
            ends[(least + offset) % seats] += work.duration
    return min(ends, default=0)
