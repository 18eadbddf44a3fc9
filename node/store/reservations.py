"""Reservations of this node's time and of pools, and the spans that they reserve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.errors import Conflict
from node.model.reservations import ReservationSpan, access_of
from node.model.spans import Span
from node.model.timeline import Booking
from node.store.database import BrokenReference, Connection, Record
from node.store.statements import Purge, Query, Statements, spread

_SQL = Statements("node.store", "reservations")


@dataclass(frozen=True)
class ReservationTerms:
    """The terms of a reservation; ``access`` names leads by identity."""

    kind: str
    name: str
    owner: str
    description: str | None
    schedule: dict[str, Any]
    duration: int
    access: dict[str, Any]


@dataclass(frozen=True)
class IncompleteReservation:
    """A reservation whose spans are written only up to ``reserved_to``."""

    id: UUID
    schedule: dict[str, Any]
    duration: int
    reserved_to: int
    created_at: int


@dataclass(frozen=True)
class ReservationFilter:
    """The reservations to list, and the page, newest first."""

    reservation: UUID | None = None
    prefix: str | None = None
    before_created: int | None = None
    before_id: UUID | None = None
    limit: int = 50


async def spans_between(connection: Connection, since: int, until: int) -> list[ReservationSpan]:
    """Return the reserved spans of this node in this time, by start."""
    rows = await connection.fetch(_SQL["reserved_between"], since, until)
    return [
        ReservationSpan(row[0], row[1], row[2], row[3], access_of(row[4]), row[5], row[6])
        for row in rows
    ]


async def pool_spans_between(
    connection: Connection, pools: Sequence[str], since: int, until: int
) -> dict[str, list[ReservationSpan]]:
    """Return the reserved spans of these pools of this lead in this time, by pool."""
    found: dict[str, list[ReservationSpan]] = {pool: [] for pool in pools}
    for row in await connection.fetch(_SQL["reserved_for"], list(pools), since, until):
        each = ReservationSpan(row[1], row[2], row[3], row[4], access_of(row[5]), row[6], row[7])
        found[row[0]].append(each)
    return found


async def keep(
    connection: Connection, reservation: UUID, pool: str | None, terms: ReservationTerms, now: int
) -> None:
    """Store a new reservation, of this node or of a pool, without spans.

    :raises Conflict: the pool was removed in the meantime.
    """
    values = (pool, *vars(terms).values(), now)
    try:
        await connection.execute(_SQL["keep_reservation"], reservation, *values)
    except BrokenReference as error:
        msg = f"the pool {pool} was removed a moment ago; name another one"
        raise Conflict(msg) from error


change: Query[[UUID, int, ReservationTerms, int], bool] = spread(_SQL.finds("change_reservation"))
"""Change a reservation; False if it was changed since that revision, or is gone.

The caller drops and writes its spans. Takes ``reservation``, ``revision``, ``terms``, ``now``.
"""

remove: Query[[UUID], int | None] = _SQL.value("remove_reservation")
"""Remove a reservation and its spans, and return its last revision; None if there is none."""


async def put_spans(
    connection: Connection, reservation: UUID, spans: Sequence[Span], reserved_to: int
) -> None:
    """Write spans; all spans that begin before ``reserved_to`` are then written."""
    await connection.execute(
        _SQL["put_spans"],
        reservation,
        [start for start, _ in spans],
        [end for _, end in spans],
    )
    await connection.execute(_SQL["reserved_to"], reservation, reserved_to)


drop_spans: Query[[UUID, int], None] = _SQL.command("drop_spans")
"""Delete the spans of a reservation that are not over."""

reservations_to_extend: Query[[int], list[IncompleteReservation]] = _SQL.rows(
    "to_extend", IncompleteReservation
)
"""The reservations whose spans are not written up to ``until``, to be extended."""

purge_spans: Purge = _SQL.value("purge_spans")
"""Delete spans that ended before; return how many."""

purge: Purge = _SQL.value("purge_reservations")
"""Delete reservations without spans that are written up to ``never``; return how many."""


find_page: Query[[int, ReservationFilter], list[Record]] = spread(_SQL.records("reservations"))
"""Rows of reservations for users, each with its present or next span."""


async def runs_inside(
    connection: Connection, reservation: UUID, now: int, earliest: int
) -> list[Booking]:
    """Return the future runs in its time that a reservation does not admit.

    Runs that start before ``earliest`` are fixed. For a pool, return the runs of its seats.
    """
    rows = await connection.fetch(_SQL["inside"], reservation, now, earliest)
    return [
        Booking(row[0], row[1], row[2], SchedulingClass(row[3]), row[4], row[5], row[6], not row[7])
        for row in rows
    ]
