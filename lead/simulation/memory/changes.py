"""Twins of ``node/store/sql/changes.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import DecisionRow, RunRow, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "changes")


@TWINS.of("task_id", "lease_epoch")
def fence(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Raise the lease epochs of tasks, so that workers that plan them lose their leases."""
    rows = [row for task in tasks if (row := tables.plannings.rows.get(task)) is not None]
    for row in rows:
        tables.plannings.change(
            row,
            lease_epoch=row.lease_epoch + 1,
            lease_owner=None,
            lease_until=None,
            waits_for=None,
            waits_until=None,
        )
    return [(row.task_id, row.lease_epoch) for row in rows]


@TWINS.of()
def raise_epoch(tables: Tables, tasks: Sequence[UUID], epochs: Sequence[int]) -> Answer:
    """Raise the epochs of tasks, so that holds under an older epoch are refused."""
    for task, epoch in zip(tasks, epochs, strict=True):
        row = tables.tasks.rows.get(task)
        if row is not None:
            tables.tasks.change(row, lease_epoch=max(row.lease_epoch, epoch))
    return ()


@TWINS.of()
def abort_open(tables: Tables, tasks: Sequence[UUID], now: int) -> Answer:
    """Abort the open negotiations of tasks."""
    for task in tasks:
        for row in tables.negotiations.by_task.of(task):
            if row.state == "open":
                tables.negotiations.change(row, state="aborted", decided_at=now)
    return ()


@TWINS.of("id", "task_id", "slot")
def free_led(
    tables: Tables,
    tasks: Sequence[UUID],
    slots_from: int,
    starting: int,
    reason: str,
    now: int,
) -> Answer:
    """Free, at the lead, the future and waiting runs of these slots, and the undecided ones."""
    freed = [
        run
        for task in tasks
        for run in tables.runs.open.of(task)
        if (run.state == "waiting" and run.slot >= slots_from)
        or (
            run.state in {"booked", "set-aside"}
            and ((run.slot >= slots_from and run.starts_at >= starting) or _undecided(tables, run))
        )
    ]
    for run in freed:
        tables.runs.change(
            run, state="cancelled", freed=True, reason=reason, changed_at=now, finished_at=now
        )
    return [(run.id, run.task_id, run.slot) for run in freed]


def _undecided(tables: Tables, run: RunRow) -> bool:
    if run.exchange_id is None or not tables.held(run.exchange_id):
        return False
    negotiation = tables.negotiations.rows.get(run.exchange_id)
    return negotiation is not None and negotiation.state == "aborted"


@TWINS.of("id", "stopped")
def free_part(
    tables: Tables,
    task: UUID,
    slots_from: int,
    starting: int,
    before_epoch: int,
    reason: str,
    now: int,
) -> Answer:
    """Free, at a participant, the runs that its lead booked before the change."""
    answered = []
    for run in tables.runs.by_task.after(task, slots_from - 1):
        exchange = None if run.exchange_id is None else tables.exchanges.rows.get(run.exchange_id)
        if exchange is None or exchange.lease_epoch >= before_epoch or run.starts_at < starting:
            continue
        cut = run.state == "failed" and run.ends_at > now
        if not cut and run.state not in {"booked", "set-aside", "running", "merging"}:
            continue
        answered.append((run.id, run.state == "running"))
        if exchange.state == "held":
            tables.delete_run(run)
        else:
            tables.runs.change(
                run,
                state="cancelled",
                freed=True,
                reason=reason,
                changed_at=now,
                finished_at=now if run.finished_at is None else run.finished_at,
            )
    return answered


@TWINS.of()
def keep_freeing(
    tables: Tables, tasks: Sequence[UUID], freeings: Sequence[dict[str, Any]]
) -> Answer:
    """Store which runs the last change freed."""
    for task, freeing in zip(tasks, freeings, strict=True):
        row = tables.tasks.rows.get(task)
        if row is not None:
            tables.tasks.change(row, freeing=pack(freeing))
    return ()


@TWINS.of()
def keep_measured(tables: Tables, task: UUID) -> Answer:
    """Store specification and tool with the runs so far, before the task's own change."""
    row = tables.tasks.rows.get(task)
    for run in () if row is None else tables.runs.by_task.of(task):
        if row is not None and run.spec is None:
            tables.runs.change(run, spec=row.spec, tool=row.tool)
    return ()


@TWINS.of()
def reprioritise(tables: Tables, task: UUID, priority: int, now: int) -> Answer:
    """Change the priority of a task's future runs."""
    for run in tables.runs.open.of(task):
        if run.priority != priority and run.state in {"waiting", "booked", "set-aside"}:
            tables.runs.change(run, priority=priority, changed_at=now)
    return ()


@TWINS.of("id")
def stand(
    tables: Tables, tasks: Sequence[UUID], revisions: Sequence[int], paused_at: int | None
) -> Answer:
    """Set tasks active or paused by the newest message of the lead."""
    changed = []
    for task, revision in zip(tasks, revisions, strict=True):
        row = tables.tasks.rows.get(task)
        if row is None or row.state not in {"active", "paused"} or row.revision > revision:
            continue
        state = "active" if paused_at is None else "paused"
        tables.tasks.change(row, revision=revision, paused_at=paused_at, state=state)
        changed.append((task,))
    return changed


@TWINS.of("task_id", "planned_to", "next_run_at")
def standing(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return how far tasks have been planned."""
    rows = [row for task in tasks if (row := tables.plannings.rows.get(task)) is not None]
    return [(row.task_id, row.planned_to, row.next_run_at) for row in rows]


@TWINS.of()
def plan_on(
    tables: Tables,
    tasks: Sequence[UUID],
    planned_to: Sequence[int | None],
    next_run_at: Sequence[int | None],
    plan_at: int,
) -> Answer:
    """Set where and when planning continues."""
    for task, reached, following in zip(tasks, planned_to, next_run_at, strict=True):
        row = tables.plannings.rows.get(task)
        if row is not None:
            tables.plannings.change(
                row, planned_to=reached, next_run_at=following, plan_at=plan_at, failures=0
            )
    return ()


@TWINS.of("slot")
def surplus(tables: Tables, task: UUID, not_counted: Sequence[str], max_runs: int) -> Answer:
    """Return the first slot in excess of ``max_runs``."""
    slots = [run.slot for run in tables.runs.by_task.of(task) if run.state not in not_counted]
    return [(slot,) for slot in slots[max_runs : max_runs + 1]]


@TWINS.of("task", "count")
def kept_between(
    tables: Tables, tasks: Sequence[UUID], since: Sequence[int], until: Sequence[int]
) -> Answer:
    """Count the slots that have a run that was not freed."""
    counts = []
    for task, first, end in zip(tasks, since, until, strict=True):
        later = tables.runs.by_task.after(task, first - 1)
        if slots := {run.slot for run in later if run.slot < end and not run.freed}:
            counts.append((task, len(slots)))
    return counts


@TWINS.of()
def keep_change(
    tables: Tables,
    tasks: Sequence[UUID],
    now: int,
    outcomes: Sequence[str],
    sentences: Sequence[str],
    first_slots: Sequence[int | None],
    last_slots: Sequence[int | None],
    traces: Sequence[dict[str, Any]],
) -> Answer:
    """Record in the decision traces of tasks what was changed."""
    every = zip(tasks, outcomes, sentences, first_slots, last_slots, traces, strict=True)
    for task, outcome, sentence, first, last, trace in every:
        number = next(tables.decisions.ids)
        slots = (first, last)
        row = DecisionRow(
            number, task, None, now, now, outcome, sentence, 0, 0, *slots, trace=pack(trace)
        )
        tables.decisions.insert(row)
    return ()


@TWINS.of("exists")
def pending_for(tables: Tables, kind: str, task: str, node: str) -> Answer:
    """Return whether a participant has not received the task's change yet."""
    every = (row for row in tables.outbox.rows.values() if (row.kind, row.node) == (kind, node))
    return [(any(unpack(row.message).get("task") == task for row in every),)]


@TWINS.of("exists")
def others_pending(tables: Tables, kind: str, task: str, message_id: int) -> Answer:
    """Return whether other participants have not received the task's change yet."""
    others = (
        row for row in tables.outbox.rows.values() if row.kind == kind and row.id != message_id
    )
    return [(any(unpack(row.message).get("task") == task for row in others),)]
