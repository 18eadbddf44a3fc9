"""The slots of tasks that nobody planned in time, as ranges: which they are, and their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from node.model.gaps import FORGOTTEN, Gap, closed_slots, given_up, split
from node.model.ids import TaskId, gap_id
from node.model.outcomes import PlanningOutcome
from node.model.readiness import LEAD_SILENT
from node.model.reasons import followed_has_gap, lead_absent, windows_over
from node.model.recurrence import SlotRange, nominal_range
from node.model.taskstate import TaskState
from node.store import changes
from node.store.changes import TaskChange
from node.store.database import Connection
from node.store.queries import Queries
from node.store.tasks import StoredTask

_SQL = Queries("node.store", "gaps")


class _Unplanned(NamedTuple):
    """The last slot that was planned, and how many later ones are wanted (None: no limit)."""

    after: int
    wanted: int | None


class _Row(NamedTuple):
    """A gap as it is stored."""

    id: UUID
    task: UUID
    first: int
    last: int
    slots: int
    reason: str


async def reported_slots(
    connection: Connection, behind: Mapping[UUID, int]
) -> dict[UUID, set[int]]:
    """Return by task the slots after the given one that a run tells of, so they are in no gap."""
    rows = await connection.fetch(_SQL["told_slots"], list(behind), list(behind.values()))
    found: dict[UUID, set[int]] = {task: set() for task in behind}
    for task, slot in rows:
        found[task].add(slot)
    return found


async def keep_gaps(
    connection: Connection, gaps: Sequence[Gap], now: int, *, restored: bool = False
) -> None:
    """Write gaps of any number of tasks, and of the tasks that follow them.

    Where no lead was heard in that time, the stored reason says so instead of the given one. After
    a restore (``restored``) it also says that the slots may be forgotten.
    """
    firsts, lasts = [gap.range.first for gap in gaps], [gap.range.last for gap in gaps]
    rows = await connection.fetch(_SQL["absences"], firsts, lasts, now, now - LEAD_SILENT)
    absent = {row[0] - 1: lead_absent(row[1], row[2]) for row in rows}
    kept = await _keep(
        connection,
        [
            _Row(
                gap_id(TaskId(gap.task), gap.range.first),
                gap.task,
                gap.range.first,
                gap.range.last,
                gap.range.slots,
                absent.get(number, gap.reason) + (FORGOTTEN if restored else ""),
            )
            for number, gap in enumerate(gaps)
        ],
        now,
    )
    of_followers = await connection.fetch(_SQL["followers_gaps"], kept)
    following = [
        _Row(row[0], row[1], row[2], row[3], row[4], followed_has_gap(row[5], row[6]))
        for row in of_followers
    ]
    await _keep(connection, following, now)


async def _keep(connection: Connection, rows: Sequence[_Row], now: int) -> list[UUID]:
    """Write gaps that are not told yet; return their ids."""
    if not rows:
        return []
    columns = map(list, zip(*rows, strict=True))
    return [row[0] for row in await connection.fetch(_SQL["keep_gaps"], *columns, now)]


async def record_passed_slots(
    connection: Connection,
    founds: Sequence[StoredTask],
    now: int,
    *,
    restored: bool,
    patience: int = 0,
) -> None:
    """Record as gaps the slots of tasks led here that have passed while nobody planned them.

    That is done, in the same transaction, before locked tasks are edited, paused or ended: then
    their schedule is another one, or nobody plans them any more. Tasks whose first such slot was
    less than ``patience`` ago are left out: their lead is perhaps just planning them.
    """
    active = {found.id: found for found in founds if found.state is TaskState.ACTIVE}
    ranges: dict[UUID, SlotRange] = {}
    behind: dict[UUID, int] = {}
    for task, (after, wanted) in (await _planned_positions(connection, active)).items():
        terms = active[task].terms
        closed = closed_slots(terms.recurrence, terms.duration, after, now, now, least=1)
        if closed is not None and wanted is not None:
            closed = nominal_range(terms.recurrence, after, closed.last + 1, wanted)
        if closed is None or closed.first > now - patience:
            continue
        if not await _has_all_runs(connection, active[task]):
            ranges[task], behind[task] = closed, after
    if not ranges:
        return
    told = await reported_slots(connection, behind)
    parts = {
        task: split(active[task].terms.recurrence, closed, told[task])
        for task, closed in ranges.items()
    }
    gaps = [Gap(task, part, windows_over()) for task, every in parts.items() for part in every]
    if gaps:
        await keep_gaps(connection, gaps, now, restored=restored)
        await changes.keep_changes(
            connection,
            {task: _change_of_gaps(every) for task, every in parts.items() if every},
            now,
        )


def _change_of_gaps(parts: Sequence[SlotRange]) -> TaskChange:
    sentence = given_up(sum(part.slots for part in parts), parts)
    return TaskChange(PlanningOutcome.GIVEN_UP, sentence, (parts[0].first, parts[-1].last))


async def _planned_positions(
    connection: Connection, active: Mapping[UUID, StoredTask]
) -> dict[UUID, _Unplanned]:
    """Return how far these tasks are planned, without those that want no further slots."""
    found: dict[UUID, _Unplanned] = {}
    for task, position in (await changes.planning_positions(connection, list(active))).items():
        if position.next_slot is not None:
            first = position.next_slot - 1
            after = first if position.planned_to is None else position.planned_to
            found[task] = _Unplanned(after, None)
    for task, next_slot, rounds in await connection.fetch(_SQL["pool_standings"], list(active)):
        if next_slot is not None:
            found[task] = _Unplanned(next_slot - 1, rounds)
    return found


async def _has_all_runs(connection: Connection, found: StoredTask) -> bool:
    most = found.terms.schedule.max_runs
    return (
        most is not None
        and await changes.first_surplus_slot(connection, found.id, most - 1) is not None
    )
