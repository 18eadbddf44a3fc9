"""A task that is paused, resumed or edited: its runs to come are freed, its planning goes on anew.

Every function takes part in the transaction of the change, which has locked the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.model import runstate
from node.model.changes import Standing
from node.model.wire.participants import Freeing
from node.store.database import Connection, Queries
from node.store.outbox import Kind

_SQL = Queries("node.store", "changes")


@dataclass(frozen=True)
class Change:
    """A change as the trace tells of it, and the slots that it touched."""

    outcome: str
    sentence: str
    slots: Sequence[int]
    trace: dict[str, Any] = field(default_factory=dict)


async def fence(connection: Connection, task: UUID, now: int) -> int:
    """At the lead: take the task from whoever plans it; the epoch whose messages count now."""
    epoch = int(await connection.fetchval(_SQL["fence"], task))
    await raise_epoch(connection, task, epoch)
    await connection.execute(_SQL["abort_open"], task, now)
    return epoch


async def raise_epoch(connection: Connection, task: UUID, epoch: int) -> None:
    """Holds under an older epoch are refused from now on."""
    await connection.execute(_SQL["raise_epoch"], task, epoch)


async def free_led(
    connection: Connection, task: UUID, freeing: Freeing, now: int
) -> dict[UUID, int]:
    """At the lead: give these runs up; their ids and slots."""
    rows = await connection.fetch(
        _SQL["free_led"], task, freeing.slots_from, freeing.starting, freeing.reason, now
    )
    await connection.execute(_SQL["keep_freeing"], task, freeing.model_dump(mode="json"))
    return {row[0]: row[1] for row in rows}


async def free_part(
    connection: Connection, task: UUID, freeing: Freeing, now: int
) -> dict[UUID, bool]:
    """At a participant: give these runs up; their ids, and whether they were running."""
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


async def keep_measured(connection: Connection, task: UUID) -> None:
    """Before spec or tool of a task change: its runs keep those they were booked with."""
    await connection.execute(_SQL["keep_measured"], task)


async def reprioritise(connection: Connection, task: UUID, priority: int, now: int) -> None:
    """Give the task's runs to come another priority."""
    await connection.execute(_SQL["reprioritise"], task, priority, now)


async def stand(connection: Connection, task: UUID, revision: int, paused_at: int | None) -> bool:
    """Active, or paused since then; False if the task is over or its revision newer."""
    return await connection.fetchval(_SQL["stand"], task, revision, paused_at) is not None


async def standing(connection: Connection, task: UUID) -> Standing:
    """How far the task has been planned."""
    row = await connection.fetchrow(_SQL["standing"], task)
    return Standing(None, None) if row is None else Standing(row[0], row[1])


async def plan_on(connection: Connection, task: UUID, standing: Standing, plan_at: int) -> None:
    """Where planning goes on, and when."""
    await connection.execute(
        _SQL["plan_on"], task, standing.planned_to, standing.next_slot, plan_at
    )


async def surplus(connection: Connection, task: UUID, max_runs: int) -> int | None:
    """The first slot beyond so many runs that count; None if there are no more than these."""
    not_counted = sorted(runstate.NOT_COUNTED)
    found: int | None = await connection.fetchval(_SQL["surplus"], task, not_counted, max_runs)
    return found


async def kept_between(connection: Connection, task: UUID, since: int, until: int) -> int:
    """How many slots in [since, until) have a run that was not given up."""
    return int(await connection.fetchval(_SQL["kept_between"], task, since, until))


async def keep_change(connection: Connection, task: UUID, change: Change, now: int) -> None:
    """Say in the task's trace what was changed, and which slots it touched."""
    await connection.execute(
        _SQL["keep_change"],
        task,
        now,
        change.outcome,
        change.sentence,
        min(change.slots, default=None),
        max(change.slots, default=None),
        change.trace,
    )


async def others_to_hear(connection: Connection, task: UUID, letter: int) -> bool:
    """Whether other letters than this one tell of a change of the task."""
    return bool(
        await connection.fetchval(_SQL["letters_left"], Kind.TASK_CHANGE, str(task), letter)
    )
