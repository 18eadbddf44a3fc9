"""Pool tasks as their lead sees them: which terms are due, who sits where, and what policies keep.

Instants in microseconds; nodes by their identities.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from lead.model import (
    BookedRun,
    HeldSeat,
    Key,
    LostSeat,
    NextTerm,
    OpenTerm,
    PolicyMemory,
    PoolTask,
    PoolTaskCriteria,
    SeatGrant,
    UnplannedSeatTask,
)
from node.model import times
from node.model.task_terms import take_terms
from node.model.terms import Term
from node.store.database import Connection, Queries

_SQL = Queries("lead.store", "episodes")
_NEAR = times.HOUR
"""What is urgent and begins within this time goes before all else."""


async def terms_to_open(connection: Connection, now: int, limit: int) -> list[PoolTask]:
    """The pool tasks whose next term is due."""
    rows = await connection.fetch(_SQL["terms_to_open"], now, limit)
    return [_pool_task(dict(row)) for row in rows]


def _pool_task(row: dict[str, Any]) -> PoolTask:
    return PoolTask(terms=take_terms(row), **row)


async def due(connection: Connection, now: int, limit: int) -> list[PoolTask]:
    """The pool tasks with empty seats that are to be tried now, at most so many of each pool."""
    rows = await connection.fetch(_SQL["due"], now, limit, now + _NEAR)
    return [_pool_task(dict(row)) for row in rows]


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


async def go_on(connection: Connection, task: UUID, was: int, on: NextTerm) -> bool:
    """Where the terms of a task go on; False if that was changed meanwhile."""
    kept = await connection.fetchval(
        _SQL["go_on"], task, was, on.next_slot, on.due_at, on.rounds_left
    )
    return kept is not None


async def terms_due(
    connection: Connection, tasks: Sequence[UUID], now: int, enough: int, most: int
) -> tuple[list[OpenTerm], int]:
    """Their terms with empty seats that are to be tried first, by start; and how many others are.

    If some of them are urgent and begin within the hour, it is these. Else whole hours, because
    pools are shared by the hour: the nearest one, and the next ones as long as there are no more
    than ``enough`` terms. Never more than the ``most``.
    """
    near = now + _NEAR
    rows = await connection.fetch(_SQL["terms_due"], list(tasks), now, near, enough, most)
    found = [OpenTerm(row[0], Term(row[1], row[2]), *row[3:8]) for row in rows]
    return found, rows[0][8] - len(rows) if rows else 0


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


async def take(connection: Connection, key: Key, given: Sequence[SeatGrant], now: int) -> set[int]:
    """Give these seats; the numbers of those that were still to be had."""
    task, term = key
    yielding = {each.task: each.yielding for each in given}
    named = [(part, run) for part, runs in yielding.items() for run in runs or ()]
    starts = {each.task: each.starts for each in given}
    found = [(part, start) for part, listed in starts.items() for start in listed]
    await connection.execute(
        _SQL["adopt"],
        task,
        list(yielding),
        [runs is None for runs in yielding.values()],
        [part for part, _ in named],
        [run for _, run in named],
        [part for part, _ in found],
        [start for _, start in found],
    )
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
    connection: Connection,
    opened: OpenTerm,
    tries: int,
    try_at: int | None,
    reason: str | None,
    held: int = 0,
) -> bool:
    """When the empty seats of a term are tried again (None: none is empty, or it is too late).

    False if something of it was changed since it was read, or fewer seats are ``held`` than this:
    then nothing is written, and it is still due.
    """
    written = await connection.fetchval(
        _SQL["tried"],
        *opened.key,
        tries,
        try_at,
        reason,
        opened.tries,
        opened.try_at,
        opened.seats,
        held,
    )
    return written is not None


async def lacks(connection: Connection, said: Mapping[UUID, str | None]) -> list[UUID]:
    """What the pools of these tasks lack, if anything; for which that is something new, by id."""
    rows = await connection.fetch(_SQL["lacks"], list(said), list(said.values()))
    return sorted(row[0] for row in rows)


async def lost_with_their_tasks(connection: Connection, now: int) -> list[LostSeat]:
    """The seats whose tasks have ended are empty from now on; those that were lost by that."""
    rows = await connection.fetch(_SQL["lost_with_their_tasks"], now)
    return [LostSeat(*row) for row in rows]


async def times_lost(connection: Connection, task: UUID) -> int:
    """How often a seat that this ordinary task has was lost before, in the same term."""
    return int(await connection.fetchval(_SQL["times_lost"], task))


async def asking(connection: Connection) -> list[PoolTaskCriteria]:
    """Every active pool task."""
    return [PoolTaskCriteria(*row) for row in await connection.fetch(_SQL["asking"])]


async def try_all(connection: Connection, now: int) -> None:
    """Have nodes looked for now, for every seat that is empty."""
    await connection.execute(_SQL["try_all"], now)


async def put_off(connection: Connection, tasks: Sequence[UUID], now: int, try_at: int) -> None:
    """Their terms that are due are not tried before then."""
    await connection.execute(_SQL["put_off"], list(tasks), now, try_at)


async def sitting(connection: Connection, now: int) -> list[HeldSeat]:
    """Every seat that is held in a term that is not over."""
    return [HeldSeat(*row) for row in await connection.fetch(_SQL["sitting"], now)]


async def seats_ahead(
    connection: Connection, pool: str, since: int, until: int, limit: int
) -> list[UUID]:
    """The ordinary tasks of seats of a pool whose terms begin in this time, the youngest first."""
    rows = await connection.fetch(_SQL["seats_ahead"], pool, since, until, limit)
    return [row[0] for row in rows]


async def policy_state(connection: Connection, pool: str) -> PolicyMemory:
    """What the policies of a pool remember; nothing at first."""
    row = await connection.fetchrow(_SQL["policy_state"], pool)
    return PolicyMemory({}, 0) if row is None else PolicyMemory(row[0], row[1])


async def keep_policy_state(
    connection: Connection, pool: str, remembered: PolicyMemory, now: int
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


async def booked(
    connection: Connection, since: int, until: int, nodes: Sequence[str], limit: int
) -> list[BookedRun]:
    """The runs led here that lie in this time on these nodes, by start."""
    rows = await connection.fetch(_SQL["booked"], since, until, list(nodes), limit)
    return [BookedRun(**dict(row)) for row in rows]


async def to_come(connection: Connection, nodes: Sequence[str]) -> list[UnplannedSeatTask]:
    """The tasks with seats on these nodes of which nothing is planned yet."""
    return [UnplannedSeatTask(*row) for row in await connection.fetch(_SQL["to_come"], list(nodes))]


async def tests_of(
    connection: Connection, tasks: Collection[UUID]
) -> dict[UUID, tuple[str, dict[str, Any]]]:
    """By task, what it measures: the test and its fields."""
    rows = await connection.fetch(_SQL["tests_of"], sorted(tasks))
    return {row[0]: (row[1], row[2]) for row in rows}


async def failed(
    connection: Connection, since: int, nodes: Sequence[str]
) -> dict[tuple[str, str], int]:
    """By node and campaign, how many runs of seats have failed since then."""
    rows = await connection.fetch(_SQL["failed"], since, list(nodes))
    return {(row[0], row[1]): row[2] for row in rows}


async def notify(connection: Connection, tasks: Sequence[UUID], word: str) -> None:
    """Tell whoever watches these tasks."""
    await connection.execute(_SQL["notify"], [f"task {task} {word}" for task in tasks])
