"""Twins of ``node/store/sql/gaps.sql``: slots that were never planned."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from uuid import UUID

from lead.simulation.memory.rows import GapRow, TaskRow
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "gaps")


@TWINS.of("task_id", "slot")
def told_slots(tables: Tables, tasks: Sequence[UUID], planned_to: Sequence[int | None]) -> Answer:
    """Return the unplanned slots that have a run which tells of them."""
    found = {
        (task, run.slot)
        for task, since in zip(tasks, planned_to, strict=True)
        for run in (() if since is None else tables.runs.by_task.after(task, since))
        if not (run.freed or run.state == "displaced")
    }
    return sorted(found)


@TWINS.of()
def keep_gaps(
    tables: Tables,
    now: int,
    gaps: Sequence[UUID],
    tasks: Sequence[UUID],
    first_slots: Sequence[int],
    last_slots: Sequence[int],
    slot_counts: Sequence[int],
    remark: str,
    reasons: Sequence[str],
    heard_before: int,
) -> Answer:
    """Store gaps, and those of the tasks that follow; no absence of a lead is known here."""
    del heard_before
    given = zip(gaps, tasks, first_slots, last_slots, slot_counts, reasons, strict=True)
    rows = [
        GapRow(gap, task, first, last, slots, reason + remark, now)
        for gap, task, first, last, slots, reason in given
    ]
    told = [row for row in rows if tables.gaps.offer(row)]
    following = [
        made
        for row in told
        for task in tables.tasks.followers.of(row.task_id)
        if task.state in {"active", "paused"} and tables.led_here(task.id)
        if (made := _following_gap(tables, row, task)) is not None
    ]
    for row in sorted(following, key=lambda row: (row.task_id, row.first_slot)):
        tables.gaps.offer(row)
    return ()


def _following_gap(tables: Tables, gap: GapRow, follower: TaskRow) -> GapRow | None:
    """Return where runs would have ended from the creation of a task on that follows them."""
    duration = tables.tasks.rows[gap.task_id].duration
    before = _slots_before(gap, follower.created_at - duration)
    if before == gap.slots:
        return None
    later = (gap.last_slot - gap.first_slot) * before // (gap.slots - 1) if before else 0
    return GapRow(
        # As in Postgres: from a digest, because a namespace for ids is an extension there.
        UUID(md5(f"{follower.id} follows {gap.id}".encode(), usedforsecurity=False).hexdigest()),
        follower.id,
        gap.first_slot + duration + later,
        gap.last_slot + duration,
        gap.slots - before,
        f"task {gap.task_id}, which it follows, has a gap: {gap.reason}",
        gap.told_at,
    )


def _slots_before(gap: GapRow, instant: int) -> int:
    """Return how many slots of a gap are before an instant, as the function of the schema does."""
    if instant <= gap.first_slot:
        return 0
    if instant > gap.last_slot:
        return gap.slots
    length = gap.last_slot - gap.first_slot
    counted = -(-(instant - gap.first_slot) * (gap.slots - 1) // length)
    return max(1, min(gap.slots - 1, counted))


@TWINS.of("task_id", "next_slot", "rounds_left")
def pool_standings(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return how far the terms of pool tasks have been begun."""
    rows = (tables.pool_tasks.rows.get(task) for task in tasks)
    return [(row.task_id, row.next_slot, row.rounds_left) for row in rows if row is not None]
