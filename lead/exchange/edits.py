"""Edits of tasks, as a preview sees them: which booked runs stay, and what is planned beside them.

The rules are those of the edit itself (``node/model/changes.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from lead.planning.agenda import PlanningProgress, Slot
from lead.planning.placement import ChosenStart
from lead.store import planning
from node.model.changes import (
    EVERY_SLOT,
    PlacementTerms,
    first_given_up_slot,
    first_open,
    position_after_edit,
)
from node.model.task_terms import TaskTerms
from node.model.taskstate import TaskState
from node.store import changes, tasks
from node.store.database import Connection

_WAITING_MAX = 10_000


@dataclass(frozen=True)
class EditedTask:
    """A task as an edit would leave it: the runs that stay booked, and what is planned then.

    ``terms`` are those that it would have. ``anew`` tells that all other runs are freed, because
    their measurement or their times change.
    """

    terms: TaskTerms
    kept: Sequence[ChosenStart]
    progress: PlanningProgress
    anew: bool


async def edited_task(
    connection: Connection, task: UUID, terms: TaskTerms, margin: int, now: int
) -> EditedTask | None:
    """Return what an edit to these terms would leave; None if the task is not planned meanwhile.

    Runs that start within the ``margin`` (µs) stay as they are.
    """
    old = await tasks.fetch(connection, task)
    position = (await changes.planning_positions(connection, [task])).get(task)
    if old is None or position is None or old.state is not TaskState.ACTIVE:
        return None
    terms = replace(terms, created_at=old.terms.created_at)
    most = terms.schedule.max_runs
    surplus = None if most is None else await changes.first_surplus_slot(connection, task, most)
    slots_from = first_given_up_slot(
        PlacementTerms.of(old.terms), PlacementTerms.of(terms), surplus
    )
    booked = await planning.booked_starts(connection, task)
    kept = {at: start for at, start in booked.items() if at < slots_from or start < now + margin}
    every = (await planning.waiting_slots(connection, [task], _WAITING_MAX))[task]
    waiting = [slot for slot in every if slot.slot < slots_from]
    freed = sorted({*booked, *(slot.slot for slot in every)} - {*kept, *(w.slot for w in waiting)})
    counted = (await planning.run_counts(connection, [task])).get(task, 0)
    recurrence, duration = terms.recurrence, terms.duration
    soonest = first_open(recurrence, duration, now)
    then = position_after_edit(
        recurrence,
        position,
        freed,
        now if soonest is None else soonest,
        now,
        anew=slots_from == EVERY_SLOT,
    )
    uncounted = sum(slot.failed_at is None for slot in waiting)
    left = counted - (len(booked) - len(kept)) + uncounted
    return EditedTask(
        terms,
        [_kept_run(slot, start, duration) for slot, start in sorted(kept.items())],
        PlanningProgress(
            now if then.next_slot is None else then.next_slot,
            then.planned_to,
            [(slot.slot, slot.attempt) for slot in waiting],
            None if most is None else max(0, most - left),
            dict.fromkeys(kept),
            failed_at={it.slot: it.failed_at for it in waiting if it.failed_at is not None},
        ),
        slots_from == EVERY_SLOT,
    )


def _kept_run(slot: int, start: int, duration: int) -> ChosenStart:
    return ChosenStart(Slot(slot, 1, slot, start + duration), start, displacing=False)
