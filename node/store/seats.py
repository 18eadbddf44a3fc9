"""Pool tasks led here: what they ask for, their terms, and who has their seats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Queries, Record

_SQL = Queries("node.store", "seats")


@dataclass(frozen=True)
class TermProgress:
    """With which slot the next term begins, when it is due, and how many rounds are left.

    No ``next_slot``: there are no more terms. No ``rounds_left``: as many as there are slots.
    """

    next_slot: int | None
    due_at: int | None
    rounds_left: int | None = None


async def keep(
    connection: Connection, task: UUID, pool: str, request: dict[str, Any], on: TermProgress | None
) -> bool:
    """What a pool task asks for, and where its terms go on (None: where they would have).

    False if the pool is not there (any more).
    """
    where = (None, None, None) if on is None else (on.next_slot, on.due_at, on.rounds_left)
    kept = await connection.fetchval(
        _SQL["keep_pool_task"], task, pool, request, on is not None, *where
    )
    return kept is not None


async def stop_seating(connection: Connection, pool: str) -> None:
    """Until the transaction ends no task comes to this pool, and none of it is given a seat."""
    await connection.execute(_SQL["stop_seating"], pool)


async def request_of(connection: Connection, task: UUID) -> dict[str, Any] | None:
    """What a pool task asks of its pool; None if it is none."""
    found: dict[str, Any] | None = await connection.fetchval(_SQL["request_of"], task)
    return found


async def go_on(
    connection: Connection, following: Mapping[UUID, int | None], now: int
) -> set[UUID]:
    """Resumed: no term begins before this slot, what is due is due now; which are pool tasks."""
    given = list(following), list(following.values())
    return {row[0] for row in await connection.fetch(_SQL["goes_on"], *given, now)}


async def wake(connection: Connection, tasks: Sequence[UUID], now: int) -> list[UUID]:
    """Have nodes looked for now for the empty seats of these tasks; which had any."""
    return [row[0] for row in await connection.fetch(_SQL["wake_refused_seats"], list(tasks), now)]


async def plan_anew(connection: Connection, pool: str, now: int) -> list[UUID]:
    """What is reserved of a pool has changed: who plans its seats' tasks is too late, and again.

    Nobody else plans one of them before the transaction ends. Those that have all they want are
    not planned again. Which tasks are planned now.
    """
    return [row[0] for row in await connection.fetch(_SQL["plan_anew"], pool, now)]


async def finish(connection: Connection, now: int) -> list[tuple[UUID, str]]:
    """End the pool tasks whose terms are over, and the tasks of their seats with them; how each."""
    return [(row[0], row[1]) for row in await connection.fetch(_SQL["finish_pool_tasks"], now)]


async def tasks_of(connection: Connection, task: UUID) -> list[UUID]:
    """The ordinary tasks that have its seats and are not over."""
    return [row[0] for row in await connection.fetch(_SQL["seat_tasks"], task)]


async def lock_tasks_of(connection: Connection, task: UUID) -> list[UUID]:
    """The same; none of them ends, or is changed by others, until the transaction ends."""
    return [row[0] for row in await connection.fetch(_SQL["lock_seat_tasks"], task)]


async def listed(connection: Connection, task: UUID, since: int) -> list[Record]:
    """Its seats in the terms that are not over by then, for people."""
    rows: list[Record] = await connection.fetch(_SQL["seats"], task, since)
    return rows


async def nodes_of(connection: Connection, task: UUID) -> dict[UUID, dict[int, str]]:
    """By ordinary task of a pool task, the numbers of its seats and who has them."""
    found: dict[UUID, dict[int, str]] = {}
    for part, number, node in await connection.fetch(_SQL["nodes_of"], task):
        found.setdefault(part, {})[number] = node
    return found


async def look_again(
    connection: Connection, task: UUID, seats: int, now: int, *, over: bool
) -> None:
    """Its terms have so many seats from now on and are looked at now; or they are ``over``."""
    await connection.execute(_SQL["look_again"], task, seats, now, over)


async def lose_ended(connection: Connection, task: UUID, now: int) -> None:
    """The seats whose ordinary tasks were just ended are empty."""
    await connection.execute(_SQL["lose_ended"], task, now)


@dataclass(frozen=True)
class SeatWait:
    """So many runs of the seats of a pool task wait for this, the first at that slot."""

    reason: str
    runs: int
    slot: int
    nodes: tuple[str, ...]


async def waiting(connection: Connection, task: UUID, most: int) -> list[SeatWait]:
    """What the runs of the seats of a pool task wait for; by name, whose seats these are."""
    rows = await connection.fetch(_SQL["waiting_in_seats"], task, most)
    return [SeatWait(row[0], row[1], row[2], tuple(row[3])) for row in rows]


async def before(connection: Connection, task: UUID, now: int) -> tuple[str, int] | None:
    """Its pool, and how many terms of others are due there before its own or in the same hour.

    None if there are none, or if no term of its own is due.
    """
    row = await connection.fetchrow(_SQL["before_in_turn"], task, now)
    return None if row is None else (row[0], row[1])


async def purge(connection: Connection, before: int, at_most: int) -> int:
    """Delete terms that were over before then, with their seats; how many, no more than this.

    What the choice of nodes still goes by stays, and whatever has runs.
    """
    return len(await connection.fetch(_SQL["purge_terms"], before, at_most))
