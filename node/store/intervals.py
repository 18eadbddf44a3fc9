"""What runs that last long have measured so far, interval by interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.intervals import Interval, Rhythm
from node.store.database import Connection, Queries, Record

_SQL = Queries("node.store", "intervals")


@dataclass(frozen=True)
class OpenInterval:
    """An interval that lacks a participant's share; ``parts`` are by participant."""

    number: int
    parts: dict[str, dict[str, Any]]
    merged: bool


@dataclass(frozen=True)
class MergedInterval:
    """What came of an interval; once ``complete``, nothing more is expected of it."""

    interval: Interval
    summary: str | None
    complete: bool


async def keep(
    connection: Connection,
    run: UUID,
    starts_at: int,
    rhythm: Rhythm,
    participant: int,
    given: Sequence[Interval],
) -> None:
    """Keep what a participant tells of some intervals, and make those before them known."""
    parts = [{"result": each.result, "reason": each.reason} for each in given]
    numbers = [each.number for each in given]
    grid = (starts_at, rhythm.length)
    await connection.execute(_SQL["keep_intervals"], run, *grid, str(participant), numbers, parts)
    await fill(connection, run, starts_at, rhythm, 1 + max(numbers))


async def fill(
    connection: Connection, run: UUID, starts_at: int, rhythm: Rhythm, count: int
) -> None:
    """Make the first ``count`` intervals of a run known, whether or not anybody told of them."""
    await connection.execute(_SQL["fill_intervals"], run, starts_at, rhythm.length, count)


async def incomplete(
    connection: Connection, run: UUID, numbers: Sequence[int] | None
) -> list[OpenInterval]:
    """Those intervals of a run (None: all) that were not complete when they were merged, or yet."""
    wanted = None if numbers is None else list(numbers)
    rows = await connection.fetch(_SQL["open_intervals"], run, wanted)
    return [OpenInterval(row[0], row[1], row[2] is not None) for row in rows]


async def merge(
    connection: Connection, run: UUID, merged: Sequence[MergedInterval], now: int
) -> None:
    """Keep what came of some intervals."""
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


async def told(connection: Connection, run: UUID, participant: int, count: int) -> int:
    """Of how many of the first ``count`` intervals a participant has told."""
    return int(await connection.fetchval(_SQL["told_intervals"], run, count, str(participant)))


async def overdue(connection: Connection, ended_before: int) -> list[tuple[UUID, list[int]]]:
    """Intervals that ended before then and have not been merged, by run."""
    rows = await connection.fetch(_SQL["overdue_intervals"], ended_before)
    return [(row[0], row[1]) for row in rows]


async def measured(connection: Connection, run: UUID) -> list[Interval]:
    """All intervals of a run that have been merged, gaps included, in their order."""
    return [Interval(*row) for row in await connection.fetch(_SQL["measured_intervals"], run)]


async def listed(
    connection: Connection,
    run: UUID,
    *,
    beyond: int | None,
    since: int | None,
    descending: bool,
    limit: int,
) -> list[Record]:
    """A page of a run's intervals for people; one is not listed before those that precede it."""
    query = _SQL["intervals_backward" if descending else "intervals_forward"]
    rows: list[Record] = await connection.fetch(query, run, beyond, since, limit)
    return rows
