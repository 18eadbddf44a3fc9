"""Pool tasks as their lead sees them: which terms are due, who sits where, and what policies keep.

Instants in microseconds; nodes by their identities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.seating import Term
from node.store.database import Connection, Queries
from node.store.seats import GoingOn

_SQL = Queries("lead.store", "seats")

Key = tuple[UUID, int]
"""A term: its pool task and its first slot."""


@dataclass(frozen=True)
class PoolTask:
    """A pool task with something to do for it."""

    id: UUID
    test: str
    spec: dict[str, Any]
    tools: list[str]
    scheduling_class: str
    duration: int
    priority: int
    schedule: dict[str, Any]
    campaign: str | None
    reference: Any
    created_at: int
    revision: int
    pool: str
    request: dict[str, Any]
    next_slot: int | None
    due_at: int | None
    rounds_left: int | None


@dataclass(frozen=True)
class OpenTerm:
    """A term; no run of it can start later than ``over_at``, and it was tried so often."""

    task: UUID
    term: Term
    over_at: int
    seats: int
    tries: int = 0

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.task, self.term.starts_at


@dataclass(frozen=True)
class Sitting:
    """A seat that is held, with what is asked of who holds it."""

    task: UUID
    term: int
    number: int
    node: str
    seat_task: UUID
    pool: str
    test: str
    spec: dict[str, Any]
    tools: list[str]
    request: dict[str, Any]


@dataclass(frozen=True)
class Given:
    """A seat that is given to a node, and the ordinary task for its runs."""

    number: int
    node: str
    task: UUID


async def due(connection: Connection, now: int, limit: int) -> list[PoolTask]:
    """The pool tasks with a term that is due, or with empty seats that are to be tried."""
    return [PoolTask(**dict(row)) for row in await connection.fetch(_SQL["due"], now, limit)]


async def next_due(connection: Connection) -> int | None:
    """When the next of them has."""
    found: int | None = await connection.fetchval(_SQL["next_due"])
    return found


async def open_terms(connection: Connection, terms: Sequence[OpenTerm], now: int) -> None:
    """New terms, all of whose seats are empty."""
    await connection.execute(
        _SQL["open_terms"],
        [each.task for each in terms],
        [each.term.starts_at for each in terms],
        [each.term.ends_at for each in terms],
        [each.over_at for each in terms],
        [each.seats for each in terms],
        [now for _ in terms],
    )


async def go_on(connection: Connection, task: UUID, was: int, on: GoingOn) -> bool:
    """Where the terms of a task go on; False if that was changed meanwhile."""
    kept = await connection.fetchval(
        _SQL["go_on"], task, was, on.next_slot, on.due_at, on.rounds_left
    )
    return kept is not None


async def terms_due(connection: Connection, tasks: Sequence[UUID], now: int) -> list[OpenTerm]:
    """Their terms with empty seats that are to be tried, by start."""
    return [
        OpenTerm(row[0], Term(row[1], row[2]), *row[3:])
        for row in await connection.fetch(_SQL["terms_due"], list(tasks), now)
    ]


async def taken(connection: Connection, terms: Sequence[Key]) -> dict[Key, dict[int, str]]:
    """By term and number, who sits there."""
    found: dict[Key, dict[int, str]] = {key: {} for key in terms}
    for task, term, number, node in await connection.fetch(_SQL["taken"], *_columns(terms)):
        found[task, term][number] = node
    return found


async def measured_to(connection: Connection, terms: Sequence[Key]) -> dict[Key, dict[int, int]]:
    """By term and number of a lost seat, the last slot that was measured before it was lost."""
    found: dict[Key, dict[int, int]] = {key: {} for key in terms}
    for task, term, number, slot in await connection.fetch(_SQL["measured_to"], *_columns(terms)):
        found[task, term][number] = slot
    return found


def _columns(terms: Sequence[Key]) -> tuple[list[UUID], list[int]]:
    return [task for task, _ in terms], [term for _, term in terms]


async def last_holders(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, dict[int, str]]:
    """By task and number, who had the seat last and did not lose it."""
    found: dict[UUID, dict[int, str]] = {task: {} for task in tasks}
    for task, number, node in await connection.fetch(_SQL["last_holders"], list(tasks)):
        found[task][number] = node
    return found


async def used_at(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
    """By task and node, the start of the last term in which it had a seat."""
    found: dict[UUID, dict[str, int]] = {task: {} for task in tasks}
    for task, node, at in await connection.fetch(_SQL["used_at"], list(tasks)):
        found[task][node] = at
    return found


async def revision_of(connection: Connection, task: UUID) -> int | None:
    """The revision of an active task, which does not change until the transaction ends."""
    found: int | None = await connection.fetchval(_SQL["revision_of"], task)
    return found


async def take(connection: Connection, key: Key, given: Sequence[Given], now: int) -> set[int]:
    """Give these seats; the numbers of those that were still to be had."""
    task, term = key
    await connection.execute(_SQL["adopt"], task, sorted({each.task for each in given}))
    rows = await connection.fetch(
        _SQL["take"],
        task,
        term,
        now,
        [each.number for each in given],
        [each.node for each in given],
        [each.task for each in given],
    )
    return {row[0] for row in rows}


async def tried(
    connection: Connection, key: Key, tries: int, try_at: int | None, reason: str | None
) -> None:
    """When the empty seats of a term are tried again (None: none is empty, or it is too late)."""
    await connection.execute(_SQL["tried"], *key, tries, try_at, reason)


async def lacks(connection: Connection, task: UUID, reason: str | None) -> None:
    """What the pool of this task lacks, if anything."""
    await connection.execute(_SQL["lacks"], task, reason)


async def lost_with_their_tasks(connection: Connection, now: int) -> list[Key]:
    """Seats whose tasks have ended are empty from now on; in which terms there were any."""
    rows = await connection.fetch(_SQL["lost_with_their_tasks"], now)
    return [(row[0], row[1]) for row in rows]


async def sitting(connection: Connection, now: int) -> list[Sitting]:
    """Every seat that is held in a term that is not over."""
    return [Sitting(*row) for row in await connection.fetch(_SQL["sitting"], now)]


@dataclass(frozen=True)
class Remembered:
    """What the policies of a pool remember, and how often that was changed."""

    state: Mapping[str, Any]
    revision: int


async def policy_state(connection: Connection, pool: str) -> Remembered:
    """What the policies of a pool remember; nothing at first."""
    row = await connection.fetchrow(_SQL["policy_state"], pool)
    return Remembered({}, 0) if row is None else Remembered(row[0], row[1])


async def keep_policy_state(
    connection: Connection, pool: str, remembered: Remembered, now: int
) -> int | None:
    """Remember this from now on; the new revision, or None if another episode came first."""
    found: int | None = await connection.fetchval(
        _SQL["keep_policy_state"], pool, remembered.state, remembered.revision, now
    )
    return found


async def used_by_hour(
    connection: Connection, since: int, until: int, nodes: Sequence[str]
) -> list[tuple[str, int, int]]:
    """Campaign, hour, and what it was charged on these nodes: thousandths of a seat times µs."""
    rows = await connection.fetch(_SQL["used_by_hour"], since, until, list(nodes))
    return [(row[0], row[1], row[2]) for row in rows]
