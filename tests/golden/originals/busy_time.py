"""The busy hint: the instant before which nothing new can start. Pure.

Urgent work is assigned in the given order, each item to the seat with the least work before it (and
to the seats after it, if it needs several). Other work can start no earlier than the least loaded
seat becomes free.
"""

from __future__ import annotations

from collections.abc import Iterable

from lead.policy.share.recent_work import WorkItem


def busy_for(first: Iterable[WorkItem], seats: int) -> int:
    """Return how long (µs) no seat becomes free if this work is done before all else."""
    ends = [0] * seats
    for work in first:
        least = ends.index(min(ends))
        for offset in range(int(work.seats)):
            ends[(least + offset) % seats] += work.duration
    return min(ends, default=0)
