"""Which due runs will be late, if every campaign is served in turn: seen before it happens. Pure.

A measurement is not set aside for another one, so this is simpler than a simulation in turns: a
seat that becomes free goes to the campaign that stands highest, which is charged the whole of what
it starts at once. Durations are known, hence so are the starts.
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
    """When each task starts (µs), in the order in which they do.

    ``work`` is in the order of arrival, ``free_at`` says of each seat when it becomes free, and
    ``recent`` is in seat-µs. Work that needs more seats than there are is left out.
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
        _, name, had = heap[0]
        it = queues[name].pop()
        count = int(it.seats)
        # The last of the seats that it takes is the one that becomes free last.
        for _ in range(count - 1):
            heapq.heappop(seats)
        start = heapq.heapreplace(seats, seats[0] + it.duration)
        for _ in range(count - 1):
            heapq.heappush(seats, start + it.duration)
        starts[it.task] = start
        if queues[name]:
            heapq.heapreplace(heap, _standing(name, had + count * it.duration, shares))
        else:
            heapq.heappop(heap)
    return starts


def _standing(
    name: str, had: float, shares: Mapping[str, float]
) -> tuple[tuple[bool, float], str, float]:
    share = shares.get(name, 0.0)
    return (share <= 0, had / share if share > 0 else had), name, had


def late(work: Sequence[WorkItem], starts: Mapping[str, int]) -> list[WorkItem]:
    """Those that would start after their deadline, in the order of arrival."""
    return [
        it
        for it in work
        if it.deadline is not None and it.task in starts and starts[it.task] > it.deadline
    ]
