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
from node.store.statements import Query, Statements, as_tuple, spread

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


keep: Query[[PostedRecord], None] = spread(_SQL.command("keep_posted"))
"""Store a posted task, in the transaction that stores the task itself."""


async def fetch(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, PostedRecord]:
    """Return those of these tasks that were posted in this form, by id."""
    rows = await connection.fetch(_SQL["posted"], list(tasks))
    return {row["task"]: PostedRecord(**dict(row)) for row in rows}


find_page: Query[[PostedFilter], list[Record]] = spread(_SQL.records("list_posted"))
"""Posted tasks with what has become of them: rows of the query ``list_posted``."""


async def count_runs(connection: Connection, task: UUID) -> tuple[int, int]:
    """Return how many runs of a task were booked, and how many of them began."""
    [row] = await connection.fetch(_SQL["count_runs"], task)
    return (row["runs"], row["started"])


count_by_state: Query[[int | None, int | None], dict[str, int]] = _SQL.by_key("count_by_state")
"""The number of runs by state that overlap a span; None is no bound.

Takes ``since``, ``before``.
"""

last_run_times: Query[[], tuple[int | None, int | None]] = _SQL.only_row("last_runs", as_tuple)
"""Return when the last run has finished, and when the latest one was booked."""


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

find_runs: Query[[ToldFilter], list[Record]] = spread(_SQL.records("told_runs"))
"""Runs without their results: rows of the query ``told_runs``."""

find_last_runs: Query[[ToldFilter], list[Record]] = spread(_SQL.records("told_runs_backward"))
"""Runs as :data:`find_runs` returns them, the last ones first."""

find_intervals: Query[[UUID, int | None, int | None, int], list[Record]] = _SQL.records(
    "told_intervals"
)
"""The merged intervals of a task's long runs: rows of the query ``told_intervals``.

Takes ``task``, ``since``, ``before``, ``limit``.
"""
