"""The indexes of the tables: rows in the order of an instant, in time, and in groups."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from operator import attrgetter
from typing import Generic, TypeVar

from lead.simulation.memory.rows import RunRow, TableRow

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=TableRow)


class OrderedRows(Generic[R]):
    """Rows in the order of an instant, and of their numbers where that is equal.

    The instants lie side by side: a search looks at a few of them and at no row.
    """

    __slots__ = ("_instants", "_rows")

    def __init__(self) -> None:
        """Nothing yet."""
        self._instants = array("q")
        self._rows: list[R] = []

    def _place(self, instant: int, row: R) -> int:
        first = bisect_left(self._instants, instant)
        if first == len(self._rows) or self._instants[first] != instant:
            return first
        last = bisect_right(self._instants, instant, first)
        return bisect_left(self._rows, row.number, first, last, key=_number)

    def add(self, instant: int, row: R) -> None:
        """Put a row in its place."""
        place = self._place(instant, row)
        self._instants.insert(place, instant)
        self._rows.insert(place, row)

    def remove(self, instant: int, row: R) -> None:
        """Take it out; it must be there under this instant."""
        place = self._place(instant, row)
        del self._instants[place]
        del self._rows[place]

    def __iter__(self) -> Iterator[tuple[int, R]]:
        """All, with their instants."""
        return zip(self._instants, self._rows, strict=True)

    def all(self) -> list[R]:
        """All as they are now."""
        return self._rows[:]

    def between(self, start: int, end: int) -> list[R]:
        """Those in [start, end)."""
        first = bisect_left(self._instants, start)
        return self._rows[first : bisect_left(self._instants, end, first)]

    def since(self, start: int) -> Iterator[R]:
        """Those from an instant on; the table must not change meanwhile."""
        for place in range(bisect_left(self._instants, start), len(self._rows)):
            yield self._rows[place]

    def after(self, instant: int) -> list[R]:
        """Those after an instant."""
        return self._rows[bisect_right(self._instants, instant) :]

    def __len__(self) -> int:
        """How many."""
        return len(self._rows)

    def before(self, end: int) -> list[R]:
        """Those before an instant."""
        return self._rows[: bisect_left(self._instants, end)]


_number = attrgetter("number")


class LaneIndex:
    """Runs in time: those that touch a span are found among those of like duration."""

    __slots__ = ("_by_length",)

    def __init__(self) -> None:
        """Nothing yet."""
        self._by_length: dict[int, OrderedRows[RunRow]] = {}

    def add(self, run: RunRow) -> None:
        """It takes its time."""
        length = (run.ends_at - run.starts_at).bit_length()
        found = self._by_length.get(length)
        if found is None:
            found = self._by_length[length] = OrderedRows()
        found.add(run.starts_at, run)

    def remove(self, run: RunRow) -> None:
        """Its time is free."""
        length = (run.ends_at - run.starts_at).bit_length()
        self._by_length[length].remove(run.starts_at, run)

    def in_the_way(self, run: RunRow) -> bool:
        """Whether another run takes some of its time."""
        start = run.starts_at
        for length, runs in self._by_length.items():
            for other in runs.between(start - (1 << length), run.ends_at):
                if other.ends_at > start and other is not run:
                    return True
        return False

    def touching(self, start: int, end: int) -> list[RunRow]:
        """Those that take time in [start, end)."""
        found: list[RunRow] = []
        for length, runs in self._by_length.items():
            nearby = runs.between(start - (1 << length), end)
            found += [run for run in nearby if run.ends_at > start]
        return found


class OrderedGroupedRows(Generic[K, R]):
    """Rows that have something in common, each group in the order of an instant."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        """Nothing yet."""
        self._groups: dict[K, OrderedRows[R]] = {}

    def add(self, key: K, instant: int, row: R) -> None:
        """One more of a group."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = OrderedRows()
        group.add(instant, row)

    def remove(self, key: K, instant: int, row: R) -> None:
        """One less."""
        group = self._groups[key]
        group.remove(instant, row)
        if not len(group):
            del self._groups[key]

    def of(self, key: K) -> list[R]:
        """The group as it is now."""
        group = self._groups.get(key)
        return [] if group is None else group.all()

    def after(self, key: K, instant: int) -> list[R]:
        """Those of a group after an instant."""
        group = self._groups.get(key)
        return [] if group is None else group.after(instant)


class GroupedRows(Generic[K, R]):
    """Rows that have something in common, in the order they came."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        """Nothing yet."""
        self._groups: dict[K, dict[int, R]] = {}

    def add(self, key: K, row: R) -> None:
        """One more of a group."""
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = {row.number: row}
        else:
            group[row.number] = row

    def remove(self, key: K, row: R) -> bool:
        """One less; whether it was the last."""
        group = self._groups[key]
        del group[row.number]
        if not group:
            del self._groups[key]
            return True
        return False

    def of(self, key: K) -> list[R]:
        """The group as it is now."""
        group = self._groups.get(key)
        return [] if group is None else list(group.values())

    def newest(self, key: K) -> R | None:
        """The one that was inserted last."""
        group = self._groups.get(key)
        return None if group is None else group[max(group)]

    def __contains__(self, key: K) -> bool:
        """Whether there is anything in this group."""
        return key in self._groups
