"""The time of nodes in a rehearsal: what is taken there, by class, and what is left."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence

from lead.policy.view import PostedRun
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span, clip, normalise, subtract

Closed = Mapping[tuple[str, SchedulingClass], Sequence[Span]]
"""By node and class, when others leave no time for runs of that class: sorted and disjoint."""


class NodeTime:
    """The taken time of all nodes."""

    def __init__(self, closed: Closed) -> None:
        """``closed`` is taken throughout."""
        self._closed = closed
        self._taken: dict[tuple[str, SchedulingClass], list[Span]] = {}
        self._longest = 0

    def take(self, name: str, run: PostedRun) -> None:
        """Take the time of a run on a node."""
        insort(self._taken.setdefault((name, run.scheduling_class), []), (run.start, run.end))
        self._longest = max(self._longest, run.end - run.start)

    def leave(self, name: str, run: PostedRun) -> None:
        """Give the time of a run back."""
        self._taken[name, run.scheduling_class].remove((run.start, run.end))

    def free(self, names: Collection[str], kind: SchedulingClass, window: Span) -> FreeTime:
        """Return the time within the window that these nodes have for runs of a class."""
        return FreeTime(self, frozenset(names), kind, window)

    def taken_within(self, name: str, kind: SchedulingClass, window: Span) -> list[Span]:
        """Return what is taken within a window by runs that a run of this class must not meet."""
        found: list[Span] = []
        for other in blockers(kind):
            taken = self._taken.get((name, other), ())
            first = bisect_left(taken, (window[0] - self._longest,))
            last = bisect_left(taken, (window[1],))
            found += taken[first:last]
        return found

    def closed_within(self, name: str, kind: SchedulingClass, window: Span) -> Sequence[Span]:
        """Return when others leave no time within a window."""
        closed = self._closed.get((name, kind))
        return clip(closed, *window) if closed else ()


class FreeTime(Mapping[str, Sequence[Span]]):
    """The free time of nodes, computed for those that are looked at."""

    def __init__(
        self,
        time: NodeTime,
        names: frozenset[str],
        kind: SchedulingClass,
        window: Span,
        gone: Collection[PostedRun] = (),
    ) -> None:
        """``gone`` are runs that give way."""
        self._time = time
        self._names = names
        self._kind = kind
        self._window = window
        self._gone = gone

    def without(self, gone: Collection[PostedRun]) -> FreeTime:
        """Return the free time if these runs give way."""
        return FreeTime(self._time, self._names, self._kind, self._window, gone)

    def __getitem__(self, name: str) -> Sequence[Span]:
        """Return the free ranges of a node."""
        if name not in self._names:
            raise KeyError(name)
        taken = self._time.taken_within(name, self._kind, self._window)
        for run in self._gone:
            if name in run.nodes and (run.start, run.end) in taken:
                taken.remove((run.start, run.end))
        closed = self._time.closed_within(name, self._kind, self._window)
        return subtract([self._window], normalise([*taken, *closed]))

    def __contains__(self, name: object) -> bool:
        """Return whether a node was asked."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of nodes."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._names)
