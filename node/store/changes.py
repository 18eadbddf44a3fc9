"""Statements for pausing, resuming, and editing tasks: freed runs, epochs, and the agenda.

Every function takes part in the transaction of the change, which has locked the tasks. A pool task
changes together with the ordinary tasks of its seats, of which there may be thousands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.model import runstate
from node.model.changes import PlanningPosition
from node.model.outcomes import PlanningOutcome
from node.model.wire.participants import FreedRuns
from node.store.database import Connection
from node.store.outbox import MessageKind
from node.store.statements import Query, Statements, spread

_SQL = Statements("node.store", "changes")


@dataclass(frozen=True)
class TaskChange:
    """A change as the trace records it, and the slots that it affected."""

    outcome: PlanningOutcome
    sentence: str
    slots: Sequence[int]
    trace: dict[str, Any] = field(default_factory=dict)


async def fence(connection: Connection, tasks: Sequence[UUID], now: int) -> dict[UUID, int]:
    """At the lead, take tasks from the workers that plan them; return the new epochs by task."""
    rows = await connection.fetch(_SQL["fence"], list(tasks))
    epochs = {row[0]: int(row[1]) for row in rows}
    await raise_epochs(connection, epochs)
    await connection.execute(_SQL["abort_open"], list(tasks), now)
    return epochs


raise_epochs: Query[[Mapping[UUID, int]], None] = spread(_SQL.command("raise_epoch"))
"""Refuse holds under an older epoch than these, given by task, from now on."""


@dataclass(frozen=True)
class FreedRun:
    """A future run that an edit has freed, as its participants are told."""

    run: UUID
    task: UUID
    slot: int


async def free_led(
    connection: Connection, freeing: FreedRuns, epochs: Mapping[UUID, int], now: int
) -> list[FreedRun]:
    """At the lead, free runs of the tasks in ``epochs``, and store for each task what it freed.

    The stored document, which participants receive, has the epoch of its task.
    """
    rows = await connection.fetch(
        _SQL["free_led"], list(epochs), freeing.slots_from, freeing.starting, freeing.reason, now
    )
    document = freeing.model_dump(mode="json")
    documents = [{**document, "before_epoch": epoch} for epoch in epochs.values()]
    await connection.execute(_SQL["keep_freeing"], list(epochs), documents)
    return [FreedRun(*row) for row in rows]


async def free_part(
    connection: Connection, task: UUID, freeing: FreedRuns, now: int
) -> dict[UUID, bool]:
    """At a participant, free these runs; return by id whether they were running."""
    rows = await connection.fetch(
        _SQL["free_part"],
        task,
        freeing.slots_from,
        freeing.starting,
        freeing.before_epoch,
        freeing.reason,
        now,
    )
    return {row[0]: row[1] for row in rows}


keep_booked_terms: Query[[UUID], None] = _SQL.command("keep_measured")
"""Store with the runs of a task its spec and tool, before an edit changes these."""

reprioritise: Query[[UUID, int, int], None] = _SQL.command("reprioritise")
"""Change the priority of the task's future runs. Takes ``task``, ``priority``, ``now``."""

set_standing: Query[[Mapping[UUID, int], int | None], bool] = spread(_SQL.finds("stand"))
"""Set tasks active, or paused since an instant, at these revisions.

Return False if all of them have ended or have newer revisions.
"""

planning_positions: Query[[Sequence[UUID]], dict[UUID, PlanningPosition]] = _SQL.rows_by_key(
    "standing", PlanningPosition
)
"""Return how far each task has been planned, and its next slot."""


async def set_planning(
    connection: Connection, standings: Mapping[UUID, PlanningPosition], plan_at: int
) -> None:
    """Set by task where planning continues, and for all of them when."""
    await connection.execute(
        _SQL["plan_on"],
        list(standings),
        [each.planned_to for each in standings.values()],
        [each.next_slot for each in standings.values()],
        plan_at,
    )


async def first_surplus_slot(connection: Connection, task: UUID, max_runs: int) -> int | None:
    """Return the first slot beyond ``max_runs`` counted runs; None if there are no more."""
    not_counted = sorted(runstate.NOT_COUNTED)
    slot: int | None = await connection.fetchval(_SQL["surplus"], task, not_counted, max_runs)
    return slot


async def count_kept_slots(
    connection: Connection, spans: Mapping[UUID, tuple[int, int]]
) -> dict[UUID, int]:
    """Return by task how many slots in [since, until) have a run that was not freed, if any."""
    since = [span[0] for span in spans.values()]
    until = [span[1] for span in spans.values()]
    rows = await connection.fetch(_SQL["kept_between"], list(spans), since, until)
    return {row[0]: int(row[1]) for row in rows}


async def keep_changes(
    connection: Connection, changes: Mapping[UUID, TaskChange], now: int
) -> None:
    """Store the changes of tasks, and the slots they affected, in the traces."""
    every = list(changes.values())
    await connection.execute(
        _SQL["keep_change"],
        list(changes),
        now,
        [change.outcome for change in every],
        [change.sentence for change in every],
        [min(change.slots, default=None) for change in every],
        [max(change.slots, default=None) for change in every],
        [change.trace for change in every],
    )


async def has_pending_change(connection: Connection, task: UUID, node: str) -> bool:
    """Return whether a message about a change of the task to this participant is pending."""
    return bool(
        await connection.fetchval(_SQL["pending_for"], MessageKind.TASK_CHANGE, str(task), node)
    )


async def has_other_pending_changes(connection: Connection, task: UUID, message_id: int) -> bool:
    """Return whether messages other than this one about changes of the task are pending."""
    return bool(
        await connection.fetchval(
            _SQL["others_pending"], MessageKind.TASK_CHANGE, str(task), message_id
        )
    )


note_answer: Query[[UUID, str, int, str | None], None] = _SQL.command("note_answer")
"""At the lead, note what a participant answered to a change of a task that it had not refused.

Takes ``task``, ``node``, ``revision``, and ``refusal``: why it refused, None if it did not.
"""
