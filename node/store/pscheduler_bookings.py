"""Tasks and bookings of this node at hosts that run pScheduler.

A booking there stands at once and for good: there is no hold that a commit confirms. So it is
written here before it is requested, and forgotten only once its part was fetched, or it is certain
that it does not stand any more. After a crash at any moment, whatever may stand there has a row
here.

What is not wanted any more is only noted as to be deleted, in the transaction that ends it, however
often the host is then away; whoever speaks to hosts works these notes off. A task there has one
revision of a task led here (a membership); an edit posts a new one, and the old one is deleted when
its last booking is gone. The key that opens a task there is stored sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from node.model.wire.participants import FreedRuns
from node.store.database import Connection
from node.store.statements import Query, Statements
from node.trust.sealing import MEMBERSHIP, SealingKey

_SQL = Statements("node.store", "pscheduler_bookings")


class BookingState(StrEnum):
    """The state of a booking there, as far as it is known here."""

    BOOKING = "booking"
    HELD = "held"
    KEPT = "kept"
    BEGUN = "begun"
    LOST = "lost"
    DROPPING = "dropping"


class MembershipState(StrEnum):
    """The state of a task there, as far as it is known here."""

    POSTING = "posting"
    STANDING = "standing"
    LOST = "lost"
    ENDING = "ending"


@dataclass(frozen=True)
class Membership:
    """A revision of a task led here, as a task of a host; ``duration`` (µs) once it stands.

    Its ``key`` is stored sealed; one that cannot be opened is empty, and opens nothing there.

    ``test`` and ``spec`` are ours, ``test_there`` is what the host is told.
    """

    task_there: UUID
    task: UUID
    node: str
    revision: int
    attempt: int
    key: str
    test: str
    spec: dict[str, Any]
    test_there: dict[str, Any]
    participant: int
    tool: str
    state: MembershipState = MembershipState.POSTING
    duration: int | None = None


@dataclass(frozen=True)
class NewBooking:
    """A run that is about to be booked there; instants in microseconds."""

    run_there: UUID
    run: UUID
    slot: int
    starts_at: int
    ends_at: int


@dataclass(frozen=True)
class BookedThere:
    """A run as it is booked at a host, with what is needed to speak of it."""

    run_there: UUID
    task_there: UUID
    run: UUID
    exchange: UUID
    starts_at: int
    ends_at: int
    state: BookingState
    data: dict[str, Any]
    reason: str | None
    next_at: int
    node: str
    key: str
    task: UUID
    tool: str
    test: str
    spec: dict[str, Any]
    participant: int


async def write_membership(
    connection: Connection, sealing: SealingKey, new: Membership, now: int
) -> bool:
    """Write a task before it is posted; False if it is written already."""
    written = await connection.fetchval(
        _SQL["write_membership"],
        new.task_there,
        new.task,
        new.node,
        new.revision,
        new.attempt,
        sealing.seal(new.key, MEMBERSHIP),
        new.test,
        new.spec,
        new.test_there,
        new.participant,
        new.tool,
        now,
    )
    return written is not None


async def find_membership(
    connection: Connection,
    sealing: SealingKey,
    task: UUID,
    node: str,
    revision: int | None = None,
) -> Membership | None:
    """Return the newest task there of a revision, or of the newest one."""
    row = await connection.fetchrow(_SQL["membership"], task, node, revision)
    return None if row is None else _membership(sealing, dict(row))


note_membership: Query[[UUID, int], None] = _SQL.command("stand")
"""Note that a task stands there, and how long its runs are booked."""

note_membership_lost: Query[[UUID], None] = _SQL.command("lose_membership")
"""Note that a host does not know a task any more."""


async def end_memberships(connection: Connection, task: UUID, node: str) -> None:
    """Note that a task is to be deleted there, in whatever revision."""
    await connection.execute(_SQL["end_memberships"], task, node, None, None)


async def end_before(connection: Connection, newest: Membership) -> None:
    """Note that all tasks there are to be deleted that were posted before the newest one."""
    await connection.execute(
        _SQL["end_memberships"], newest.task, newest.node, newest.revision, newest.attempt
    )


async def memberships_to_delete(
    connection: Connection,
    sealing: SealingKey,
    node: str | None = None,
    task: UUID | None = None,
) -> list[Membership]:
    """Return tasks that are to be deleted there and have no bookings any more."""
    rows = await connection.fetch(_SQL["ending"], node, task)
    return [_membership(sealing, dict(row)) for row in rows]


async def end_obsolete(connection: Connection, now: int, before: int) -> None:
    """Note what is to be deleted there because it is over, or unknown, here.

    Tasks that were posted after ``before`` may be about to be stored.
    """
    await connection.execute(_SQL["over_there"], before)
    await connection.execute(_SQL["drop_over"], now)


forget_membership: Query[[UUID], None] = _SQL.command("forget_membership")
"""Forget a task that does not stand there any more."""


async def write_bookings(
    connection: Connection,
    there: Membership,
    exchange: UUID,
    lease_epoch: int,
    bookings: Sequence[NewBooking],
    *,
    next_at: int,
) -> None:
    """Write bookings before they are requested; those that are written already stay."""
    await connection.execute(
        _SQL["write_bookings"],
        [each.run_there for each in bookings],
        there.task_there,
        exchange,
        lease_epoch,
        next_at,
        [each.run for each in bookings],
        [each.slot for each in bookings],
        [each.starts_at for each in bookings],
        [each.ends_at for each in bookings],
    )


note_held: Query[[UUID, dict[str, Any], int], bool] = _SQL.finds("hold_booking")
"""Note that a run is booked there; False if it was taken back in the meantime."""

note_kept: Query[[UUID, int], bool] = _SQL.finds("keep_booking")
"""Note that a booking is to stay; False if it was lost or taken back in the meantime."""

note_begun: Query[[UUID, int], None] = _SQL.command("begin_booking")
"""Note that a run was still booked there shortly before its start."""

note_lost: Query[[UUID, str, int], None] = _SQL.command("lose_booking")
"""Note that a host has taken a booking away, and why."""

postpone: Query[[UUID, int], None] = _SQL.command("postpone_booking")
"""Set when a booking is looked at again (µs)."""


async def drop_exchange(connection: Connection, node: str, exchange: UUID, now: int) -> None:
    """Note that the bookings of an exchange are to be deleted there."""
    await connection.execute(_SQL["drop_bookings"], exchange, None, node, now, None)


async def drop_run(connection: Connection, node: str, run: UUID, now: int) -> None:
    """Note that a run is to be deleted there."""
    await connection.execute(_SQL["drop_bookings"], None, run, node, now, None)


async def drop_task(connection: Connection, node: str, task: UUID, now: int) -> None:
    """Note that all runs of a task are to be deleted there."""
    await connection.execute(_SQL["drop_bookings"], None, None, node, now, task)


drop_some: Query[[Sequence[UUID], int], None] = _SQL.command("drop_some")
"""Note that these bookings are to be deleted there."""


async def drop_freed(
    connection: Connection, node: str, task: UUID, freed: FreedRuns, now: int
) -> None:
    """Note that the runs that a change of the task has freed are to be deleted there."""
    await connection.execute(
        _SQL["drop_freed"],
        task,
        node,
        freed.before_epoch,
        freed.starting,
        freed.slots_from,
        now,
    )


forget: Query[[UUID], None] = _SQL.command("forget_booking")
"""Forget a booking that does not stand there any more, or whose part was fetched."""


async def bookings_of_exchange(
    connection: Connection, sealing: SealingKey, node: str, exchange: UUID
) -> list[BookedThere]:
    """Return the bookings of an exchange at a host."""
    return await _fetch_bookings(connection, sealing, node, exchange, None, None, None)


async def bookings_of_run(
    connection: Connection, sealing: SealingKey, node: str, run: UUID
) -> list[BookedThere]:
    """Return the bookings of a run at a host."""
    return await _fetch_bookings(connection, sealing, node, None, run, None, None)


async def bookings_of_task(
    connection: Connection, sealing: SealingKey, node: str, task: UUID
) -> list[BookedThere]:
    """Return the bookings of a task at a host."""
    return await _fetch_bookings(connection, sealing, node, None, None, task, None)


async def due_bookings(connection: Connection, sealing: SealingKey, now: int) -> list[BookedThere]:
    """Return the bookings, at any host, whose next look is due at ``now``."""
    return await _fetch_bookings(connection, sealing, None, None, None, None, now)


async def _fetch_bookings(
    connection: Connection, sealing: SealingKey, *wanted: object
) -> list[BookedThere]:
    rows = await connection.fetch(_SQL["bookings"], *wanted)
    return [_booking_of_row(sealing, dict(row)) for row in rows]


def _booking_of_row(sealing: SealingKey, row: dict[str, Any]) -> BookedThere:
    task, run, state = row.pop("task_id"), row.pop("run_id"), BookingState(row.pop("state"))
    row["key"] = sealing.read(row["key"], MEMBERSHIP) or ""
    return BookedThere(task=task, run=run, state=state, **row)


def _membership(sealing: SealingKey, row: dict[str, Any]) -> Membership:
    task, state = row.pop("task_id"), MembershipState(row.pop("state"))
    row["key"] = sealing.read(row["key"], MEMBERSHIP) or ""
    return Membership(task=task, state=state, **row)
