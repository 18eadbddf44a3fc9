"""The ledger: the seats that campaigns are charged for, written with the decisions that book them.

The database itself returns the unused time of a run when the run is over (``give_back_unused`` in
``schema.sql``), and adds up the charges by hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from node.model.seat_weights import SeatWeights
from node.model.wire.participants import RunRequest
from node.store.database import Connection, Queries

_SQL = Queries("lead.store", "ledger")


async def charge(
    connection: Connection,
    committed: Mapping[UUID, Sequence[RunRequest]],
    weights: SeatWeights,
    now: int,
) -> None:
    """Charge the runs just committed, given by task, to the campaigns of the tasks."""
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
    )
