"""Twins of ``node/store/sql/dependencies.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from lead.simulation.memory.rows import RunRow, TaskRow, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "dependencies")


@TWINS.of(
    "run", "followed", "state", "reason", "slot", "task", "paused", "after", "attempt", "skipped"
)
def followers(tables: Tables, runs: Sequence[UUID], over: Sequence[str]) -> Answer:
    """Return the tasks led here that follow those of runs, and what they have at their ends."""
    answer = []
    for run in (tables.runs.rows.get(each) for each in dict.fromkeys(runs)):
        if run is None or run.state not in over or run.freed:
            continue
        for task in tables.tasks.followers.of(run.task_id):
            node = tables.nodes.rows.get(task.lead)
            if task.state not in {"active", "paused"} or node is None or not node.is_self:
                continue
            last = _last(tables, task.id, run.ends_at)
            answer.append(
                (
                    run.id,
                    run.task_id,
                    run.state,
                    run.reason,
                    run.ends_at,
                    task.id,
                    task.state == "paused",
                    unpack(task.schedule)["after"],
                    None if last is None else last.attempt,
                    None if last is None else _skipped(last),
                )
            )
    return sorted(answer, key=lambda row: (row[5], row[0]))


def _last(tables: Tables, task: UUID, slot: int) -> RunRow | None:
    """Return the last attempt of a slot."""
    of_slot = (run for run in tables.runs.by_task.after(task, slot - 1) if run.slot == slot)
    return max(of_slot, key=lambda run: run.attempt, default=None)


def _skipped(run: RunRow) -> bool:
    return run.state == "cancelled" and run.exchange_id is None and not run.freed


@TWINS.of("id")
def follow(
    tables: Tables,
    now: int,
    runs: Sequence[UUID],
    tasks: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    states: Sequence[str],
    reasons: Sequence[str],
) -> Answer:
    """Insert runs that follow others, waiting or cancelled."""
    inserted = []
    for run, task, slot, attempt, state, reason in zip(
        runs, tasks, slots, attempts, states, reasons, strict=True
    ):
        row = tables.tasks.rows.get(task)
        if row is None:
            continue
        made = RunRow(
            run,
            task,
            None,
            slot,
            attempt,
            row.participant,
            row.scheduling_class,
            row.priority,
            slot,
            slot + row.duration,
            str(state),
            now,
            now,
            reason=reason,
            finished_at=now if state == "cancelled" else None,
        )
        if tables.runs.offer(made):
            inserted.append((run,))
    return inserted


@TWINS.of("id", "task", "slot", "attempt")
def given_up(tables: Tables, tasks: Sequence[UUID], since: Sequence[int]) -> Answer:
    """Return the slots whose last run was given up by a change of the task."""
    found = []
    for task, first in zip(tasks, since, strict=True):
        row = tables.tasks.rows.get(task)
        if row is None or row.follows is None:
            continue
        of_followed = tables.runs.by_task.of(row.follows)
        ends = {run.ends_at for run in of_followed if run.state in {"finished", "failed"}}
        found += [
            (run.id, task, run.slot, run.attempt)
            for run in tables.runs.by_task.after(task, first - 1)
            if run.freed and run.slot in ends and _last(tables, task, run.slot) is run
        ]
    return sorted(found, key=lambda row: (row[1], row[2]))


@TWINS.of("id", "test", "lead", "state", "parent", "pooled")
def chain(tables: Tables, task: UUID) -> Answer:
    """Return a task, the one that it follows, and so on."""
    path: dict[UUID, TaskRow] = {}
    following: UUID | None = task
    while following is not None and following not in path:
        row = tables.tasks.rows.get(following)
        if row is None:
            break
        path[row.id] = row
        following = row.follows
    return [
        (row.id, row.test, row.lead, row.state, row.parent, row.id in tables.pool_tasks.rows)
        for row in path.values()
    ]


@TWINS.of("pg_advisory_xact_lock")
def lock_dependencies(_tables: Tables) -> Answer:
    """Lock what tasks follow: transactions in memory are alone anyway."""
    return [(None,)]


@TWINS.of("ends_at")
def booked_ends(tables: Tables, task: UUID) -> Answer:
    """Return where the booked runs of a task end."""
    booked = {"booked", "running", "merging"}
    return sorted((run.ends_at,) for run in tables.runs.open.of(task) if run.state in booked)
