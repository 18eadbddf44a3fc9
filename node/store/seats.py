"""Pool tasks led here: their requests, their terms, and the holders of their seats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Record
from node.store.statements import Query, Statements, as_tuple, spread

_SQL = Statements("node.store", "seats")


@dataclass(frozen=True)
class TermProgress:
    """The first slot of the next term, when that term is due, and how many rounds are left.

    Without a ``next_slot`` there are no more terms. Without ``rounds_left`` there are as many
    rounds as slots.
    """

    next_slot: int | None
    due_at: int | None
    rounds_left: int | None = None


async def keep(
    connection: Connection, task: UUID, pool: str, request: dict[str, Any], on: TermProgress | None
) -> bool:
    """Store a pool task's request, and with ``on`` where its terms continue.

    Return False if there is no such pool (any more).
    """
    where = (None, None, None) if on is None else (on.next_slot, on.due_at, on.rounds_left)
    kept = await connection.fetchval(
        _SQL["keep_pool_task"], task, pool, request, on is not None, *where
    )
    return kept is not None


release: Query[[UUID, int], None] = _SQL.command("release")
"""Try all terms of a pool task now, and drop the holds and pauses of policies on them.

Policies hold or pause a task whose terms found no time again and again.
"""

stop_seating: Query[[str], None] = _SQL.command("stop_seating")
"""Lock a pool until the transaction ends, so that no task joins it and no seat is given."""

find_request: Query[[UUID], dict[str, Any] | None] = _SQL.value("request_of")
"""A pool task's request to its pool; None if it is not a pool task."""

resume_terms: Query[[Mapping[UUID, int | None], int], set[UUID]] = spread(_SQL.distinct("goes_on"))
"""Resume tasks, given with their next slot, and return those that are pool tasks.

No term of these begins before that slot, and what was due is due now.
"""

wake: Query[[Sequence[UUID], int], list[UUID]] = _SQL.column("wake_refused_seats")
"""Make the empty seats of these tasks due now; return the tasks that had any."""

plan_anew: Query[[str, int], list[UUID]] = _SQL.column("plan_anew")
"""Plan the tasks of a pool's seats again, because its reserved time has changed.

A worker that is planning one of them loses its lease, and none of them is planned before the
transaction ends. Tasks whose runs are all booked are not planned again. Return the tasks that
are.
"""

finish: Query[[int], list[tuple[UUID, str]]] = _SQL.rows("finish_pool_tasks", as_tuple)
"""End the pool tasks whose terms are over, and their seats' tasks; return each final state."""

seat_tasks: Query[[UUID], list[UUID]] = _SQL.column("seat_tasks")
"""The open ordinary tasks that have seats of a pool task."""

lock_seat_tasks: Query[[UUID], list[UUID]] = _SQL.column("lock_seat_tasks")
"""Lock the open ordinary tasks that have seats of a pool task, and return them."""

find_all: Query[[UUID, int], list[Record]] = _SQL.records("seats")
"""Rows of a pool task's seats in the terms that end after ``since``, for users."""


async def seats_by_task(connection: Connection, task: UUID) -> dict[UUID, dict[int, str]]:
    """Return by ordinary task of a pool task its seat numbers and their nodes."""
    found: dict[UUID, dict[int, str]] = {}
    for part, number, node in await connection.fetch(_SQL["nodes_of"], task):
        found.setdefault(part, {})[number] = node
    return found


async def reset_seats(
    connection: Connection, task: UUID, seats: int, now: int, *, over: bool
) -> None:
    """Give the terms of a pool task this many seats, and make them due.

    With ``over``, end the terms instead.
    """
    await connection.execute(_SQL["look_again"], task, seats, now, over)


empty_ended_seats: Query[[UUID, int], None] = _SQL.command("lose_ended")
"""Empty the seats whose ordinary tasks were just ended."""


@dataclass(frozen=True)
class SeatWait:
    """The runs of a pool task's seats that wait for one reason, and the first slot of them."""

    reason: str
    runs: int
    slot: int
    nodes: tuple[str, ...]


async def waiting_reasons(connection: Connection, task: UUID, most: int) -> list[SeatWait]:
    """Return the reasons for which runs of a pool task's seats wait, with the nodes' names."""
    rows = await connection.fetch(_SQL["waiting_in_seats"], task, most)
    return [SeatWait(row[0], row[1], row[2], tuple(row[3])) for row in rows]


terms_before: Query[[UUID, int], tuple[str, int] | None] = _SQL.row("before_in_turn", as_tuple)
"""The pool of a task, and how many terms of other tasks come before its next one.

Those are the terms due before its own, or in its hour. None if there are none, or if no term of
its own is due.
"""


async def purge(connection: Connection, before: int, at_most: int) -> int:
    """Delete at most ``at_most`` terms that were over before then; return how many.

    Terms that the choice of nodes still depends on, and those with runs, stay.
    """
    return len(await connection.fetch(_SQL["purge_terms"], before, at_most))
