"""The ledger: charges of campaigns, and the bookings that count toward their limits.

The seats and bytes that campaigns are charged for are written with the decisions. The
database itself returns the unused time and bytes of a run when the run is over, or charges what
it moved beyond what was expected (``give_back_unused`` in ``schema.sql``), and adds up the charges
by hour.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model import times
from node.model.seat_weights import SEAT, SeatWeights
from node.model.wire.participants import RunRequest
from node.store.database import Connection
from node.store.statements import Query, Statements

_SQL = Statements("lead.store", "ledger")


async def charge(
    connection: Connection,
    committed: Mapping[UUID, Sequence[RunRequest]],
    weights: SeatWeights,
    moved: Mapping[UUID, int],
    now: int,
) -> None:
    """Charge the runs just committed, given by task, to the campaigns of the tasks.

    ``moved`` has, by task, the bytes that a run is expected to move on each participant.
    """
    numbered = [(number, run) for number, runs in enumerate(committed.values(), 1) for run in runs]
    await connection.execute(
        _SQL["charge"],
        list(committed),
        [number for number, _ in numbered],
        [run.run for _, run in numbered],
        [run.starts_at for _, run in numbered],
        [run.ends_at for _, run in numbered],
        weights.exclusive,
        weights.normal,
        weights.background,
        now,
        [moved[task] for task in committed],
    )


async def bytes_by_hour(
    connection: Connection, campaigns: Collection[str], since: int, until: int
) -> dict[str, dict[int, int]]:
    """Return the bytes of campaigns by the hours in which their runs start, past or booked."""
    moved: dict[str, dict[int, int]] = {}
    first = since - since % times.HOUR
    rows = await connection.fetch(_SQL["moved_by_hour"], sorted(campaigns), first, until)
    for campaign, hour, amount in rows:
        moved.setdefault(campaign, {})[hour] = amount
    return moved


async def spent(
    connection: Connection, periods: Sequence[tuple[str, str, int, int]]
) -> dict[str, int]:
    """Return what is used and booked of budgets, in seat-µs, by the name of each.

    ``periods`` has the name of the budget, a campaign that counts toward it, and the beginning of
    its period, a full hour, and the end.
    """
    if not periods:
        return {}
    used: dict[str, int] = {}
    amounts = await connection.fetch(
        _SQL["seat_time_spent"],
        [campaign for _, campaign, _, _ in periods],
        [since for _, _, since, _ in periods],
        [until for _, _, _, until in periods],
    )
    for (budget, _, _, _), [amount] in zip(periods, amounts, strict=True):
        used[budget] = used.get(budget, 0) + amount // SEAT
    return used


@dataclass(frozen=True)
class BookedTime:
    """A booked run of a campaign, on these nodes (identities); instants in microseconds."""

    task_id: UUID
    campaign: str
    starts_at: int
    ends_at: int
    scheduling_class: str
    nodes: Sequence[str]


async def booked_times(
    connection: Connection, campaigns: Collection[str], since: int, until: int
) -> list[BookedTime]:
    """Return the booked runs of these campaigns in this period, by start."""
    rows = await connection.fetch(_SQL["counted"], sorted(campaigns), since, until)
    return [BookedTime(**row) for row in rows]


is_contested: Query[[str, Sequence[str], int], bool] = _SQL.value("is_contested")
"""Return whether another campaign has a run that waits for time on one of these nodes."""


async def lock_campaigns(connection: Connection, campaigns: Collection[str]) -> None:
    """Lock campaigns, so that decisions of each are made one after the other."""
    await connection.execute(_SQL["lock_campaigns"], sorted(campaigns))


async def wake_tasks(
    connection: Connection, campaigns: Collection[str], now: int, limit: int
) -> list[UUID]:
    """Make tasks that wait for room in these campaigns, or below them, due now; return them.

    They are at most ``limit``, those whose runs come soonest.
    """
    rows = await connection.fetch(_SQL["wake_tasks"], sorted(campaigns), now, limit)
    return [row[0] for row in rows]


async def wake_terms(connection: Connection, campaigns: Collection[str], now: int) -> list[UUID]:
    """Make the terms that wait for room there due now; return their pool tasks."""
    rows = await connection.fetch(_SQL["wake_terms"], sorted(campaigns), now)
    return [row[0] for row in rows]
