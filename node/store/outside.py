"""Tasks that are led from outside, by nodes of pScheduler, and their runs here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.exchangestate import ExchangeState
from node.model.runstate import RunState
from node.store.database import Connection
from node.store.statements import Query, Statements, as_tuple

_SQL = Statements("node.store", "outside")


@dataclass(frozen=True)
class OutsideRun:
    """This node's part of a run that is led from outside; instants in microseconds.

    ``held`` is what the hold has assigned, such as a port. ``part_data`` is what the lead has told
    with its commit: the data of all participants.
    """

    run: UUID
    task: UUID
    state: RunState
    reason: str | None
    starts_at: int
    ends_at: int
    added_at: int
    priority: int
    participant: int
    exchange: UUID
    exchange_state: ExchangeState
    lease_epoch: int
    held: dict[str, int]
    part_data: list[Any] | None

    @property
    def is_held(self) -> bool:
        """Return whether its lead has not committed it yet."""
        return self.exchange_state is ExchangeState.HELD


async def fetch(connection: Connection, task: UUID, run: UUID) -> OutsideRun | None:
    """Return a run of a task; None if it is not, or no longer, known here."""
    row = await connection.fetchrow(_SQL["outside_run"], task, run)
    if row is None:
        return None
    values = dict(row)
    return OutsideRun(
        state=RunState(values.pop("state")),
        exchange_state=ExchangeState(values.pop("exchange_state")),
        held=values.pop("held") or {},
        **values,
    )


count_attempts: Query[[UUID, int], tuple[int, bool]] = _SQL.only_row("attempts", as_tuple)
"""Return how many runs of a task there were at a start, and whether one is not over."""


async def dropped_hold(connection: Connection, task: UUID, run: UUID) -> tuple[int, int] | None:
    """Return when the hold of a run was given up, and when its life was over; None if never."""
    row = await connection.fetchrow(_SQL["dropped_hold"], task, str(run))
    return None if row is None else (row[0], row[1])


keep_part_data: Query[[UUID, str], None] = _SQL.command("keep_part_data")
"""Store the data of all participants, a JSON text, with a run."""

finished_tasks: Query[[int, int, int], list[tuple[UUID, str]]] = _SQL.rows("over", as_tuple)
"""Open tasks with nothing to come, each with its lead.

Their only run was over before ``before``, or no run was asked for since ``silent_since``.
Takes ``before``, ``silent_since``, ``at_most``.
"""
