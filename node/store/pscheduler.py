"""The documents of tasks that were posted in the form of pScheduler, as they were posted.

A document is passed as text, so that it comes back exactly: JSON has numbers that Python and
Postgres would write in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Record
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "pscheduler")


@dataclass(frozen=True)
class PostedRecord:
    """A posted task; ``document`` is None once the task was edited by other means.

    Its private members are null; ``secret`` has them, and is None if there are none.
    ``detail`` has what does not change: participants, words, hints. ``participant`` is this node's
    number in the task. ``requester`` is the address from which it came. With a ``key``, who knows
    it may change the task from everywhere.
    """

    task: UUID
    document: str | None
    secret: str | None
    detail: dict[str, Any]
    participant: int
    key: str | None
    requester: str


@dataclass(frozen=True)
class PostedFilter:
    """Documents to list, oldest first.

    A document must contain the JSON text ``document``, its detail the JSON text ``detail``.
    """

    document: str | None = None
    detail: str | None = None
    enabled: bool | None = None
    requester: str | None = None


async def keep(connection: Connection, record: PostedRecord) -> None:
    """Store a posted task, in the transaction that stores the task itself."""
    await connection.execute(
        _SQL["keep_posted"],
        record.task,
        record.document,
        record.secret,
        record.detail,
        record.participant,
        record.key,
        record.requester,
    )


async def fetch(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, PostedRecord]:
    """Return those of these tasks that were posted in this form, by id."""
    rows = await connection.fetch(_SQL["posted"], list(tasks))
    return {row["task"]: PostedRecord(**dict(row)) for row in rows}


async def find_page(connection: Connection, wanted: PostedFilter) -> list[Record]:
    """Return posted tasks with what has become of them: rows of the query ``list_posted``."""
    rows: list[Record] = await connection.fetch(
        _SQL["list_posted"], wanted.document, wanted.detail, wanted.enabled, wanted.requester
    )
    return rows


async def count_runs(connection: Connection, task: UUID) -> tuple[int, int]:
    """Return how many runs of a task were booked, and how many of them began."""
    [row] = await connection.fetch(_SQL["count_runs"], task)
    return (row["runs"], row["started"])


count_by_state: Query[[int | None, int | None], dict[str, int]] = _SQL.by_key("count_by_state")
"""The number of runs by state that overlap a span; None is no bound.

Takes ``since``, ``before``.
"""


async def last_run_times(connection: Connection) -> tuple[int | None, int | None]:
    """Return when the last run has finished, and when the latest one was booked."""
    [row] = await connection.fetch(_SQL["last_runs"])
    return (row["finished"], row["scheduled"])


@dataclass(frozen=True)
class ToldFilter:
    """Runs to list, by start: of a task, or of all; bounds are instants, None is no bound."""

    task: UUID | None = None
    ends_after: int | None = None
    ends_by: int | None = None
    starts_after: int | None = None
    starts_before: int | None = None
    limit: int = 1000
    waiting: bool = False
    """True to list runs that have no time yet, too."""
    requester: str | None = None
    """The address from which their tasks were posted."""


find_run: Query[[UUID, UUID], Record | None] = _SQL.record("told_run")
"""A run of a task: a row of the query ``told_run``; None if it is unknown here.

Takes ``run``, ``task``.
"""


async def find_runs(
    connection: Connection, wanted: ToldFilter, *, backward: bool = False
) -> list[Record]:
    """Return runs without their results: rows of the query ``told_runs``."""
    query = _SQL["told_runs_backward"] if backward else _SQL["told_runs"]
    rows: list[Record] = await connection.fetch(
        query,
        wanted.task,
        wanted.ends_after,
        wanted.ends_by,
        wanted.starts_after,
        wanted.starts_before,
        wanted.limit,
        wanted.waiting,
        wanted.requester,
    )
    return rows


find_intervals: Query[[UUID, int | None, int | None, int], list[Record]] = _SQL.records(
    "told_intervals"
)
"""The merged intervals of a task's long runs: rows of the query ``told_intervals``.

Takes ``task``, ``since``, ``before``, ``limit``.
"""
