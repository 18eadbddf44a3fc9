"""Twins of ``node/store/sql/seats.sql`` and of ``node/store/sql/pools.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import PoolRow, PoolTaskRow, SeatRow, TermRow, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "seats")
POOLS = Twins("node.store", "pools")

_OPEN = frozenset({"active", "paused"})
_ENDED = frozenset({"refused", "cancelled"})


@POOLS.of(
    "name",
    "match",
    "policy_set",
    "overrides",
    "choice",
    "term",
    "patience",
    "description",
    "revision",
    "created_at",
    "changed_at",
    "unseen",
)
def pools(tables: Tables) -> Answer:
    """Return all pools by name."""

    def unseen(pool: int) -> str | None:
        row = tables.policy_states.rows.get(pool)
        campaign: str | None = None if row is None else unpack(row.state).get("unseen")
        return campaign

    return [
        (
            row.name,
            unpack(row.match),
            row.policy_set,
            unpack(row.overrides),
            row.choice,
            row.term,
            row.patience,
            row.description,
            row.revision,
            row.created_at,
            row.changed_at,
            unseen(row.id),
        )
        for _, row in sorted(tables.pools.named.items())
    ]


@POOLS.of("id")
def keep_pool(
    tables: Tables,
    name: str,
    match: dict[str, Any],
    policy_set: str,
    overrides: dict[str, Any],
    choice: str,
    term: int,
    patience: int,
    description: str | None,
    now: int,
) -> Answer:
    """Insert a pool, unless its name is taken."""
    number = next(tables.pools.ids)
    if name in tables.pools.named:
        return ()
    values = (pack(match), policy_set, pack(overrides), choice, term, patience, description)
    tables.pools.insert(PoolRow(number, name, *values, now, now))
    return [(number,)]


@TWINS.of()
def release(tables: Tables, task: UUID, now: int) -> Answer:
    """Forget what policies remember against the terms of a pool task, and try them all now."""
    request = tables.pool_tasks.rows.get(task)
    remembered = None if request is None else tables.policy_states.rows.get(request.pool_id)
    state = {} if remembered is None else unpack(remembered.state)
    if remembered is not None and state.get("deferrals"):
        kept = [each for each in state["deferrals"] if not each[0].startswith(str(task))]
        tables.policy_states.change(
            remembered,
            state=pack(state | {"deferrals": kept}),
            revision=remembered.revision + 1,
            changed_at=now,
        )
    for term in list(tables.terms.of_task.of(task)):
        if term.try_at is not None and term.try_at > now:
            tables.terms.change(term, try_at=now, tries=0)
    return ()


@TWINS.of("task_id")
def keep_pool_task(
    tables: Tables,
    task: UUID,
    pool: str,
    request: dict[str, Any],
    anew: bool,
    next_slot: int | None,
    due_at: int | None,
    rounds_left: int | None,
) -> Answer:
    """Store what a task requests of its pool, and where its terms continue."""
    pool_row, row = tables.pools.named.get(pool), tables.pool_tasks.rows.get(task)
    if pool_row is None:
        return ()
    progress: dict[str, Any] = {
        "next_slot": next_slot,
        "due_at": due_at,
        "rounds_left": rounds_left,
    }
    if row is None:
        tables.pool_tasks.insert(PoolTaskRow(task, pool_row.id, pack(request), *progress.values()))
    else:
        values = {"pool_id": pool_row.id, "request": pack(request), "reason": None}
        tables.pool_tasks.change(row, **values, **(progress if anew else {}))
    return [(task,)]


@TWINS.of("request")
def request_of(tables: Tables, task: UUID) -> Answer:
    """Return what a task requests of its pool."""
    row = tables.pool_tasks.rows.get(task)
    return () if row is None else [(unpack(row.request),)]


@TWINS.of("id")
def stop_seating(tables: Tables, pool: str) -> Answer:
    """Return the pool; transactions are serial here, so there is nothing to lock."""
    pool_row = tables.pools.named.get(pool)
    return () if pool_row is None else [(pool_row.id,)]


@TWINS.of("task_id")
def goes_on(
    tables: Tables, tasks: Sequence[UUID], following: Sequence[int | None], now: int
) -> Answer:
    """Resume pool tasks: no term begins before these slots."""
    resumed = []
    for task, slot in zip(tasks, following, strict=True):
        row = tables.pool_tasks.rows.get(task)
        if row is None:
            continue
        if row.next_slot is None or slot is None:
            tables.pool_tasks.change(row, next_slot=None, due_at=None)
        else:
            tables.pool_tasks.change(row, next_slot=max(row.next_slot, slot), due_at=now)
        resumed.append((task,))
    return resumed


@TWINS.of("pool_task")
def wake_refused_seats(tables: Tables, tasks: Sequence[UUID], now: int) -> Answer:
    """Schedule the waiting terms of tasks, as time that a node refused is free again."""
    woken: dict[UUID, None] = {}
    for task in dict.fromkeys(tasks):
        for row in tables.terms.of_task.of(task):
            if row.try_at is not None and row.try_at > now:
                tables.terms.change(row, try_at=now)
                woken[task] = None
    return [(task,) for task in woken]


@TWINS.of("task_id")
def plan_anew(tables: Tables, pool: str, now: int) -> Answer:
    """Cancel the leases of the tasks of a pool's seats; plan those leased or waiting now."""
    pool_row = tables.pools.named.get(pool)
    whole = [
        row for row in tables.pool_tasks.rows.values() if pool_row and row.pool_id == pool_row.id
    ]
    tasks = [task for row in whole for task in tables.tasks.parts.of(row.task_id)]
    scheduled = []
    for task in sorted(tasks, key=lambda row: row.id):
        row = tables.plannings.rows.get(task.id)
        if task.state not in _OPEN or row is None:
            continue
        wants = row.lease_until is not None or task.id in tables.runs.waiting
        again = now if wants and row.plan_at is not None else row.plan_at
        epoch = row.lease_epoch + 1
        tables.plannings.change(
            row, plan_at=again, lease_epoch=epoch, lease_owner=None, lease_until=None
        )
        if again == now:
            scheduled.append((task.id,))
    return scheduled


@TWINS.of("id", "state")
def finish_pool_tasks(tables: Tables, now: int) -> Answer:
    """End the pool tasks whose terms have ended, if the tasks of their seats have ended, too."""
    ended = []
    for row in tables.pool_tasks.rows.values():
        task = tables.tasks.rows[row.task_id]
        if row.next_slot is not None or task.state != "active":
            continue
        terms = sorted(tables.terms.of_task.of(task.id), key=lambda term: term.starts_at)
        used = {seat.term for seat in tables.seats.of_task.of(task.id)}
        over = all(
            term.try_at is None and (term.over_at <= now or term.starts_at not in used)
            for term in terms
        )
        if over and not any(part.state in _OPEN for part in tables.tasks.parts.of(task.id)):
            ended.append((task, None if used else _last_reason(tables, terms, task.id)))
    for task, reason in ended:
        state = "finished" if reason is None else "unplaced"
        tables.tasks.change(task, state=state, reason=reason or task.reason, ended_at=now)
    return [(task.id, task.state) for task, _ in ended]


def _last_reason(tables: Tables, terms: Sequence[TermRow], task: UUID) -> str | None:
    """Return why the last slots of a pool task got no nodes: those of a term, or of a gap."""
    lost = [(-term.starts_at, term.reason is None, term.reason) for term in terms]
    lost += [(-gap.first_slot, False, gap.reason) for gap in tables.gaps.by_task.of(task)]
    return min(lost)[2] if lost else None


@TWINS.of("id")
def seat_tasks(tables: Tables, task: UUID) -> Answer:
    """Return the open tasks of the seats of a pool task."""
    return sorted((part.id,) for part in tables.tasks.parts.of(task) if part.state in _OPEN)


@TWINS.of("id")
def lock_seat_tasks(tables: Tables, task: UUID) -> Answer:
    """Return the open tasks of the seats of a pool task, for a change."""
    return seat_tasks(tables, task)


@TWINS.of("task_id", "place", "node")
def nodes_of(tables: Tables, task: UUID) -> Answer:
    """Return the nodes that hold the seats of a pool task's open tasks."""
    return sorted(
        (part.id, seat.place, seat.node)
        for part in tables.tasks.parts.of(task)
        if part.state in _OPEN
        for seat in tables.seats.of_part.of(part.id)
    )


@TWINS.of()
def look_again(tables: Tables, task: UUID, seats: int, now: int, over: bool) -> Answer:
    """Set the number of seats of a task's terms and try them now, or end them."""
    for row in tables.terms.of_task.of(task):
        if row.over_at > now:
            ends = {"over_at": now, "try_at": None} if over else {"try_at": now}
            tables.terms.change(row, seats=seats, tries=0, **ends)
    return ()


@TWINS.of("pool_task", "starts_at")
def purge_terms(tables: Tables, before: int, limit: int) -> Answer:
    """Delete old terms, except those that hold runs or guide the choice of nodes."""
    old = [row for row in tables.terms.rows.values() if row.over_at < before]
    old.sort(key=lambda row: (row.over_at, row.pool_task, row.starts_at))
    purged = list(islice((row for row in old if not _needed(tables, row)), limit))
    seats = [seat for row in purged for seat in _of_term(tables, row)]
    tables.delete_tasks(seat.task_id for seat in seats)
    for row in purged:
        if (row.pool_task, row.starts_at) in tables.terms.rows:
            tables.delete_term(row)
    return [(row.pool_task, row.starts_at) for row in purged]


def _of_term(tables: Tables, term: TermRow) -> list[SeatRow]:
    of_task = tables.seats.of_task.of(term.pool_task)
    return [seat for seat in of_task if seat.term == term.starts_at]


def _needed(tables: Tables, term: TermRow) -> bool:
    goes_on = tables.tasks.rows[term.pool_task].state in _OPEN
    if goes_on and term.try_at is not None:
        return True
    for seat in _of_term(tables, term):
        part = tables.tasks.rows[seat.task_id]
        if (
            part.state in _OPEN
            or tables.runs.by_task.of(part.id)
            or tables.gaps.by_task.of(part.id)
        ):
            return True
        if goes_on and _is_last(tables, seat):
            return True
    return False


def _is_last(tables: Tables, seat: SeatRow) -> bool:
    """Return whether the node has had no later seat, or the place no later known holder."""
    later = [it for it in tables.seats.of_task.of(seat.pool_task) if it.term > seat.term]
    following = [
        it
        for it in later
        if it.place == seat.place
        and it.lost_at is None
        and tables.tasks.rows[it.task_id].state == "finished"
    ]
    none_since = all(it.node != seat.node for it in later)
    return none_since or (seat.lost_at is None and not following)


@TWINS.of()
def lose_ended(tables: Tables, task: UUID, now: int) -> Answer:
    """Empty the seats whose tasks have ended early."""
    for seat in tables.seats.of_task.of(task):
        lose(tables, seat, now)
    return ()


def lose(tables: Tables, seat: SeatRow, now: int) -> bool:
    """Empty a seat whose task has ended early; return whether it was emptied now."""
    part = tables.tasks.rows[seat.task_id]
    if seat.lost_at is not None or part.state not in _ENDED:
        return False
    tables.seats.change(seat, lost_at=now, reason=part.reason or "")
    return True
