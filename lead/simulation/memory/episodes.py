"""Twins of ``lead/store/sql/episodes.sql``; those about which terms are due are in ``terms.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import PolicyStateRow, PoolTaskRow, SeatRow, TaskRow, pack, unpack
from lead.simulation.memory.seats import lose
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("lead.store", "episodes")

_BOOKED = frozenset({"booked", "running", "merging"})
_MEASURED = frozenset({"running", "merging", "finished", "failed"})


def active(tables: Tables) -> Iterator[tuple[TaskRow, PoolTaskRow]]:
    """The pool tasks that are active."""
    for asked in tables.pool_tasks.rows.values():
        task = tables.tasks.rows[asked.task_id]
        if task.state == "active":
            yield task, asked


def _of_terms(tables: Tables, tasks: Sequence[UUID], terms: Sequence[int]) -> Iterator[SeatRow]:
    for task, term in zip(tasks, terms, strict=True):
        for seat in tables.seats.of_task.of(task):
            if seat.term == term:
                yield seat


@TWINS.of("pool_task", "term", "place", "node")
def taken(tables: Tables, pool_tasks: Sequence[UUID], terms: Sequence[int]) -> Answer:
    """Who sits in these terms."""
    return sorted(
        (seat.pool_task, seat.term, seat.place, seat.node)
        for seat in _of_terms(tables, pool_tasks, terms)
        if seat.lost_at is None
    )


@TWINS.of("pool_task", "place", "node")
def last_holders(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Who had each seat last."""
    last: dict[tuple[UUID, int], SeatRow] = {}
    for task in dict.fromkeys(tasks):
        for seat in tables.seats.of_task.of(task):
            before = last.get((task, seat.place))
            if seat.lost_at is None and (before is None or before.term < seat.term):
                last[task, seat.place] = seat
    return [(*key, seat.node) for key, seat in sorted(last.items(), key=lambda item: item[0])]


@TWINS.of("pool_task", "node", "used_at")
def used_at(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """When each node had a seat last."""
    last: dict[tuple[UUID, str], int] = {}
    for task in dict.fromkeys(tasks):
        for seat in tables.seats.of_task.of(task):
            key = task, seat.node
            last[key] = max(seat.term, last.get(key, seat.term))
    return [(*key, at) for key, at in last.items()]


@TWINS.of("pool_task", "term", "place", "slot")
def measured_to(tables: Tables, pool_tasks: Sequence[UUID], terms: Sequence[int]) -> Answer:
    """Of lost seats, the last slot that was measured."""
    last: dict[tuple[UUID, int, int], int] = {}
    for seat in _of_terms(tables, pool_tasks, terms):
        if seat.lost_at is None:
            continue
        for run in tables.runs.by_task.of(seat.task_id):
            if run.state in _MEASURED:
                key = seat.pool_task, seat.term, seat.place
                last[key] = max(run.slot, last.get(key, run.slot))
    return [(*key, slot) for key, slot in last.items()]


@TWINS.of("revision")
def revision_of(tables: Tables, task: UUID) -> Answer:
    """The revision of an active task."""
    row = tables.tasks.rows.get(task)
    known = row is not None and row.state == "active" and task in tables.pool_tasks.rows
    return [(row.revision,)] if row is not None and known else ()


@TWINS.of("place")
def take(
    tables: Tables,
    pool_task: UUID,
    term: int,
    now: int,
    places: Sequence[int],
    nodes: Sequence[str],
    parts: Sequence[UUID],
) -> Answer:
    """One node to a seat, and one seat to a node."""
    given = []
    for place, node, part in zip(places, nodes, parts, strict=True):
        row = SeatRow(part, place, pool_task, term, node, now)
        if not tables.seats.clashes(row):
            tables.seats.insert(row)
            given.append((place,))
    return given


@TWINS.of()
def adopt(
    tables: Tables,
    pool_task: UUID,
    parts: Sequence[UUID],
    whichever: Sequence[bool],
    named_by: Sequence[UUID],
    named: Sequence[UUID],
    found_by: Sequence[UUID],
    found: Sequence[int],
) -> Answer:
    """These tasks have its seats, these runs may give way to theirs, which can start then."""
    of_part: dict[UUID, list[UUID]] = {}
    for part, run in zip(named_by, named, strict=True):
        of_part.setdefault(part, []).append(run)
    for part, of_any in zip(parts, whichever, strict=True):
        row = tables.tasks.rows.get(part)
        if row is not None:
            yielding = None if of_any else tuple(sorted(of_part.get(part, ())))
            starts = sorted(at for by, at in zip(found_by, found, strict=True) if by == part)
            tables.tasks.change(row, parent=pool_task, yielding=yielding, starts=tuple(starts))
    return ()


@TWINS.of("pool_task")
def tried(
    tables: Tables,
    task: UUID,
    term: int,
    tries: int,
    try_at: int | None,
    reason: str | None,
    was_tries: int,
    was_try_at: int,
    was_seats: int,
    held: int,
) -> Answer:
    """When the empty seats of a term are tried again, unless it is another one meanwhile."""
    row = tables.terms.rows.get((task, term))
    if row is None or (row.tries, row.try_at, row.seats) != (was_tries, was_try_at, was_seats):
        return ()
    if sum(seat.lost_at is None for seat in _of_terms(tables, [task], [term])) < held:
        return ()
    tables.terms.change(row, tries=tries, try_at=try_at, reason=reason)
    return [(task,)]


@TWINS.of("task_id")
def lacks(tables: Tables, tasks: Sequence[UUID], reasons: Sequence[str | None]) -> Answer:
    """What the pools of tasks lack; those for which it is new."""
    new = []
    for task, reason in zip(tasks, reasons, strict=True):
        row = tables.pool_tasks.rows.get(task)
        if row is not None and row.reason != reason:
            tables.pool_tasks.change(row, reason=reason)
            new.append((task,))
    return new


@TWINS.of("pool_task", "term", "place", "name", "reason")
def lost_with_their_tasks(tables: Tables, now: int) -> Answer:
    """Seats whose tasks have ended before their time are empty."""
    lost = [
        seat
        for seat in list(tables.seats.held.values())
        if tables.tasks.rows[seat.pool_task].state in {"active", "paused"}
        and lose(tables, seat, now)
    ]
    for key in dict.fromkeys((seat.pool_task, seat.term) for seat in lost):
        term = tables.terms.rows[key]
        tables.terms.change(term, try_at=now if term.over_at > now else None, tries=0)
    answered = []
    for seat in sorted(lost, key=lambda seat: (seat.pool_task, seat.term, seat.place)):
        known = tables.nodes.rows.get(seat.node)
        name = seat.node if known is None else known.name
        answered.append((seat.pool_task, seat.term, seat.place, name, seat.reason))
    return answered


@TWINS.of("coalesce")
def times_lost(tables: Tables, task: UUID) -> Answer:
    """How often a seat of this task was lost before, in the same term."""
    before = [
        (
            seat.place,
            sum(
                (each.term, each.place) == (seat.term, seat.place)
                and each.task_id != task
                and each.lost_at is not None
                for each in tables.seats.of_task.of(seat.pool_task)
            ),
        )
        for seat in tables.seats.of_part.of(task)
    ]
    return [(max((times for _, times in before), default=0),)]


@TWINS.of("id", "test", "spec", "tools", "pool", "request", "reason")
def asking(tables: Tables) -> Answer:
    """Every active pool task."""
    found = sorted(active(tables), key=lambda pair: pair[0].id)
    return [
        (
            task.id,
            task.test,
            unpack(task.spec),
            list(task.tools),
            tables.pools.rows[asked.pool_id].name,
            unpack(asked.request),
            asked.reason,
        )
        for task, asked in found
    ]


@TWINS.of()
def try_all(tables: Tables, now: int) -> Answer:
    """What waits is tried now."""
    for row in list(tables.terms.tried.values()):
        if row.try_at is not None and row.try_at > now:
            tables.terms.change(row, try_at=now)
    return ()


@TWINS.of()
def put_off(tables: Tables, tasks: Sequence[UUID], now: int, try_at: int) -> Answer:
    """What was to be tried by now is tried later."""
    for task in dict.fromkeys(tasks):
        for row in list(tables.terms.of_task.of(task)):
            if row.try_at is not None and row.try_at <= now:
                tables.terms.change(row, try_at=try_at)
    return ()


@TWINS.of("pool_task", "node", "task_id")
def sitting(tables: Tables, now: int) -> Answer:
    """The seats of active pool tasks that are held and not over."""
    found = {
        (seat.pool_task, seat.task_id, seat.node)
        for seat in tables.seats.held.values()
        if tables.terms.rows[seat.pool_task, seat.term].over_at > now
        and tables.tasks.rows[seat.pool_task].state == "active"
    }
    return [(whole, node, part) for whole, part, node in sorted(found)]


@TWINS.of("task_id")
def seats_ahead(tables: Tables, pool: str, since: int, until: int, limit: int) -> Answer:
    """The ordinary tasks of seats of a pool in terms that begin in this time, youngest first."""
    found = tables.pools.named.get(pool)
    youngest: dict[UUID, int] = {}
    for seat in tables.seats.held.values():
        of_pool = found is not None and tables.pool_tasks.rows[seat.pool_task].pool_id == found.id
        if of_pool and since <= seat.term < until:
            youngest[seat.task_id] = max(seat.taken_at, youngest.get(seat.task_id, seat.taken_at))
    return [(part,) for part in sorted(youngest, key=lambda it: (-youngest[it], it))[:limit]]


@TWINS.of("state", "revision")
def policy_state(tables: Tables, pool: str) -> Answer:
    """What the policies of a pool remember."""
    found = tables.pools.named.get(pool)
    row = None if found is None else tables.policy_states.rows.get(found.id)
    return () if row is None else [(unpack(row.state), row.revision)]


@TWINS.of("revision")
def keep_policy_state(
    tables: Tables, pool: str, state: dict[str, Any], revision: int, now: int
) -> Answer:
    """Remember this, unless another episode has come first."""
    found = tables.pools.named.get(pool)
    if found is None:
        return ()
    row = tables.policy_states.rows.get(found.id)
    if row is None:
        tables.policy_states.insert(PolicyStateRow(found.id, pack(state), revision + 1, now))
    elif row.revision == revision:
        values = {"state": pack(state), "revision": revision + 1, "changed_at": now}
        tables.policy_states.change(row, **values)
    else:
        return ()
    return [(revision + 1,)]


@TWINS.of("name", "hour", "amount")
def used_by_hour(tables: Tables, since: int, until: int, nodes: Sequence[str]) -> Answer:
    """What each campaign was charged for on these nodes, hour by hour."""
    sums: Counter[tuple[str, int]] = Counter()
    for row in tables.charge_hours.rows.values():
        if since <= row.hour < until and row.node in nodes:
            sums[tables.campaigns.rows[row.campaign_id].name, row.hour] += row.amount
    return [(*key, amount) for key, amount in sorted(sums.items())]


@TWINS.of(
    *("id", "task_id", "campaign", "starts_at", "ends_at", "scheduling_class", "priority"),
    *("running", "nodes"),
)
def booked(tables: Tables, since: int, until: int, nodes: Sequence[str], limit: int) -> Answer:
    """The runs led here that lie in this time and have one of these nodes."""
    found = []
    for run in tables.runs.rows.values():
        if run.state not in _BOOKED or run.starts_at >= until or run.ends_at <= since:
            continue
        task = tables.tasks.rows[run.task_id]
        if tables.led_here(task.id) and not set(task.nodes).isdisjoint(nodes):
            found.append((run, task))
    found.sort(key=lambda pair: (pair[0].starts_at, pair[0].id))
    return [
        (
            run.id,
            run.task_id,
            task.campaign or "default",
            run.starts_at,
            run.ends_at,
            run.scheduling_class,
            run.priority,
            run.state == "running",
            [str(each["node"]) for each in unpack(task.participants)],
        )
        for run, task in found[:limit]
    ]


@TWINS.of(
    *("id", "campaign", "schedule", "duration", "created_at", "scheduling_class", "priority"),
    *("nodes", "starts"),
)
def to_come(tables: Tables, nodes: Sequence[str]) -> Answer:
    """Tasks that were made for seats, and of which nothing is planned."""
    found = []
    for _, row in tables.plannings.due:
        task = tables.tasks.rows[row.task_id]
        if row.planned_to is None and task.parent is not None and task.state == "active":
            own = [str(each["node"]) for each in unpack(task.participants)]
            if not set(own).isdisjoint(nodes):
                found.append((task, own))
    found.sort(key=lambda pair: (pair[0].created_at, pair[0].id))
    return [
        (
            task.id,
            task.campaign or "default",
            unpack(task.schedule),
            task.duration,
            task.created_at,
            task.scheduling_class,
            task.priority,
            own,
            list(task.starts or ()),
        )
        for task, own in found
    ]


@TWINS.of("id", "test", "spec")
def tests_of(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """What these tasks measure."""
    found = (tables.tasks.rows.get(task) for task in sorted(set(tasks)))
    return [(task.id, task.test, unpack(task.spec)) for task in found if task is not None]


@TWINS.of("node", "campaign", "runs")
def failed(tables: Tables, since: int, nodes: Sequence[str]) -> Answer:
    """How many runs of seats have failed."""
    counts: Counter[tuple[str, str]] = Counter()
    for seat in tables.seats.rows.values():
        if seat.node in nodes:
            campaign = tables.tasks.rows[seat.task_id].campaign or "default"
            counts[seat.node, campaign] += sum(
                run.state == "failed" and run.finished_at is not None and run.finished_at >= since
                for run in tables.runs.by_task.of(seat.task_id)
            )
    return [(*key, count) for key, count in sorted(counts.items()) if count]


@TWINS.of("pg_notify")
def notify(tables: Tables, said: Sequence[str]) -> Answer:
    """Tell whoever watches."""
    for words in said:
        tables.journal.tell(words)
    return [(None,) for _ in said]
