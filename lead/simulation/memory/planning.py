"""Twins of ``lead/store/sql/planning.sql``: claims, pauses, comparison; see ``negotiations.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.bookings import greatest, least
from lead.simulation.memory.limits import line_of, suspended_in
from lead.simulation.memory.rows import (
    CampaignRow,
    PlanningRow,
    RunRow,
    TaskRow,
    pack,
    unpack,
)
from lead.simulation.memory.rulings import committed_runs
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from lead.simulation.memory.tasks import nodes_of
from node.store.campaigns import URGENT

TWINS = Twins("lead.store", "planning")

_TO_COME = frozenset({"booked", "set-aside", "running", "merging"})


@TWINS.of(
    "task_id",
    "next_run_at",
    "planned_to",
    "failures",
    "lease_epoch",
    "state",
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
    "parent",
    "pool",
    "yielding",
    "starts",
    "suspended",
    "limited",
    "privileged",
    "level",
    "taken_from",
    "limit_rule",
    "limit_refusal",
    "run_bytes",
    "limit_user",
)
def claim(
    tables: Tables,
    now: int,
    before: int,
    limit: int,
    owner: str,
    lease_until: int,
    restricted: Sequence[str],
    only: str | None,
) -> Answer:
    """Lease the due tasks whose next runs come soonest."""
    due = [
        (row.next_run_at, row.added_at, row.task_id, row)
        for row in tables.plannings.due.before(now + 1)
        if row.next_run_at is not None
        and row.next_run_at < before
        and (row.lease_until is None or row.lease_until <= now)
        and (row.waits_for not in restricted or _waited(row, now))
        and only in {None, row.waits_for}
    ]
    claims = [row for *_, row in sorted(due)[:limit]]
    taken_from = [row.lease_owner for row in claims]
    for row in claims:
        tables.plannings.change(
            row,
            lease_owner=owner,
            lease_until=lease_until,
            plan_at=lease_until,
            lease_epoch=row.lease_epoch + 1,
        )
    return [
        (*_claim_row(tables, row, tables.tasks.rows[row.task_id]), lost, *_limit(tables, row))
        for row, lost in zip(claims, taken_from, strict=True)
    ]


@TWINS.of()
def count_takeovers(_: Tables, _owner: str, _now: int, _count: int) -> Answer:
    """Count nothing: nobody asks who leads a simulated node."""
    return ()


def _limit(tables: Tables, row: PlanningRow) -> tuple[Any, ...]:
    task = tables.tasks.rows[row.task_id]
    return task.limit_rule, task.limit_refusal, task.run_bytes, task.limit_user


def _waited(row: PlanningRow, now: int) -> bool:
    return row.waits_until is not None and row.waits_until <= now


def _claim_row(tables: Tables, row: PlanningRow, task: TaskRow) -> tuple[Any, ...]:
    whole = None if task.parent is None else tables.pool_tasks.rows.get(task.parent)
    campaign = tables.campaigns.rows[row.campaign_id]
    return (
        row.task_id,
        row.next_run_at,
        row.planned_to,
        row.failures,
        row.lease_epoch,
        task.state,
        task.test,
        unpack(task.spec),
        task.tool,
        list(task.tools),
        task.scheduling_class,
        task.duration,
        task.priority,
        unpack(task.participants),
        task.participant,
        unpack(task.addresses),
        unpack(task.schedule),
        task.campaign,
        unpack(task.reference),
        task.created_at,
        task.revision,
        unpack(task.freeing),
        task.parent,
        None if whole is None else tables.pools.rows[whole.pool_id].name,
        None if task.yielding is None else list(task.yielding),
        None if task.starts is None else list(task.starts),
        suspended_in(tables, campaign),
        _is_limited(tables, campaign),
        campaign.level == URGENT or campaign.preemptor,
        campaign.level,
    )


def _is_limited(tables: Tables, campaign: CampaignRow | None) -> bool:
    """Return whether a campaign, or one above it, has limits."""
    return any(each.is_limited for each in line_of(tables, campaign))


@TWINS.of("due", "beyond")
def next_due(tables: Tables, before: int, restricted: Sequence[str]) -> Answer:
    """Return when the next task is due for planning, and the first slot beyond ``before``."""
    soonest: int | None = None
    for plan_at, row in tables.plannings.due:
        if soonest is not None and plan_at >= soonest:
            break
        if row.waits_for not in restricted and _runs_before(row, before):
            soonest = least(soonest, greatest(plan_at, row.lease_until))
    for node in dict.fromkeys(restricted):
        for row in tables.plannings.waiting_for.of(node):
            if None not in {row.plan_at, row.waits_until} and _runs_before(row, before):
                waits_until = greatest(row.plan_at, row.waits_until)
                soonest = least(soonest, greatest(waits_until, row.lease_until))
    slots = [row.next_run_at for _, row in tables.plannings.due]
    beyond = min((at for at in slots if at is not None and at >= before), default=None)
    return [(soonest, beyond)]


def _runs_before(row: PlanningRow, before: int) -> bool:
    return row.next_run_at is not None and row.next_run_at < before


@TWINS.of("task_id", "slot", "attempt", "reason")
def waiting(tables: Tables, tasks: Sequence[UUID], limit: int) -> Answer:
    """Return the waiting slots by task, the least recently requested first."""
    answer = []
    for task in sorted(set(tasks)):
        rows = tables.runs.waiting.of(task)
        rows.sort(key=lambda run: (run.changed_at, run.slot, run.attempt))
        answer += [(task, run.slot, run.attempt, run.reason) for run in rows[:limit]]
    return answer


@TWINS.of("task_id", "slot", "attempt", "again")
def touched(tables: Tables, tasks: Sequence[UUID], planned_to: Sequence[int | None]) -> Answer:
    """Return the last attempt of each slot beyond ``planned_to`` that has had runs."""
    last: dict[tuple[UUID, int], RunRow] = {}
    for task, since in zip(tasks, planned_to, strict=True):
        for run in () if since is None else tables.runs.by_task.after(task, since):
            latest = last.get((task, run.slot))
            if latest is None or latest.attempt < run.attempt:
                last[task, run.slot] = run
    return [
        (task, slot, run.attempt, run.freed or run.state == "displaced")
        for (task, slot), run in sorted(last.items(), key=lambda item: item[0])
    ]


@TWINS.of("task_id", "count")
def counted_runs(tables: Tables, tasks: Sequence[UUID], not_counted: Sequence[str]) -> Answer:
    """Return by task the number of runs that count towards its ``max_runs``."""
    counts = (
        (task, sum(run.state not in not_counted for run in tables.runs.by_task.of(task)))
        for task in dict.fromkeys(tasks)
    )
    return [(task, count) for task, count in counts if count]


@TWINS.of("task_id")
def finish_claims(
    tables: Tables,
    tasks: Sequence[UUID],
    epochs: Sequence[int],
    were_planned_to: Sequence[int | None],
    planned_to: Sequence[int | None],
    next_run_at: Sequence[int | None],
    plan_at: Sequence[int | None],
    failures: Sequence[int],
    waits_for: Sequence[str | None],
    waits_until: Sequence[int | None],
    wants_room: Sequence[bool],
) -> Answer:
    """Return tasks with their next planning; changes since the claim are kept."""
    claims = zip(
        tasks,
        epochs,
        were_planned_to,
        planned_to,
        next_run_at,
        plan_at,
        failures,
        waits_for,
        waits_until,
        wants_room,
        strict=True,
    )
    return [(task,) for task, *following in claims if _finish(tables, task, *following)]


def _finish(
    tables: Tables,
    task: UUID,
    epoch: int,
    was_planned_to: int | None,
    planned_to: int | None,
    next_run_at: int | None,
    plan_at: int | None,
    failures: int,
    waits_for: str | None,
    waits_until: int | None,
    wants_room: bool,
) -> bool:
    row = _leased(tables, task, epoch)
    if row is None or (plan_at is not None and tables.tasks.rows[task].state != "active"):
        return False
    if row.plan_at is not None and row.lease_until is not None and row.plan_at < row.lease_until:
        plan_at, next_run_at = least(row.plan_at, plan_at), least(row.next_run_at, next_run_at)
    tables.plannings.change(
        row,
        planned_to=planned_to if row.planned_to == was_planned_to else row.planned_to,
        next_run_at=next_run_at,
        plan_at=plan_at,
        failures=failures,
        waits_for=waits_for,
        waits_until=waits_until,
        wants_room=wants_room,
        lease_owner=None,
        lease_until=None,
    )
    return True


def _leased(tables: Tables, task: UUID, epoch: int) -> PlanningRow | None:
    row = tables.plannings.rows.get(task)
    if row is None or row.lease_epoch != epoch or row.lease_until is None:
        return None
    return row


@TWINS.of("task_id")
def break_off(tables: Tables, task: UUID, epoch: int, plan_at: int) -> Answer:
    """Schedule a task again whose planning was interrupted."""
    row = _leased(tables, task, epoch)
    if row is None:
        return ()
    tables.plannings.change(
        row,
        plan_at=least(row.plan_at, plan_at),
        failures=row.failures + 1,
        lease_owner=None,
        lease_until=None,
    )
    return [(task,)]


@TWINS.of()
def turn_away(tables: Tables, task: UUID, epoch: int, plan_at: int, node: str) -> Answer:
    """Release a task until the participant has capacity for it."""
    row = _leased(tables, task, epoch)
    if row is not None:
        tables.plannings.change(
            row,
            plan_at=least(row.plan_at, plan_at),
            waits_for=node,
            waits_until=None,
            lease_owner=None,
            lease_until=None,
        )
    return ()


@TWINS.of()
def put_off(tables: Tables, node: str, plan_at: int) -> Answer:
    """Schedule the tasks that wait for a participant for the next probe of it."""
    for row in tables.plannings.waiting_for.of(node):
        if row.plan_at is None or row.lease_until is not None:
            continue
        if row.waits_until is None:
            tables.plannings.change(row, waits_for=None)
        else:
            tables.plannings.change(row, plan_at=min(plan_at, row.waits_until))
    return ()


@TWINS.of()
def wake_all(tables: Tables, node: str, now: int) -> Answer:
    """Schedule the tasks that wait for a participant that has answered."""
    for row in tables.plannings.waiting_for.of(node):
        if row.plan_at is not None:
            tables.plannings.change(
                row, plan_at=min(row.plan_at, now), waits_for=None, waits_until=None
            )
    return ()


@TWINS.of()
def give_back(tables: Tables, task: UUID, epoch: int, now: int) -> Answer:
    """Release a task so that another worker can plan it at once."""
    row = tables.plannings.rows.get(task)
    if row is not None and row.lease_epoch == epoch:
        tables.plannings.change(
            row, plan_at=least(row.plan_at, now), lease_owner=None, lease_until=None
        )
    return ()


@TWINS.of("id")
def lock_to_change(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Lock tasks against concurrent changes."""
    return [(task,) for task in sorted(set(tasks)) if task in tables.tasks.rows]


@TWINS.of("id")
def set_participants(
    tables: Tables,
    task: UUID,
    participants: list[dict[str, Any]],
    tool: str,
    duration: int,
    epoch: int,
) -> Answer:
    """Store what the participants answered, unless the lease was lost."""
    row, agenda = tables.tasks.rows.get(task), tables.plannings.rows.get(task)
    if row is None or agenda is None or agenda.lease_epoch != epoch:
        return ()
    tables.tasks.change(
        row,
        participants=pack(participants),
        nodes=nodes_of(participants),
        tool=tool,
        duration=duration,
    )
    return [(task,)]


@TWINS.of("id", "state", "revision", "accepted", "settled", "runs", "starts", "given_up")
def digests(
    tables: Tables,
    participant: str,
    since: int,
    until: int,
    decided_before: int,
    after: UUID,
    limit: int,
) -> Answer:
    """Return a page of open tasks led here and their runs, to compare with one participant."""
    itself = tables.nodes.itself
    if itself is None:
        return ()
    led = [
        (task, answers)
        for task in tables.tasks.open_with.of(participant)
        if task.lead == itself.identity
        and task.id > after
        and False not in (answers := _answers_of(task, participant))
    ]
    led.sort(key=lambda each: each[0].id)
    return [
        (
            task.id,
            task.state,
            task.revision,
            True in answers,
            _settled(tables, task.id, decided_before),
            *committed_runs(tables, task.id, since, until, _TO_COME),
            _given_up(tables, task.id, since, until),
        )
        for task, answers in led[:limit]
    ]


def _given_up(tables: Tables, task: UUID, since: int, until: int) -> list[UUID] | None:
    ids, _ = committed_runs(tables, task, since, until, frozenset({"merging"}))
    return [
        run
        for run in ids or ()
        if all(part.started_at is None for part in tables.parts.by_run.of(run))
    ] or None


@TWINS.of("id")
def lacking(tables: Tables, participant: str, since: int, until: int, limit: int) -> Answer:
    """Return runs led here that ended without the part of one participant, the newest first."""
    found = []
    for run in tables.runs.rows.values():
        if run.state not in {"merging", "failed", "missed"} or not tables.led_here(run.task_id):
            continue
        kept = {part.participant for part in tables.parts.by_run.of(run.id)}
        listed = unpack(tables.tasks.rows[run.task_id].participants)
        if since <= run.starts_at < until and run.ends_at < until:
            found += [
                run
                for number, each in enumerate(listed)
                if each.get("node") == participant and number not in kept
            ]
    found.sort(key=lambda run: (-run.starts_at, run.id))
    return [(run.id,) for run in found[:limit]]


def _answers_of(task: TaskRow, participant: str) -> list[bool | None]:
    return [
        each.get("accepted")
        for each in unpack(task.participants)
        if each.get("node") == participant
    ]


def _settled(tables: Tables, task: UUID, decided_before: int) -> bool:
    return not any(
        row.state == "open"
        or (
            row.state == "committed"
            and row.decided_at is not None
            and row.decided_at > decided_before
            and any(tables.outbox.commits.of(str(row.id)))
        )
        for row in tables.negotiations.by_task.of(task)
    )


@TWINS.of("wanted")
def is_wanted(tables: Tables, run: UUID) -> Answer:
    """Return whether a run is booked here, or an open negotiation contains it."""
    row = tables.runs.rows.get(run)
    booked = row is not None and row.state in _TO_COME
    return [(booked or any(run in each.run_ids for each in tables.negotiations.open.values()),)]


@TWINS.of("pg_notify")
def notify_planned(tables: Tables, payloads: Sequence[str]) -> Answer:
    """Notify watchers of these tasks that a planning attempt was made."""
    for payload in payloads:
        tables.journal.tell(payload)
    return [(None,)] * len(payloads)
