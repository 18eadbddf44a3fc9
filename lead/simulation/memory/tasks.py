"""Twins of ``node/store/sql/tasks.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import (
    IdempotencyRow,
    PlanningRow,
    TaskRow,
    pack,
    pack_optional,
    unpack,
)
from lead.simulation.memory.rulings import wake
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from node.store.database import BrokenCheck

TWINS = Twins("node.store", "tasks")


def nodes_of(participants: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the identities of the participants of a task."""
    return tuple(dict.fromkeys(str(participant["node"]) for participant in participants))


_UP_TO_DATE = (
    *("spec", "tool", "tools", "scheduling_class", "duration", "priority", "participants", "nodes"),
    *(
        "addresses",
        "schedule",
        "limited",
        "follows",
        "campaign",
        "reference",
        "revision",
        "pool_task",
        "limit_rule",
        "limit_refusal",
        "run_bytes",
        "limit_caps",
        "limit_user",
        "limit_address",
    ),
)


@TWINS.of("id")
def upsert_task(
    tables: Tables,
    task: UUID,
    lead: str,
    test: str,
    spec: dict[str, Any],
    tool: str | None,
    tools: list[str],
    scheduling_class: str,
    duration: int,
    priority: int,
    participants: list[dict[str, Any]],
    participant: int | None,
    addresses: dict[str, str],
    schedule: dict[str, Any],
    campaign: str | None,
    reference: Any,
    created_at: int,
    revision: int,
    pool_task: UUID | None,
    limit_rule: str | None,
    run_bytes: int | None,
    limit_caps: list[list[str]],
    requester: str | None,
    limit_user: str | None,
    limit_address: str | None,
    limit_refusal: str | None,
) -> Answer:
    """Insert a task, or update it if its lead sends it again."""
    row = TaskRow(
        task,
        lead,
        test,
        pack(spec),
        tool,
        list(tools),
        str(scheduling_class),
        duration,
        priority,
        pack(participants),
        participant,
        pack(addresses),
        pack(schedule),
        campaign,
        pack_optional(reference),
        created_at,
        nodes_of(participants),
        isinstance(schedule.get("max_runs"), int),
        UUID(after["task"]) if (after := schedule.get("after")) is not None else None,
        revision=revision,
        pool_task=pool_task,
        limit_rule=limit_rule,
        run_bytes=run_bytes,
        limit_caps=pack(limit_caps),
        requester=requester,
        limit_user=limit_user,
        limit_address=limit_address,
        limit_refusal=limit_refusal,
    )
    return _put(tables, row)


def _put(tables: Tables, row: TaskRow) -> Answer:
    """Insert or update a task, unless another node leads it or a newer revision is known."""
    existing = tables.tasks.rows.get(row.id)
    if existing is None:
        _refuse_cycle(tables, row)
        tables.tasks.insert(row)
    elif existing.lead == row.lead and existing.revision <= row.revision:
        _refuse_cycle(tables, row)
        tables.tasks.change(existing, **{column: getattr(row, column) for column in _UP_TO_DATE})
        planning = tables.plannings.rows.get(row.id)
        if planning is not None and planning.follower != (row.follows is not None):
            tables.plannings.change(planning, follower=row.follows is not None)
    else:
        return ()
    return [(row.id,)]


def _refuse_cycle(tables: Tables, row: TaskRow) -> None:
    """Refuse a task of this node that would follow itself, directly or by way of others."""
    node, seen, followed = tables.nodes.rows.get(row.lead), set(), row.follows
    while node is not None and node.is_self and followed is not None and followed not in seen:
        if followed == row.id:
            msg = f"task {row.id} would follow itself"
            raise BrokenCheck(msg)
        seen.add(followed)
        then = tables.tasks.rows.get(followed)
        followed = None if then is None else then.follows


@TWINS.of("requester")
def requester(tables: Tables, task: UUID) -> Answer:
    """Return who created a task."""
    row = tables.tasks.rows.get(task)
    return () if row is None else [(row.requester,)]


@TWINS.of("requester")
def requester_of_run(tables: Tables, run: UUID) -> Answer:
    """Return who created the task of a run or a gap."""
    row = tables.runs.rows.get(run) or tables.gaps.rows.get(run)
    return () if row is None else requester(tables, row.task_id)


@TWINS.of()
def share_limits(tables: Tables, pool_task: UUID) -> Answer:
    """Have the tasks of a pool task's seats count as that one does."""
    whole = tables.tasks.rows.get(pool_task)
    if whole is None:
        return ()
    columns = ("limit_user", "limit_address", "limit_rule", "limit_refusal", "run_bytes")
    for row in list(tables.tasks.parts.of(pool_task)):
        if row.state in {"active", "paused"}:
            tables.tasks.change(row, **{column: getattr(whole, column) for column in columns})
    return ()


@TWINS.of("id")
def open_of(tables: Tables, lead: str) -> list[tuple[UUID]]:
    """Return the tasks of another lead that are open here."""
    return sorted((row.id,) for row in tables.tasks.open_of.of(lead))


@TWINS.of("id")
def lock_open_of(tables: Tables, lead: str, at_most: int) -> Answer:
    """Lock the first open tasks of a lead."""
    return open_of(tables, lead)[:at_most]


@TWINS.of("id")
def lock_open_with(tables: Tables, lead: str, participant: str, at_most: int) -> Answer:
    """Lock the first open tasks of a lead in which this node takes part."""
    found = (row for row in tables.tasks.open_of.of(lead) if participant in row.nodes)
    return sorted((row.id,) for row in found)[:at_most]


@TWINS.of("count")
def count_open_of(tables: Tables, lead: str, rule: str | None) -> Answer:
    """Return how many tasks of this lead are open here, or only those under a rule."""
    if rule is None:
        return [(tables.tasks.open_of.count(lead),)]
    of_rule = (task for task in tables.tasks.open_of.of(lead) if task.limit_rule == rule)
    return [(sum(1 for _ in of_rule),)]


@TWINS.of("task_id")
def open_planning(
    tables: Tables,
    tasks: Sequence[UUID],
    next_run_at: Sequence[int | None],
    plan_at: Sequence[int | None],
) -> Answer:
    """Put tasks on the lead's agenda, those whose campaigns exist."""
    opened = []
    for task, run_at, at in zip(tasks, next_run_at, plan_at, strict=True):
        row = tables.tasks.rows.get(task)
        campaign = None if row is None else tables.campaigns.of(row.campaign)
        if row is None or campaign is None:
            continue
        planning = PlanningRow(task, campaign.id, run_at, at, row.created_at)
        planning.follower = row.follows is not None
        tables.plannings.insert(planning)
        opened.append((task,))
    return opened


@TWINS.of("key")
def keep_idempotency(
    tables: Tables, keys: Sequence[str], digests: Sequence[str], made: Sequence[UUID], now: int
) -> Answer:
    """Claim idempotency keys."""
    claimed = []
    for key, digest, each in sorted(zip(keys, digests, made, strict=True)):
        if key not in tables.idempotencies.rows:
            tables.idempotencies.insert(IdempotencyRow(key, digest, each, now))
            claimed.append((key,))
    return claimed


@TWINS.of("key", "request_digest", "made")
def find_idempotency(tables: Tables, keys: Sequence[str]) -> Answer:
    """Return the digests of requests, and what they created, by their keys."""
    found = (tables.idempotencies.rows.get(key) for key in dict.fromkeys(keys))
    return [(row.key, row.request_digest, row.made) for row in found if row is not None]


@TWINS.of("id")
def lock_task(tables: Tables, task: UUID) -> Answer:
    """Lock a task against concurrent changes and bookings."""
    return [(task,)] if task in tables.tasks.rows else ()


@TWINS.of(
    "id",
    "lead",
    "state",
    "reason",
    "test",
    "spec",
    "tool",
    "tools",
    "scheduling_class",
    "duration",
    "priority",
    "participants",
    "participant",
    "addresses",
    "schedule",
    "campaign",
    "reference",
    "created_at",
    "revision",
    "freeing",
    "paused_at",
    "ended_at",
    "parent",
    "pool_task",
    "requester",
    "limit_user",
    "limit_address",
)
def task(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return stored tasks."""
    return [
        (
            row.id,
            row.lead,
            row.state,
            row.reason,
            row.test,
            unpack(row.spec),
            row.tool,
            list(row.tools),
            row.scheduling_class,
            row.duration,
            row.priority,
            unpack(row.participants),
            row.participant,
            unpack(row.addresses),
            unpack(row.schedule),
            row.campaign,
            unpack(row.reference),
            row.created_at,
            row.revision,
            unpack(row.freeing),
            row.paused_at,
            row.ended_at,
            row.parent,
            row.pool_task,
            row.requester,
            row.limit_user,
            row.limit_address,
        )
        for each in sorted(tasks)
        if (row := tables.tasks.rows.get(each)) is not None
    ]


@TWINS.of("id")
def end_tasks(tables: Tables, tasks: Sequence[UUID], state: str, reason: str, now: int) -> Answer:
    """End the tasks that have not ended."""
    ended = []
    for task in dict.fromkeys(tasks):
        row = tables.tasks.rows.get(task)
        if row is not None and row.state in {"active", "paused"}:
            tables.tasks.change(row, state=str(state), reason=reason, ended_at=now, paused_at=None)
            ended.append((task,))
    return ended


@TWINS.of("task_id", "lease_until")
def stop_planning(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Take tasks off the agenda."""
    rows = [row for task in tasks if (row := tables.plannings.rows.get(task)) is not None]
    for row in rows:
        tables.plannings.change(row, plan_at=None, next_run_at=None)
    return [(row.task_id, row.lease_until) for row in rows]


@TWINS.of()
def wake_planning(tables: Tables, task: UUID, now: int, slot: int) -> Answer:
    """Plan this task now, from this slot on."""
    row = tables.plannings.rows.get(task)
    if row is not None and tables.tasks.rows[task].state == "active":
        wake(tables, row, now, slot)
    return ()


@TWINS.of("id")
def wake_refused(tables: Tables, tasks: Sequence[UUID], node: str, now: int) -> Answer:
    """Plan waiting slots now, as time that a participant refused is free again."""
    woken = []
    for task in dict.fromkeys(tasks):
        row, agenda = tables.tasks.rows.get(task), tables.plannings.rows.get(task)
        if row is None or agenda is None or row.state != "active" or node not in row.nodes:
            continue
        if agenda.plan_at is None or agenda.plan_at <= now:
            continue
        if agenda.lease_until is not None or task in tables.runs.waiting:
            tables.plannings.change(agenda, plan_at=now)
            woken.append((task,))
    return woken


@TWINS.of("id", "participants", "state", "reason")
def finish_tasks(tables: Tables, now: int) -> Answer:
    """Finish tasks that have nothing left to plan, no open run, and none to be placed again."""
    plannings, runs = tables.plannings, tables.runs
    candidates = {**plannings.rested, **runs.done_with}
    plannings.rested.clear()
    runs.done_with.clear()
    idle = [
        tables.tasks.rows[task]
        for task in candidates
        if task in plannings.idle and not plannings.idle[task].follower
        if task not in runs.open and task not in tables.pool_tasks.rows
    ]
    finished = [row for row in idle if not runs.is_to_be_placed_again(row.id, now)]
    over = {row.id for row in finished}
    plannings.rested.update((row.id, None) for row in idle if row.id not in over)
    for row in finished:
        tables.tasks.change(row, state="finished", ended_at=now)
    return [(row.id, unpack(row.participants), row.state, row.reason) for row in finished]


@TWINS.of("id", "participants", "state", "reason")
def finish_followers(tables: Tables, now: int) -> Answer:
    """End tasks that follow one that is over, and have nothing left themselves."""
    ends = []
    for task, planning in tables.plannings.idle.items():
        row = tables.tasks.rows[task]
        if not planning.follower or task in tables.runs.open:
            continue
        followed = None if row.follows is None else tables.tasks.rows.get(row.follows)
        if followed is None or followed.state not in {"active", "paused"}:
            ends.append((row, *_end_of(row, followed)))
    for row, state, reason in ends:
        tables.tasks.change(row, state=state, reason=reason, ended_at=now)
    return [(row.id, unpack(row.participants), state, reason) for row, state, reason in ends]


def _end_of(row: TaskRow, followed: TaskRow | None) -> tuple[str, str]:
    """Return how a task ends that follows another one, and why."""
    state = "gone" if followed is None else followed.state
    reason = f"task {row.follows}, which it follows, is {state}"
    if followed is not None and followed.reason is not None:
        reason += f": {followed.reason}"
    return "finished" if state == "finished" else "cancelled", reason


@TWINS.of("count")
def purge_tasks(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete tasks that ended long ago."""
    pending = {unpack(message.message).get("task") for message in tables.outbox.rows.values()}
    old = [
        (row.ended_at, row.id)
        for row in tables.tasks.rows.values()
        if row.ended_at is not None
        and row.ended_at < before
        and row.state not in {"active", "paused"}
        and row.parent is None
        and not tables.tasks.parts.of(row.id)
        and not tables.runs.by_task.of(row.id)
        and not tables.gaps.by_task.of(row.id)
        and str(row.id) not in pending
    ]
    purged = [task for _, task in sorted(old)[:at_most]]
    tables.delete_tasks(purged)
    return [(len(purged),)]


@TWINS.of("count")
def purge_surplus_tasks(tables: Tables, kept: int, at_most: int) -> Answer:
    """Delete ended tasks of other nodes beyond the latest ``kept`` of each."""
    ended: dict[str, list[tuple[int, UUID]]] = {}
    for row in tables.tasks.rows.values():
        node = tables.nodes.rows.get(row.lead)
        if node is None or node.is_self or row.ended_at is None or row.id in tables.runs.open:
            continue
        ended.setdefault(row.lead, []).append((row.ended_at, row.id))
    surplus = [task for of in ended.values() for _, task in sorted(of, reverse=True)[kept:]]
    purged = sorted(surplus)[:at_most]
    tables.delete_tasks(purged)
    return [(len(purged),)]
