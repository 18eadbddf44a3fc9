"""A forecast of which due runs will start too late if campaigns are served in turn. Pure.

A measurement is not suspended for another one, so this is simpler than a simulation of slices: a
seat that becomes free goes to the campaign with the highest standing, which is charged the whole
duration of what it starts at once. Durations are known, hence so are the starts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from lead.policy.share.recent_work import WorkItem


def forecast(
    work: Sequence[WorkItem],
    free_at: Sequence[int],
    shares: Mapping[str, float],
    recent: Mapping[str, float],
) -> dict[str, int]:
    """Return when each task starts (µs), in the order of the starts.

    ``work`` is in the order of arrival, ``free_at`` has the instant at which each seat becomes
    free, and ``recent`` is in seat-µs. Work that needs more seats than exist is left out.
    """
    queues: dict[str, list[WorkItem]] = {}
    for it in reversed(work):
        if it.seats <= len(free_at):
            queues.setdefault(it.campaign, []).append(it)
    heap = [_standing(name, recent.get(name, 0.0), shares) for name in queues]
    heapq.heapify(heap)
    seats = sorted(free_at)
    starts: dict[str, int] = {}
    while heap:
        _, name, work_done = heap[0]
        it = queues[name].pop()
        count = int(it.seats)
        # The run starts when the last of its seats becomes free.
        for _ in range(count - 1):
            heapq.heappop(seats)
        start = heapq.heapreplace(seats, seats[0] + it.duration)
        for _ in range(count - 1):
            heapq.heappush(seats, start + it.duration)
        starts[it.task] = start
        if queues[name]:
            heapq.heapreplace(heap, _standing(name, work_done + count * it.duration, shares))
        else:
            heapq.heappop(heap)
    return starts


def _standing(
    name: str, work_done: float, shares: Mapping[str, float]
) -> tuple[tuple[bool, float], str, float]:
    share = shares.get(name, 0.0)
    return (share <= 0, work_done / share if share > 0 else work_done), name, work_done


def late(work: Sequence[WorkItem], starts: Mapping[str, int]) -> list[WorkItem]:
    """Return the work that would start after its deadline, in the order of arrival."""
    return [
        it
        for it in work
        if it.deadline is not None and it.task in starts and starts[it.task] > it.deadline
    ]
