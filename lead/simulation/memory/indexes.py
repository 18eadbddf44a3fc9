"""The indexes of the tables: rows ordered by an instant, by time span, and in groups."""

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
    """Rows ordered by an instant, and by their numbers at equal instants.

    The instants are stored contiguously, so that a search touches no row.
    """

    __slots__ = ("_instants", "_rows")

    def __init__(self) -> None:
        """Create an empty index."""
        self._instants = array("q")
        self._rows: list[R] = []

    def _place(self, instant: int, row: R) -> int:
        first = bisect_left(self._instants, instant)
        if first == len(self._rows) or self._instants[first] != instant:
            return first
        last = bisect_right(self._instants, instant, first)
        return bisect_left(self._rows, row.number, first, last, key=_number)

    def add(self, instant: int, row: R) -> None:
        """Insert a row."""
        place = self._place(instant, row)
        self._instants.insert(place, instant)
        self._rows.insert(place, row)

    def remove(self, instant: int, row: R) -> None:
        """Remove a row, which must be present under this instant."""
        place = self._place(instant, row)
        del self._instants[place]
        del self._rows[place]

    def __iter__(self) -> Iterator[tuple[int, R]]:
        """Yield all rows with their instants."""
        return zip(self._instants, self._rows, strict=True)

    def all(self) -> list[R]:
        """Return a copy of all rows."""
        return self._rows[:]

    def between(self, start: int, end: int) -> list[R]:
        """Return the rows in [start, end)."""
        first = bisect_left(self._instants, start)
        return self._rows[first : bisect_left(self._instants, end, first)]

    def since(self, start: int) -> Iterator[R]:
        """Yield the rows from an instant on; the table must not change meanwhile."""
        for place in range(bisect_left(self._instants, start), len(self._rows)):
            yield self._rows[place]

    def after(self, instant: int) -> list[R]:
        """Return the rows after an instant."""
        return self._rows[bisect_right(self._instants, instant) :]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def before(self, end: int) -> list[R]:
        """Return the rows before an instant."""
        return self._rows[: bisect_left(self._instants, end)]


_number = attrgetter("number")


class LaneIndex:
    """Runs by time span, grouped by the magnitude of their durations.

    A run of a group lasts less than ``1 << length`` microseconds, which bounds the search for
    overlaps to starts shortly before the span.
    """

    __slots__ = ("_by_length",)

    def __init__(self) -> None:
        """Create an empty index."""
        self._by_length: dict[int, OrderedRows[RunRow]] = {}

    def add(self, run: RunRow) -> None:
        """Add a run."""
        length = (run.ends_at - run.starts_at).bit_length()
        runs = self._by_length.get(length)
        if runs is None:
            runs = self._by_length[length] = OrderedRows()
        runs.add(run.starts_at, run)

    def remove(self, run: RunRow) -> None:
        """Remove a run."""
        length = (run.ends_at - run.starts_at).bit_length()
        self._by_length[length].remove(run.starts_at, run)

    def in_the_way(self, run: RunRow) -> bool:
        """Return whether another run overlaps this one."""
        start = run.starts_at
        for length, runs in self._by_length.items():
            for other in runs.between(start - (1 << length), run.ends_at):
                if other.ends_at > start and other is not run:
                    return True
        return False

    def touching(self, start: int, end: int) -> list[RunRow]:
        """Return the runs that overlap [start, end)."""
        overlapping: list[RunRow] = []
        for length, runs in self._by_length.items():
            nearby = runs.between(start - (1 << length), end)
            overlapping += [run for run in nearby if run.ends_at > start]
        return overlapping


class OrderedGroupedRows(Generic[K, R]):
    """Rows by a common key, each group ordered by an instant."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        """Create an empty index."""
        self._groups: dict[K, OrderedRows[R]] = {}

    def add(self, key: K, instant: int, row: R) -> None:
        """Add a row to its group."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = OrderedRows()
        group.add(instant, row)

    def remove(self, key: K, instant: int, row: R) -> None:
        """Remove a row from its group."""
        group = self._groups[key]
        group.remove(instant, row)
        if not len(group):
            del self._groups[key]

    def of(self, key: K) -> list[R]:
        """Return a copy of the group."""
        group = self._groups.get(key)
        return [] if group is None else group.all()

    def after(self, key: K, instant: int) -> list[R]:
        """Return the rows of a group after an instant."""
        group = self._groups.get(key)
        return [] if group is None else group.after(instant)


class GroupedRows(Generic[K, R]):
    """Rows by a common key, each group in the order of insertion."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        """Create an empty index."""
        self._groups: dict[K, dict[int, R]] = {}

    def add(self, key: K, row: R) -> None:
        """Add a row to its group."""
        group = self._groups.get(key)
        if group is None:
            self._groups[key] = {row.number: row}
        else:
            group[row.number] = row

    def remove(self, key: K, row: R) -> bool:
        """Remove a row from its group; return whether it was the last."""
        group = self._groups[key]
        del group[row.number]
        if not group:
            del self._groups[key]
            return True
        return False

    def of(self, key: K) -> list[R]:
        """Return a copy of the group."""
        group = self._groups.get(key)
        return [] if group is None else list(group.values())

    def count(self, key: K) -> int:
        """Return the number of rows of the group."""
        return len(self._groups.get(key, ()))

    def newest(self, key: K) -> R | None:
        """Return the row of the group that was inserted last."""
        group = self._groups.get(key)
        return None if group is None else group[max(group)]

    def __contains__(self, key: K) -> bool:
        """Return whether the group has any rows."""
        return key in self._groups
