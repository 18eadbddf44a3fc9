"""Intervals of long runs: the shares of participants, and the merged results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.intervals import Interval, Rhythm
from node.store.database import Connection, Record
from node.store.statements import Query, Statements, as_tuple

_SQL = Statements("node.store", "intervals")


@dataclass(frozen=True)
class SignedInterval(Interval):
    """A participant's share of an interval, with its statement about it, if its node signs."""

    signature: str | None = None


@dataclass(frozen=True)
class OpenInterval:
    """An interval that lacks a participant's share; ``parts`` are the others by participant."""

    number: int
    parts: dict[str, dict[str, Any]]
    merged: bool


@dataclass(frozen=True)
class MergedInterval:
    """A merged interval and its line for lists; once ``complete``, no share is missing."""

    interval: Interval
    summary: str | None
    complete: bool


async def keep(
    connection: Connection,
    run: UUID,
    starts_at: int,
    rhythm: Rhythm,
    participant: int,
    given: Sequence[SignedInterval],
) -> None:
    """Store a participant's share of some intervals, and create those before them."""
    parts = [
        {"result": each.result, "reason": each.reason, "signature": each.signature}
        for each in given
    ]
    numbers = [each.number for each in given]
    grid = (starts_at, rhythm.length)
    await connection.execute(_SQL["keep_intervals"], run, *grid, str(participant), numbers, parts)
    await create_first(connection, run, starts_at, rhythm, 1 + max(numbers))


async def create_first(
    connection: Connection, run: UUID, starts_at: int, rhythm: Rhythm, count: int
) -> None:
    """Create the first ``count`` intervals of a run, whether or not they have shares."""
    await connection.execute(_SQL["fill_intervals"], run, starts_at, rhythm.length, count)


incomplete_intervals: Query[[UUID, Sequence[int] | None], list[OpenInterval]] = _SQL.rows(
    "open_intervals", OpenInterval
)
"""The incomplete intervals of a run, merged or not: all, or only those of these numbers."""


async def merge(
    connection: Connection, run: UUID, merged: Sequence[MergedInterval], now: int
) -> None:
    """Store merged intervals."""
    await connection.execute(
        _SQL["merge_intervals"],
        run,
        now,
        [each.interval.number for each in merged],
        [each.interval.result for each in merged],
        [each.summary for each in merged],
        [each.interval.reason for each in merged],
        [each.complete for each in merged],
    )


async def count_sent(connection: Connection, run: UUID, participant: int, count: int) -> int:
    """Return for how many of the first ``count`` intervals a participant has sent its share."""
    return int(await connection.fetchval(_SQL["told_intervals"], run, count, str(participant)))


overdue_intervals: Query[[int], list[tuple[UUID, list[int]]]] = _SQL.rows(
    "overdue_intervals", as_tuple
)
"""The intervals that ended before then and are not merged, by run."""

merged_intervals: Query[[UUID], list[Interval]] = _SQL.rows("measured_intervals", Interval)
"""All merged intervals of a run in their order, gaps included."""

interval_records: Query[[UUID, int], list[Record]] = _SQL.records("recorded_intervals")
"""The first intervals of a run with the participants' shares, in their order."""

find_first: Query[[UUID, int | None, int | None, int], list[Record]] = _SQL.records(
    "intervals_forward"
)
"""A page of a run's intervals; none is listed before those that precede it.

Takes ``run``, ``beyond``, ``since``, ``limit``.
"""

find_last: Query[[UUID, int | None, int | None, int], list[Record]] = _SQL.records(
    "intervals_backward"
)
"""A page as that of :data:`find_first`, the last intervals first."""
