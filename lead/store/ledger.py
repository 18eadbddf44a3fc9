"""The ledger: the seats and bytes that campaigns are charged for, written with the decisions.

The database itself returns the unused time and bytes of a run when the run is over, or charges what
it moved beyond what was expected (``give_back_unused`` in ``schema.sql``), and adds up the charges
by hour.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from node.model import times
from node.model.seat_weights import SeatWeights
from node.model.wire.participants import RunRequest
from node.store.database import Connection
from node.store.queries import Queries

_SQL = Queries("lead.store", "ledger")


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
