"""Twins of ``lead/store/sql/episodes.sql``: due terms and their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from lead.simulation.memory.episodes import TWINS, active
from lead.simulation.memory.rows import PoolTaskRow, TaskRow, TermRow, unpack
from lead.simulation.memory.statements import Answer
from lead.simulation.memory.tables import Tables
from node.model.times import HOUR
from node.store.campaigns import URGENT

_POOL_TASK = (
    *("id", "test", "spec", "tools", "scheduling_class", "duration", "priority", "schedule"),
    *("campaign", "reference", "created_at", "revision", "pool", "request", "next_slot"),
    *("due_at", "rounds_left"),
)


def _pool_task_columns(tables: Tables, task: TaskRow, asked: PoolTaskRow) -> tuple[Any, ...]:
    return (
        task.id,
        task.test,
        unpack(task.spec),
        list(task.tools),
        task.scheduling_class,
        task.duration,
        task.priority,
        unpack(task.schedule),
        task.campaign or "default",
        unpack(task.reference),
        task.created_at,
        task.revision,
        tables.pools.rows[asked.pool_id].name,
        unpack(asked.request),
        asked.next_slot,
        asked.due_at,
        asked.rounds_left,
    )


def _oldest(
    found: Sequence[tuple[TaskRow, PoolTaskRow]], limit: int
) -> list[tuple[TaskRow, PoolTaskRow]]:
    return sorted(found, key=lambda pair: (pair[0].created_at, pair[0].id))[:limit]


def _urgent(tables: Tables, task: TaskRow, starts_at: int, near: int) -> bool:
    campaign = tables.campaigns.named.get(task.campaign) if task.campaign else None
    return campaign is not None and campaign.level == URGENT and starts_at < near


@TWINS.of(*_POOL_TASK)
def due(tables: Tables, now: int, limit: int, near: int) -> Answer:
    """Return pool tasks with empty seats to try now: the nearest of each pool."""
    first: dict[UUID, int] = {}
    tried: dict[UUID, int] = {}
    for row in tables.terms.tried.values():
        if row.try_at is not None and row.try_at <= now:
            tried[row.pool_task] = min(row.try_at, tried.get(row.pool_task, row.try_at))
            first[row.pool_task] = min(row.starts_at, first.get(row.pool_task, row.starts_at))
    candidates = (
        [(task, request) for task, request in active(tables) if task.id in tried] if tried else []
    )

    def place(pair: tuple[TaskRow, PoolTaskRow]) -> tuple[Any, ...]:
        task, begins = pair[0], first[pair[0].id]
        later = not _urgent(tables, task, begins, near)
        return later, begins // HOUR, tried[task.id], task.created_at, task.id

    candidates.sort(key=place)
    places: Counter[int] = Counter()
    chosen: list[tuple[TaskRow, PoolTaskRow]] = []
    for task, request in candidates:
        places[request.pool_id] += 1
        if places[request.pool_id] <= limit:
            chosen.append((task, request))
    chosen.sort(key=lambda pair: (tried[pair[0].id], pair[0].created_at, pair[0].id))
    return [_pool_task_columns(tables, *pair) for pair in chosen]


@TWINS.of(*_POOL_TASK)
def blocked(tables: Tables, pool: str, now: int, limit: int) -> Answer:
    """Return pool tasks of a pool with terms that found no time and are not due again yet."""
    there = [
        (task, request)
        for task, request in active(tables)
        if tables.pools.rows[request.pool_id].name == pool
        and any(
            row.try_at is not None and row.try_at > now and row.tries > 0
            for row in tables.terms.of_task.of(task.id)
        )
    ]
    return [_pool_task_columns(tables, *pair) for pair in _oldest(there, limit)]


@TWINS.of(*_POOL_TASK)
def terms_to_open(tables: Tables, now: int, limit: int) -> Answer:
    """Return pool tasks whose next term is due."""
    due_tasks = [
        (task, request)
        for task, request in active(tables)
        if request.due_at is not None and request.due_at <= now
    ]
    return [_pool_task_columns(tables, *pair) for pair in _oldest(due_tasks, limit)]


@TWINS.of("least")
def next_due(tables: Tables) -> Answer:
    """Return when the next term is due or empty seats are to be tried."""
    requests = {task.id: request for task, request in active(tables)}
    instants = [request.due_at for request in requests.values() if request.due_at is not None]
    instants += [
        row.try_at
        for row in tables.terms.tried.values()
        if row.try_at is not None and row.pool_task in requests
    ]
    return [(min(instants, default=None),)]


@TWINS.of()
def open_terms(
    tables: Tables,
    tasks: Sequence[UUID],
    begins: Sequence[int],
    finishes: Sequence[int],
    overs: Sequence[int],
    counts: Sequence[int],
    trials: Sequence[int],
) -> Answer:
    """Insert terms; a term that was given up starts again."""
    for task, begin, finish, over_at, seats, try_at in zip(
        tasks, begins, finishes, overs, counts, trials, strict=True
    ):
        row = tables.terms.rows.get((task, begin))
        if row is None:
            tables.terms.insert(TermRow(task, begin, finish, over_at, seats, try_at=try_at))
        else:
            values = {"ends_at": finish, "over_at": over_at, "seats": seats, "try_at": try_at}
            tables.terms.change(row, **values, tries=0, reason=None)
    return ()


@TWINS.of("task_id")
def go_on(
    tables: Tables,
    task: UUID,
    was: int,
    next_slot: int | None,
    due_at: int | None,
    rounds_left: int | None,
) -> Answer:
    """Store where terms continue, unless an edit has changed that meanwhile."""
    row = tables.pool_tasks.rows.get(task)
    if row is None or row.next_slot != was:
        return ()
    tables.pool_tasks.change(row, next_slot=next_slot, due_at=due_at, rounds_left=rounds_left)
    return [(task,)]


@TWINS.of(
    *("pool_task", "starts_at", "ends_at", "over_at", "seats", "tries", "reason", "try_at"),
    *("waiting", "blocked"),
)
def terms_due(
    tables: Tables,
    tasks: Sequence[UUID],
    now: int,
    near: int,
    enough: int,
    most: int,
    with_blocked: bool,
) -> Answer:
    """Return terms with empty seats to try: urgent ones, else those of the nearest hours."""

    def hour(row: TermRow) -> int:
        if _urgent(tables, tables.tasks.rows[row.pool_task], row.starts_at, near):
            return -1
        return row.starts_at // HOUR

    candidates = [
        row
        for task in dict.fromkeys(tasks)
        for row in tables.terms.of_task.of(task)
        if row.try_at is not None and row.try_at <= now
    ]
    candidates.sort(key=lambda row: (hour(row), row.starts_at, row.pool_task))
    chosen: list[TermRow] = []
    for _, group in groupby(candidates, key=hour):
        of_hour = list(group)
        alone = bool(chosen) and hour(chosen[0]) < 0
        if chosen and (alone or len(chosen) + len(of_hour) > enough):
            break
        chosen += of_hour
    count = len(candidates)
    last = max((hour(row) for row in chosen[:most]), default=None)
    blocked = [
        row
        for task in (dict.fromkeys(tasks) if with_blocked and last is not None else ())
        for row in tables.terms.of_task.of(task)
        if row.try_at is not None and row.try_at > now and row.tries > 0
        if last is not None and row.starts_at // HOUR <= last
    ]
    blocked.sort(key=_by_start)
    found = [*((row, False) for row in chosen[:most]), *((row, True) for row in blocked[:most])]
    found.sort(key=lambda each: _by_start(each[0]))
    return [
        (
            r.pool_task,
            r.starts_at,
            r.ends_at,
            r.over_at,
            r.seats,
            r.tries,
            r.reason,
            r.try_at,
            count,
            is_blocked,
        )
        for r, is_blocked in found
    ]


def _by_start(row: TermRow) -> tuple[int, UUID]:
    return row.starts_at, row.pool_task
