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
    """Whoever plans these tasks at this moment has lost its lease."""
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
    """Holds under an older epoch are refused from now on."""
    for task, epoch in zip(tasks, epochs, strict=True):
        row = tables.tasks.rows.get(task)
        if row is not None:
            tables.tasks.change(row, lease_epoch=max(row.lease_epoch, epoch))
    return ()


@TWINS.of()
def abort_open(tables: Tables, tasks: Sequence[UUID], now: int) -> Answer:
    """What is being negotiated is aborted."""
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
    """At the lead: the runs to come of these slots, waiting ones too, and what is not decided."""
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
    """At a participant, by its lead's word: runs booked before the change."""
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
    """Which runs the last change gave up."""
    for task, freeing in zip(tasks, freeings, strict=True):
        row = tables.tasks.rows.get(task)
        if row is not None:
            tables.tasks.change(row, freeing=pack(freeing))
    return ()


@TWINS.of()
def keep_measured(tables: Tables, task: UUID) -> Answer:
    """Runs that stay are what they were booked as, whatever the task says from now on."""
    row = tables.tasks.rows.get(task)
    for run in () if row is None else tables.runs.by_task.of(task):
        if row is not None and run.spec is None and not run.freed:
            tables.runs.change(run, spec=row.spec, tool=row.tool)
    return ()


@TWINS.of()
def reprioritise(tables: Tables, task: UUID, priority: int, now: int) -> Answer:
    """The runs to come of a task have another priority."""
    for run in tables.runs.open.of(task):
        if run.priority != priority and run.state in {"waiting", "booked", "set-aside"}:
            tables.runs.change(run, priority=priority, changed_at=now)
    return ()


@TWINS.of("id")
def stand(
    tables: Tables, tasks: Sequence[UUID], revisions: Sequence[int], paused_at: int | None
) -> Answer:
    """Active or paused, by the newest word of the lead."""
    stood = []
    for task, revision in zip(tasks, revisions, strict=True):
        row = tables.tasks.rows.get(task)
        if row is None or row.state not in {"active", "paused"} or row.revision > revision:
            continue
        state = "active" if paused_at is None else "paused"
        tables.tasks.change(row, revision=revision, paused_at=paused_at, state=state)
        stood.append((task,))
    return stood


@TWINS.of("task_id", "planned_to", "next_run_at")
def standing(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """How far tasks have been planned."""
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
    """Where planning goes on, and when."""
    for task, reached, following in zip(tasks, planned_to, next_run_at, strict=True):
        row = tables.plannings.rows.get(task)
        if row is not None:
            tables.plannings.change(
                row, planned_to=reached, next_run_at=following, plan_at=plan_at, failures=0
            )
    return ()


@TWINS.of("slot")
def surplus(tables: Tables, task: UUID, not_counted: Sequence[str], max_runs: int) -> Answer:
    """The first slot in excess of so many runs."""
    slots = [run.slot for run in tables.runs.by_task.of(task) if run.state not in not_counted]
    return [(slot,) for slot in slots[max_runs : max_runs + 1]]


@TWINS.of("task", "count")
def kept_between(
    tables: Tables, tasks: Sequence[UUID], since: Sequence[int], until: Sequence[int]
) -> Answer:
    """How many slots have a run that was not given up."""
    counted = []
    for task, first, end in zip(tasks, since, until, strict=True):
        later = tables.runs.by_task.after(task, first - 1)
        if kept := {run.slot for run in later if run.slot < end and not run.freed}:
            counted.append((task, len(kept)))
    return counted


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
    """Say in the traces of tasks what was changed."""
    every = zip(tasks, outcomes, sentences, first_slots, last_slots, traces, strict=True)
    for task, outcome, sentence, first, last, trace in every:
        number = next(tables.decisions.ids)
        slots = (first, last)
        made = DecisionRow(
            number, task, None, now, now, outcome, sentence, 0, 0, *slots, trace=pack(trace)
        )
        tables.decisions.insert(made)
    return ()


@TWINS.of("exists")
def letters_left(tables: Tables, kind: str, task: str, letter: int) -> Answer:
    """Whether other participants have not heard of the task's change yet."""
    others = (row for row in tables.letters.rows.values() if row.kind == kind and row.id != letter)
    return [(any(unpack(row.message).get("task") == task for row in others),)]
