"""The runs of this node that are measured at the same time. Pure: callers pass the time.

The launcher keeps them in memory. It alone measures here, and a restart ends every run anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.circumstances import NEIGHBOURS_MAX, Neighbour

_ORDER = {each: rank for rank, each in enumerate(SchedulingClass)}


@dataclass(eq=False)
class ConcurrentRun:
    """A run that is measured here, and the runs that overlap it."""

    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    began: int
    ended: int | None = None
    met: list[ConcurrentRun] = field(default_factory=list)
    met_count: int = 0

    def meet(self, other: ConcurrentRun) -> None:
        """Note an overlapping run; of many, keep the first of the classes that disturb most."""
        self.met_count += 1
        self.met.append(other)
        if len(self.met) > NEIGHBOURS_MAX:
            self.met.sort(key=lambda run: _ORDER[run.scheduling_class])
            self.met.pop()


class NeighbourTracker:
    """The runs that are being measured now."""

    def __init__(self) -> None:
        """Start with no runs."""
        self._current: dict[UUID, ConcurrentRun] = {}

    def enter(self, run: ConcurrentRun) -> None:
        """Add a run that begins; it overlaps all current ones."""
        for other in self._current.values():
            other.meet(run)
            run.meet(other)
        self._current[run.run] = run

    def leave(self, run: ConcurrentRun, now: int) -> tuple[Neighbour, ...]:
        """Remove a run and return those it overlapped, with durations; none on a second call."""
        self._current.pop(run.run, None)
        run.ended = now
        # Drop the references: in a chain of overlapping runs each would keep all before it alive.
        met, run.met = run.met, []
        return tuple(_neighbour(run, other, now) for other in met)


def _neighbour(run: ConcurrentRun, other: ConcurrentRun, now: int) -> Neighbour:
    together = (now if other.ended is None else other.ended) - max(run.began, other.began)
    return Neighbour(
        run=other.run,
        task=other.task,
        test=other.test,
        scheduling_class=other.scheduling_class,
        overlap_ms=max(0, together) / times.MILLISECOND,
    )
