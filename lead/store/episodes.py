"""The lead's tables of pool tasks: terms that are due, holders of seats, and states of policies.

A pool task has terms, a term has seats, and each held seat belongs to an ordinary task in which one
node measures. An episode reads due terms, chooses nodes, and writes what it gave. Between the two
others may edit, reserve, or give seats as well, so each write names what it was read from: a seat
is given only while it is empty, a term is put off only as it was read, where terms go on is moved
only from where it was, and the state of policies is stored only in the revision that was read. Who
comes second writes nothing and finds the term still due; no episode holds a lock while it asks
nodes.

Terms without time wait until ``try_at``; whatever may help them (freed time, changed attributes, an
ended task) only sets that instant to now. Instants are in microseconds; nodes are given by
identity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from lead.model.records import (
    HeldSeat,
    Key,
    LedRun,
    LostSeat,
    NextTerm,
    NextTry,
    OpenTerm,
    PolicyMemory,
    PoolTask,
    PoolTaskCriteria,
    SeatGrant,
    TurnedDown,
    UnplannedSeatTask,
)
from lead.store.planning import take_standing
from node.model import times
from node.model.spans import Span
from node.model.task_terms import take_terms
from node.model.terms import Term
from node.store import notices
from node.store.database import Connection
from node.store.statements import Query, Statements, as_tuple, spread

_SQL = Statements("lead.store", "episodes")
T = TypeVar("T")
_NEAR = times.HOUR
"""Urgent terms that begin within this time come before all others."""


async def _pool_tasks(connection: Connection, query: str, *values: object) -> list[PoolTask]:
    """Return the pool tasks whose ids a query finds, in its order."""
    ids = [row[0] for row in await connection.fetch(query, *values)]
    rows = map(dict, await connection.fetch(_SQL["pool_tasks"], ids) if ids else ())
    return [PoolTask(terms=take_terms(row), limit=take_standing(row), **row) for row in rows]


async def tasks_with_terms_to_open(connection: Connection, now: int, limit: int) -> list[PoolTask]:
    """Return the pool tasks whose next term is due."""
    return await _pool_tasks(connection, _SQL["terms_to_open"], now, limit)


async def tasks_with_empty_seats(connection: Connection, now: int, limit: int) -> list[PoolTask]:
    """Return the pool tasks with empty seats to be tried now, at most ``limit`` of each pool."""
    return await _pool_tasks(connection, _SQL["due"], now, limit, now + _NEAR)


async def tasks_of_pool(connection: Connection, pool: str) -> list[PoolTask]:
    """Return the active pool tasks of a pool, the oldest first."""
    return await _pool_tasks(connection, _SQL["of_pool"], pool)


async def terms_ahead(
    connection: Connection, tasks: Sequence[UUID], now: int, until: int
) -> list[OpenTerm]:
    """Return the terms of these tasks that are not over and begin before an instant."""
    rows = await connection.fetch(_SQL["terms_ahead"], list(tasks), now, until)
    return [OpenTerm(row[0], Term(row[1], row[2]), *row[3:]) for row in rows]


async def seats_of_terms(
    connection: Connection, tasks: Sequence[UUID], now: int
) -> list[tuple[UUID, Key, int]]:
    """Return the ordinary task, term, and number of each held seat in terms that are not over."""
    rows = await connection.fetch(_SQL["seats_of_terms"], list(tasks), now)
    return [(row[0], (row[1], row[2]), row[3]) for row in rows]


async def tasks_with_blocked_terms(
    connection: Connection, pool: str, now: int, limit: int
) -> list[PoolTask]:
    """Return the pool tasks with terms that found no time and are not to be tried again yet."""
    return await _pool_tasks(connection, _SQL["blocked"], pool, now, limit)


next_due_at: Query[[], int | None] = _SQL.value("next_due")
"""Return when the next term is due to be opened or tried, if there is one."""


async def open_terms(connection: Connection, terms: Sequence[OpenTerm], now: int) -> None:
    """Write new terms, with all their seats empty."""
    await connection.execute(
        _SQL["open_terms"],
        [each.task for each in terms],
        [each.term.starts_at for each in terms],
        [each.term.ends_at for each in terms],
        [each.over_at for each in terms],
        [each.seats for each in terms],
        [now for _ in terms],
    )


advance_terms: Query[[UUID, int, NextTerm], bool] = spread(_SQL.finds("go_on"))
"""Write where the terms of a task continue; False if that changed in the meantime.

The second argument is the next slot as it was read.
"""


async def due_terms(
    connection: Connection,
    tasks: Sequence[UUID],
    now: int,
    enough: int,
    most: int,
    *,
    blocked_to: int | None = None,
) -> tuple[list[OpenTerm], int]:
    """Return the due terms to be tried first, by start, and how many others are due.

    If some terms are urgent and begin within the hour, return these. Otherwise return whole hours,
    because pools are shared by the hour: the nearest hour, and the next ones as long as there are
    no more than ``enough`` terms. Never return more than ``most`` terms. With ``blocked_to``, also
    up to ``most`` terms that found no time before and are not due yet, of these hours and of those
    up to the one of that instant.
    """
    hour = None if blocked_to is None else blocked_to // times.HOUR
    rows = await connection.fetch(
        _SQL["terms_due"], list(tasks), now, now + _NEAR, enough, most, hour
    )
    found = [
        OpenTerm(row[0], Term(row[1], row[2]), row[3], row[4], row[5], row[6], row[7], row[9])
        for row in rows
    ]
    return found, rows[0][8] - sum(not term.blocked for term in found) if rows else 0


async def seat_holders(connection: Connection, terms: Sequence[Key]) -> dict[Key, dict[int, str]]:
    """Return the holders of seats, by term and seat number."""
    rows = await connection.fetch(_SQL["taken"], *_columns(terms))
    return _by_two(terms, (((task, term), *rest) for task, term, *rest in rows))


async def last_measured_slots(
    connection: Connection, terms: Sequence[Key]
) -> dict[Key, dict[int, int]]:
    """Return the last slot measured before a seat was lost, by term and seat number."""
    rows = await connection.fetch(_SQL["measured_to"], *_columns(terms))
    return _by_two(terms, (((task, term), *rest) for task, term, *rest in rows))


def _by_two(keys: Iterable[T], rows: Iterable[Iterable[Any]]) -> dict[T, dict[Any, Any]]:
    """Return the third columns by the first ones, which are among the keys, and the second ones."""
    found: dict[T, dict[Any, Any]] = {key: {} for key in keys}
    for key, part, value in rows:
        found[key][part] = value
    return found


def _columns(terms: Sequence[Key]) -> tuple[list[UUID], list[int]]:
    return [task for task, _ in terms], [term for _, term in terms]


async def last_holders(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, dict[int, str]]:
    """Return the last holder of each seat that did not lose it, by task and seat number."""
    return _by_two(tasks, await connection.fetch(_SQL["last_holders"], tasks))


async def last_use_by_node(
    connection: Connection, tasks: Sequence[UUID]
) -> dict[UUID, dict[str, int]]:
    """Return the start of the last term in which a node had a seat, by task and node."""
    return _by_two(tasks, await connection.fetch(_SQL["used_at"], tasks))


async def refusing_nodes(
    connection: Connection, tasks: Sequence[UUID], since: int
) -> dict[UUID, dict[str, TurnedDown]]:
    """Return by task which nodes have refused seats of it since an instant, and kept to that."""
    found: dict[UUID, dict[str, TurnedDown]] = {task: {} for task in tasks}
    rows = await connection.fetch(_SQL["turned_down"], list(tasks), since)
    for task, node, *refusals in rows:
        found[task][node] = TurnedDown(*refusals)
    return found


lock_revision: Query[[UUID], int | None] = _SQL.value("revision_of")
"""The revision of an active task, locked until the transaction ends."""


async def give_seats(
    connection: Connection, key: Key, given: Sequence[SeatGrant], now: int
) -> set[int]:
    """Give these seats, and return the numbers of those that were still empty."""
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


async def record_attempt(
    connection: Connection, opened: OpenTerm, following: NextTry, held: int = 0
) -> bool:
    """Write when the empty seats of a term are tried again, and why they are empty.

    Return False, and write nothing, if the term was changed since it was read, or if fewer seats
    are held than ``held``. The term is then still due.
    """
    written = await connection.fetchval(
        _SQL["tried"],
        *opened.key,
        following.tries,
        following.at,
        following.reason,
        opened.tries,
        opened.try_at,
        opened.seats,
        held,
        following.wants_room,
        list(following.misses),
    )
    return written is not None


async def set_lacks(connection: Connection, lacks_by_task: Mapping[UUID, str | None]) -> list[UUID]:
    """Write what the pools lack for these tasks, and return the tasks for which that changed."""
    rows = await connection.fetch(_SQL["lacks"], list(lacks_by_task), list(lacks_by_task.values()))
    return sorted(row[0] for row in rows)


empty_seats_of_ended_tasks: Query[[int], list[LostSeat]] = _SQL.rows(
    "lost_with_their_tasks", LostSeat
)
"""Empty the seats whose tasks have ended, and return these seats."""

count_losses: Query[[UUID], int] = _SQL.value("times_lost")
"""Return how often a seat of this ordinary task was lost before in the same term."""

active_criteria: Query[[], list[PoolTaskCriteria]] = _SQL.rows("asking", PoolTaskCriteria)
"""The criteria of every active pool task."""

retry_all_terms: Query[[int], None] = _SQL.command("try_all")
"""Make every term with empty seats due now."""


async def retry_terms_in(connection: Connection, spans: Sequence[Span], now: int) -> list[UUID]:
    """Make the terms that found no time in these spans due now; return their pool tasks."""
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    rows = await connection.fetch(_SQL["try_during"], starts, ends, now)
    return [row[0] for row in rows]


retry_terms_after: Query[[Collection[UUID], int], list[UUID]] = _SQL.column("try_after")
"""Make the terms due now that may have waited for these tasks; return their pool tasks."""


async def put_off(
    connection: Connection, tasks: Sequence[UUID], now: int, try_at: int, why: str | None = None
) -> None:
    """Put off the due terms of these tasks until ``try_at``; ``why`` is why their seats are empty.

    Without it, they keep the reason that they have.
    """
    await connection.execute(_SQL["put_off"], list(tasks), now, try_at, why)


held_seats: Query[[int], list[HeldSeat]] = _SQL.rows("sitting", HeldSeat)
"""Every held seat of a term that is not over."""

seat_tasks_ahead: Query[[str, int, int, int, int], list[UUID]] = _SQL.column("seats_ahead")
"""The seats' tasks of a pool whose terms begin in [since, until) and are not over, youngest first.

Takes ``pool``, ``since``, ``until``, ``limit``, ``now``.
"""


async def policy_state(connection: Connection, pool: str) -> PolicyMemory:
    """Return the stored state of a pool's policies, which is empty at first."""
    row = await connection.fetchrow(_SQL["policy_state"], pool)
    return PolicyMemory({}, 0) if row is None else PolicyMemory(row[0], row[1])


keep_policy_state: Query[[str, PolicyMemory, int], int | None] = spread(
    _SQL.value("keep_policy_state")
)
"""Store the policies' state; return its revision, or None if another episode was faster."""


async def notify_of_misses(connection: Connection, now: int) -> None:
    """Notify of campaigns of which runs are expected to miss their latest start, or no longer."""
    changes: list[tuple[object, ...]] = []
    for pool, before, after in await connection.fetch(_SQL["tell_misses"], now):
        changed = [(each, "none") for each in before if each not in after]
        changed += [(each, "expected") for each in after if each not in before]
        changes += [("misses", pool, *each) for each in changed]
    if changes:
        await notices.notify_all(connection, changes)


charges_by_hour: Query[[int, int, Sequence[str] | None], list[tuple[str, int, int]]] = _SQL.rows(
    "used_by_hour", as_tuple
)
"""Campaign, hour, and charge on these nodes, or on all, in thousandths of a seat times µs.

Takes ``since``, ``until``, ``nodes``.
"""


async def led_runs(
    connection: Connection,
    since: int,
    until: int,
    nodes: Sequence[str],
    limit: int,
    campaigns: Collection[str] = (),
) -> list[LedRun]:
    """Return the runs led here that lie in this time on these nodes, by start.

    With ``campaigns``, also their runs on other nodes.
    """
    rows = await connection.fetch(
        _SQL["booked"], since, until, list(nodes), limit, sorted(campaigns)
    )
    return [LedRun(**dict(row)) for row in rows]


unplanned_seat_tasks: Query[[Sequence[str]], list[UnplannedSeatTask]] = _SQL.rows(
    "to_come", UnplannedSeatTask
)
"""The tasks of seats on these nodes that were not planned yet."""


async def tests_of(
    connection: Connection, tasks: Collection[UUID]
) -> dict[UUID, tuple[str, dict[str, Any]]]:
    """Return the test and the spec of these tasks, by task."""
    rows = await connection.fetch(_SQL["tests_of"], sorted(tasks))
    return {row[0]: (row[1], row[2]) for row in rows}


async def failure_counts(
    connection: Connection, since: int, nodes: Sequence[str]
) -> dict[tuple[str, str], int]:
    """Return how many runs of seats have failed since then, by node and campaign."""
    rows = await connection.fetch(_SQL["failed"], since, list(nodes))
    return {(row[0], row[1]): row[2] for row in rows}
