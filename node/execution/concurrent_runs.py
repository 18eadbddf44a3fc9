"""Which runs of this node were being measured at the same time. Pure: it is told the time.

Kept in memory by the launcher, which alone measures here: a restart ends every run anyway.
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
    """One run while it is measured here, and those it meets."""

    run: UUID
    task: UUID
    test: str
    scheduling_class: SchedulingClass
    began: int
    ended: int | None = None
    met: list[ConcurrentRun] = field(default_factory=list)
    met_count: int = 0

    def meet(self, other: ConcurrentRun) -> None:
        """It is here too; of many the weightiest classes are kept, the first to come first."""
        self.met_count += 1
        self.met.append(other)
        if len(self.met) > NEIGHBOURS_MAX:
            self.met.sort(key=lambda stay: _ORDER[stay.scheduling_class])
            self.met.pop()


class NeighbourTracker:
    """Who is here now."""

    def __init__(self) -> None:
        """Nobody."""
        self._here: dict[UUID, ConcurrentRun] = {}

    def enter(self, stay: ConcurrentRun) -> None:
        """A run begins; whoever is here meets it."""
        for other in self._here.values():
            other.meet(stay)
            stay.meet(other)
        self._here[stay.run] = stay

    def leave(self, stay: ConcurrentRun, now: int) -> tuple[Neighbour, ...]:
        """A run is over: those it met, with how long they were here together. Again, nobody."""
        self._here.pop(stay.run, None)
        stay.ended = now
        # Let go of them: in a row of runs that overlap, each would keep all before it for ever.
        met, stay.met = stay.met, []
        return tuple(_neighbour(stay, other, now) for other in met)


def _neighbour(stay: ConcurrentRun, other: ConcurrentRun, now: int) -> Neighbour:
    together = (now if other.ended is None else other.ended) - max(stay.began, other.began)
    return Neighbour(
        run=other.run,
        task=other.task,
        test=other.test,
        scheduling_class=other.scheduling_class,
        overlap_ms=max(0, together) / times.MILLISECOND,
    )
