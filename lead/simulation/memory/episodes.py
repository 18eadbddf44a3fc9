"""Twins of ``lead/store/sql/episodes.sql``; ``terms.py`` has those about due terms."""

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
    """Yield the active pool tasks."""
    for request in tables.pool_tasks.rows.values():
        task = tables.tasks.rows[request.task_id]
        if task.state == "active":
            yield task, request


def _of_terms(tables: Tables, tasks: Sequence[UUID], terms: Sequence[int]) -> Iterator[SeatRow]:
    for task, term in zip(tasks, terms, strict=True):
        for seat in tables.seats.of_task.of(task):
            if seat.term == term:
                yield seat


@TWINS.of("pool_task", "term", "place", "node")
def taken(tables: Tables, pool_tasks: Sequence[UUID], terms: Sequence[int]) -> Answer:
    """Return the nodes that hold the seats of these terms."""
    return sorted(
        (seat.pool_task, seat.term, seat.place, seat.node)
        for seat in _of_terms(tables, pool_tasks, terms)
        if seat.lost_at is None
    )


@TWINS.of("pool_task", "place", "node")
def last_holders(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return the node that had each seat last."""
    last: dict[tuple[UUID, int], SeatRow] = {}
    for task in dict.fromkeys(tasks):
        for seat in tables.seats.of_task.of(task):
            previous = last.get((task, seat.place))
            if seat.lost_at is None and (previous is None or previous.term < seat.term):
                last[task, seat.place] = seat
    return [(*key, seat.node) for key, seat in sorted(last.items(), key=lambda item: item[0])]


@TWINS.of("pool_task", "node", "used_at")
def used_at(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return for each node the term of its last seat."""
    last: dict[tuple[UUID, str], int] = {}
    for task in dict.fromkeys(tasks):
        for seat in tables.seats.of_task.of(task):
            key = task, seat.node
            last[key] = max(seat.term, last.get(key, seat.term))
    return [(*key, at) for key, at in last.items()]


@TWINS.of("pool_task", "node", "times", "last_at", "reason")
def turned_down(tables: Tables, tasks: Sequence[UUID], since: int) -> Answer:
    """Return how often each node has refused seats of these tasks as they are now."""
    refusals: dict[tuple[UUID, str], list[SeatRow]] = {}
    for task in dict.fromkeys(tasks):
        for seat in tables.seats.of_task.of(task):
            if seat.lost_at is not None and seat.lost_at > since and _is_refusal(tables, seat):
                refusals.setdefault((task, seat.node), []).append(seat)
    answer = []
    for key, lost in refusals.items():
        last = min(lost, key=lambda it: (-(it.lost_at or 0), it.term, it.place))
        answer.append((*key, len(lost), last.lost_at, last.reason))
    return answer


def _is_refusal(tables: Tables, seat: SeatRow) -> bool:
    """Return whether the node of a lost seat has refused what the pool task still is."""
    task, whole = tables.tasks.rows[seat.task_id], tables.tasks.rows[seat.pool_task]
    if task.state != "refused" or (task.test, task.tools) != (whole.test, whole.tools):
        return False
    stated = {k: v for k, v in unpack(whole.spec).items() if not isinstance(v, list | None)}
    spec = unpack(task.spec)
    unchanged = all(k in spec and spec[k] == value for k, value in stated.items())
    refusing = {p["node"] for p in unpack(task.participants) if p.get("accepted") is False}
    return unchanged and (not refusing or seat.node in refusing)


@TWINS.of("pool_task", "term", "place", "slot")
def measured_to(tables: Tables, pool_tasks: Sequence[UUID], terms: Sequence[int]) -> Answer:
    """Return for each lost seat the last slot that was measured."""
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
    """Return the revision of an active pool task."""
    row = tables.tasks.rows.get(task)
    is_active = row is not None and row.state == "active" and task in tables.pool_tasks.rows
    return [(row.revision,)] if row is not None and is_active else ()


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
    """Assign seats to nodes, at most one seat to a node and one node to a seat."""
    assigned = []
    for place, node, part in zip(places, nodes, parts, strict=True):
        row = SeatRow(part, place, pool_task, term, node, now)
        if not tables.seats.clashes(row):
            tables.seats.insert(row)
            assigned.append((place,))
    return assigned


@TWINS.of()
def adopt(
    tables: Tables,
    pool_task: UUID,
    parts: Sequence[UUID],
    any_run: Sequence[bool],
    named_by: Sequence[UUID],
    named: Sequence[UUID],
    found_by: Sequence[UUID],
    found: Sequence[int],
) -> Answer:
    """Make tasks parts of a pool task; store the runs that may yield and the possible starts."""
    yielding_by_part: dict[UUID, list[UUID]] = {}
    for part, run in zip(named_by, named, strict=True):
        yielding_by_part.setdefault(part, []).append(run)
    whole = tables.tasks.rows.get(pool_task)
    for part, yields_any in zip(parts, any_run, strict=True):
        row = tables.tasks.rows.get(part)
        if row is not None:
            yielding = None if yields_any else tuple(sorted(yielding_by_part.get(part, ())))
            starts = sorted(at for by, at in zip(found_by, found, strict=True) if by == part)
            tables.tasks.change(
                row,
                parent=pool_task,
                requester=None if whole is None else whole.requester,
                limit_user=None if whole is None else whole.limit_user,
                limit_address=None if whole is None else whole.limit_address,
                limit_rule=None if whole is None else whole.limit_rule,
                limit_refusal=None if whole is None else whole.limit_refusal,
                run_bytes=None if whole is None else whole.run_bytes,
                yielding=yielding,
                starts=tuple(starts),
            )
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
    wants_room: bool,
    misses: Sequence[int],
) -> Answer:
    """Store the next try of a term's empty seats, unless the term has changed meanwhile."""
    row = tables.terms.rows.get((task, term))
    if row is None or (row.tries, row.try_at, row.seats) != (was_tries, was_try_at, was_seats):
        return ()
    if sum(seat.lost_at is None for seat in _of_terms(tables, [task], [term])) < held:
        return ()
    tables.terms.change(
        row,
        tries=tries,
        try_at=try_at,
        reason=reason,
        wants_room=wants_room,
        misses=tuple(misses),
    )
    return [(task,)]


@TWINS.of("task_id")
def lacks(tables: Tables, tasks: Sequence[UUID], reasons: Sequence[str | None]) -> Answer:
    """Store what the pools of tasks lack; return the tasks for which it changed."""
    changed = []
    for task, reason in zip(tasks, reasons, strict=True):
        row = tables.pool_tasks.rows.get(task)
        if row is not None and row.reason != reason:
            tables.pool_tasks.change(row, reason=reason)
            changed.append((task,))
    return changed


@TWINS.of("pool_task", "term", "place", "name", "reason")
def lost_with_their_tasks(tables: Tables, now: int) -> Answer:
    """Empty the seats whose tasks have ended early."""
    lost = [
        seat
        for seat in list(tables.seats.held.values())
        if tables.tasks.rows[seat.pool_task].state in {"active", "paused"}
        and lose(tables, seat, now)
    ]
    for key in dict.fromkeys((seat.pool_task, seat.term) for seat in lost):
        term = tables.terms.rows[key]
        tables.terms.change(term, try_at=now if term.over_at > now else None, tries=0)
    answer = []
    for seat in sorted(lost, key=lambda seat: (seat.pool_task, seat.term, seat.place)):
        node = tables.nodes.rows.get(seat.node)
        name = seat.node if node is None else node.name
        answer.append((seat.pool_task, seat.term, seat.place, name, seat.reason))
    return answer


@TWINS.of("coalesce")
def times_lost(tables: Tables, task: UUID) -> Answer:
    """Count how often a seat of this task was lost before in the same term."""
    losses = [
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
    return [(max((times for _, times in losses), default=0),)]


@TWINS.of("id", "test", "spec", "tools", "pool", "request", "reason")
def asking(tables: Tables) -> Answer:
    """Return every active pool task."""
    pool_tasks = sorted(active(tables), key=lambda pair: pair[0].id)
    return [
        (
            task.id,
            task.test,
            unpack(task.spec),
            list(task.tools),
            tables.pools.rows[request.pool_id].name,
            unpack(request.request),
            request.reason,
        )
        for task, request in pool_tasks
    ]


@TWINS.of()
def try_all(tables: Tables, now: int) -> Answer:
    """Schedule all waiting terms for now."""
    for row in list(tables.terms.tried.values()):
        if row.try_at is not None and row.try_at > now:
            tables.terms.change(row, try_at=now)
    return ()


@TWINS.of("pool_task")
def try_during(tables: Tables, starts: Sequence[int], ends: Sequence[int], now: int) -> Answer:
    """Schedule the terms that found no time in these spans for now."""
    woken: dict[UUID, None] = {}
    for row in list(tables.terms.tried.values()):
        waits = row.try_at is not None and row.try_at > now and row.tries > 0
        if waits and any(
            row.starts_at < end and row.over_at > start
            for start, end in zip(starts, ends, strict=True)
        ):
            tables.terms.change(row, try_at=now)
            woken[row.pool_task] = None
    return [(task,) for task in woken]


@TWINS.of("pool_task")
def try_after(tables: Tables, tasks: Sequence[UUID], now: int) -> Answer:
    """Schedule the terms for now that may have waited for seats of these tasks."""
    requests = tables.pool_tasks.rows
    woken: dict[UUID, None] = {}
    for task in tasks:
        if task not in requests or all(it.try_at is None for it in tables.terms.of_task.of(task)):
            continue
        for row in list(tables.terms.tried.values()):
            alike = requests[row.pool_task].pool_id == requests[task].pool_id
            waits = row.try_at is not None and row.try_at > now and row.tries > 0
            if alike and waits and row.pool_task != task:
                tables.terms.change(row, try_at=now)
                woken[row.pool_task] = None
    return [(it,) for it in woken]


@TWINS.of()
def put_off(
    tables: Tables, tasks: Sequence[UUID], now: int, try_at: int, why: str | None
) -> Answer:
    """Postpone the terms that were due by now."""
    for task in dict.fromkeys(tasks):
        for row in list(tables.terms.of_task.of(task)):
            if row.try_at is not None and row.try_at <= now:
                tables.terms.change(row, try_at=try_at, reason=why or row.reason)
    return ()


@TWINS.of("pool_task", "node", "task_id")
def sitting(tables: Tables, now: int) -> Answer:
    """Return the held seats of active pool tasks in terms that have not ended."""
    seats = {
        (seat.pool_task, seat.task_id, seat.node)
        for seat in tables.seats.held.values()
        if tables.terms.rows[seat.pool_task, seat.term].over_at > now
        and tables.tasks.rows[seat.pool_task].state == "active"
    }
    return [(whole, node, part) for whole, part, node in sorted(seats)]


@TWINS.of("task_id")
def seats_ahead(tables: Tables, pool: str, since: int, until: int, limit: int) -> Answer:
    """Return the tasks of a pool's seats in terms that begin in this time, newest first."""
    pool_row = tables.pools.named.get(pool)
    youngest: dict[UUID, int] = {}
    for seat in tables.seats.held.values():
        of_pool = (
            pool_row is not None and tables.pool_tasks.rows[seat.pool_task].pool_id == pool_row.id
        )
        if of_pool and since <= seat.term < until:
            youngest[seat.task_id] = max(seat.taken_at, youngest.get(seat.task_id, seat.taken_at))
    return [(part,) for part in sorted(youngest, key=lambda it: (-youngest[it], it))[:limit]]


@TWINS.of("state", "revision")
def policy_state(tables: Tables, pool: str) -> Answer:
    """Return the stored state of a pool's policies."""
    pool_row = tables.pools.named.get(pool)
    row = None if pool_row is None else tables.policy_states.rows.get(pool_row.id)
    return () if row is None else [(unpack(row.state), row.revision)]


@TWINS.of("revision")
def keep_policy_state(
    tables: Tables, pool: str, state: dict[str, Any], revision: int, now: int
) -> Answer:
    """Store the state of a pool's policies, unless another episode was faster."""
    pool_row = tables.pools.named.get(pool)
    if pool_row is None:
        return ()
    row = tables.policy_states.rows.get(pool_row.id)
    if row is None:
        tables.policy_states.insert(PolicyStateRow(pool_row.id, pack(state), revision + 1, now))
    elif row.revision == revision:
        values = {"state": pack(state), "revision": revision + 1, "changed_at": now}
        tables.policy_states.change(row, **values)
    else:
        return ()
    return [(revision + 1,)]


@TWINS.of("name", "before", "after")
def tell_misses(tables: Tables, now: int) -> Answer:
    """Note the campaigns with expected misses, and return what has changed."""
    missing: dict[int, set[str]] = {}
    for row in tables.terms.missing.values():
        task = tables.tasks.rows[row.pool_task]
        if row.misses[-1] > now and row.try_at is not None and task.state == "active":
            pool = tables.pool_tasks.rows[row.pool_task].pool_id
            missing.setdefault(pool, set()).add(task.campaign or "default")
    changed = []
    for pool, state in sorted(tables.policy_states.rows.items()):
        before, after = state.missing, tuple(sorted(missing.get(pool, ())))
        if before != after:
            tables.policy_states.change(state, missing=after)
            changed.append((tables.pools.rows[pool].name, list(before), list(after)))
    return changed


@TWINS.of("name", "hour", "amount")
def used_by_hour(tables: Tables, since: int, until: int, nodes: Sequence[str]) -> Answer:
    """Return the charges of each campaign on these nodes, hour by hour."""
    sums: Counter[tuple[str, int]] = Counter()
    for row in tables.charge_hours.rows.values():
        if since <= row.hour < until and row.node in nodes:
            sums[tables.campaigns.rows[row.campaign_id].name, row.hour] += row.amount
    return [(*key, amount) for key, amount in sorted(sums.items())]


@TWINS.of(
    *("id", "task_id", "campaign", "starts_at", "ends_at", "scheduling_class", "priority"),
    *("running", "nodes"),
)
def booked(
    tables: Tables,
    since: int,
    until: int,
    nodes: Sequence[str],
    limit: int,
    campaigns: Sequence[str],
) -> Answer:
    """Return the runs led here that overlap this time, of these campaigns or on these nodes."""
    pairs = []
    for run in tables.runs.rows.values():
        if run.state not in _BOOKED or run.starts_at >= until or run.ends_at <= since:
            continue
        task = tables.tasks.rows[run.task_id]
        counts = (task.campaign or "default") in campaigns
        if tables.led_here(task.id) and (counts or not set(task.nodes).isdisjoint(nodes)):
            pairs.append((run, task))
    pairs.sort(key=lambda pair: (pair[0].starts_at, pair[0].id))
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
            [str(participant["node"]) for participant in unpack(task.participants)],
        )
        for run, task in pairs[:limit]
    ]


@TWINS.of(
    *("id", "campaign", "schedule", "duration", "created_at", "scheduling_class", "priority"),
    *("nodes", "starts"),
)
def to_come(tables: Tables, nodes: Sequence[str]) -> Answer:
    """Return the tasks of seats for which nothing is planned yet."""
    pairs = []
    for _, row in tables.plannings.due:
        task = tables.tasks.rows[row.task_id]
        if row.planned_to is None and task.parent is not None and task.state == "active":
            nodes_of_task = [str(participant["node"]) for participant in unpack(task.participants)]
            if not set(nodes_of_task).isdisjoint(nodes):
                pairs.append((task, nodes_of_task))
    pairs.sort(key=lambda pair: (pair[0].created_at, pair[0].id))
    return [
        (
            task.id,
            task.campaign or "default",
            unpack(task.schedule),
            task.duration,
            task.created_at,
            task.scheduling_class,
            task.priority,
            nodes_of_task,
            list(task.starts or ()),
        )
        for task, nodes_of_task in pairs
    ]


@TWINS.of("id", "test", "spec")
def tests_of(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return test and specification of these tasks."""
    rows = (tables.tasks.rows.get(task) for task in sorted(set(tasks)))
    return [(task.id, task.test, unpack(task.spec)) for task in rows if task is not None]


@TWINS.of("node", "campaign", "runs")
def failed(tables: Tables, since: int, nodes: Sequence[str]) -> Answer:
    """Count the failed runs of seats by node and campaign."""
    counts: Counter[tuple[str, str]] = Counter()
    for seat in tables.seats.rows.values():
        if seat.node in nodes:
            campaign = tables.tasks.rows[seat.task_id].campaign or "default"
            row = tables.nodes.rows.get(seat.node)
            counted_from = max(since, (row.pardoned_at if row else None) or since)
            counts[seat.node, campaign] += sum(
                run.state == "failed"
                and run.finished_at is not None
                and run.finished_at >= counted_from
                for run in tables.runs.by_task.of(seat.task_id)
            )
    return [(*key, count) for key, count in sorted(counts.items()) if count]


@TWINS.of("pg_notify")
def notify(tables: Tables, payloads: Sequence[str]) -> Answer:
    """Send notifications."""
    for payload in payloads:
        tables.journal.tell(payload)
    return [(None,) for _ in payloads]
