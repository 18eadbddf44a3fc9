"""Bookings on this node's time line: what blocks, holds, commits, releases.

Each public method is one transaction or takes part in one; a state is checked again in the
statement that changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.timeline import Booking
from node.model.wire.participants import HoldRequest, RunRequest
from node.store import outbox
from node.store.database import Connection, Queries, Record

LIFE_MAX = 10 * times.MINUTE
"""No hold lives longer without a word of its lead, whatever the lead asks for."""

_SQL = Queries("node.store", "bookings")

_DROPPED_PAUSE = 5 * times.SECOND
"""How soon after its hold was dropped a slot is asked for again, at the latest."""


@dataclass(frozen=True)
class HeldTask:
    """What a hold needs to know of its task."""

    participant: int
    scheduling_class: SchedulingClass
    spec: dict[str, Any]
    test: str
    tool: str | None
    duration: int
    led_here: bool


@dataclass(frozen=True)
class Displacement:
    """A run that was lost to one of higher priority."""

    run: UUID
    task: UUID
    lead: str
    reason: str
    displaced_by: UUID


@dataclass(frozen=True)
class ExpiredHold:
    """A hold whose life is over and whose lead has not spoken."""

    exchange: UUID
    task: UUID
    lead: str
    held_at: int
    expires_at: int


async def blocking_runs(
    connection: Connection, start: int, end: int, fixed_before: int
) -> list[Booking]:
    """What occupies time in [start, end); those starting before ``fixed_before`` stay."""
    rows = await connection.fetch(_SQL["blocking_runs"], start, end, fixed_before)
    return [
        Booking(row[0], row[1], row[2], SchedulingClass(row[3]), row[4], row[5], row[6], row[7])
        for row in rows
    ]


async def accept_epoch(connection: Connection, lead: str, request: HoldRequest) -> HeldTask | None:
    """Lock the task for this booking.

    None if it is not active or not theirs, the epoch is old, or the revision not the one known.
    """
    row = await connection.fetchrow(
        _SQL["accept_epoch"], request.task, lead, request.lease_epoch, request.revision
    )
    if row is None:
        return None
    return HeldTask(
        row["participant"],
        SchedulingClass(row["scheduling_class"]),
        row["spec"],
        row["test"],
        row["tool"],
        row["duration"],
        bool(row["led_here"]),
    )


async def task_standing(connection: Connection, task: UUID) -> tuple[str, str, int, int] | None:
    """State, lead, highest epoch and revision of a task; None if it is unknown."""
    row = await connection.fetchrow(_SQL["task_standing"], task)
    return None if row is None else (row[0], row[1], row[2], row[3])


async def exchange_answer(
    connection: Connection, exchange: UUID
) -> tuple[str, dict[str, Any], UUID] | None:
    """State, kept answer and task of an exchange; None if it is unknown."""
    row = await connection.fetchrow(_SQL["exchange_answer"], exchange)
    return None if row is None else (row[0], row[1], row[2])


async def open_exchange(
    connection: Connection, exchange: UUID, request: HoldRequest, now: int
) -> bool:
    """Write the exchange; False if it is there already."""
    made = await connection.fetchval(
        _SQL["open_exchange"],
        exchange,
        request.task,
        request.lease_epoch,
        now,
        now + min(request.life, LIFE_MAX),
    )
    return made is not None


async def set_aside(
    connection: Connection, task: HeldTask, request: HoldRequest, earliest: int, now: int
) -> int:
    """Set aside what must give way to those runs that may displace; how many."""
    displacing = [run for run in request.runs if run.displacing]
    rows = await connection.fetch(
        _SQL["set_aside"],
        [run.run for run in displacing],
        [run.starts_at for run in displacing],
        [run.ends_at for run in displacing],
        sorted(blockers(task.scheduling_class)),
        request.priority,
        earliest,
        now,
    )
    return len(rows)


async def book(
    connection: Connection,
    exchange: UUID,
    task: HeldTask,
    request: HoldRequest,
    runs: Sequence[RunRequest],
    now: int,
) -> set[UUID]:
    """Book what is free; the ids that were booked."""
    rows = await connection.fetch(
        _SQL["book"],
        request.task,
        exchange,
        task.participant,
        task.scheduling_class,
        request.priority,
        now,
        [run.run for run in runs],
        [run.slot for run in runs],
        [run.attempt for run in runs],
        [run.starts_at for run in runs],
        [run.ends_at for run in runs],
    )
    return {row[0] for row in rows}


async def ports_in_use(connection: Connection) -> set[int]:
    """Ports given out to exchanges that may still run."""
    return {row[0] for row in await connection.fetch(_SQL["ports_in_use"])}


async def keep_answer(
    connection: Connection, exchange: UUID, tool: str, task: UUID, answer: dict[str, Any]
) -> None:
    """Keep what is answered, so that a repeat of the request gets the same."""
    await connection.execute(_SQL["set_tool"], task, tool)
    await connection.execute(_SQL["keep_answer"], exchange, answer)


async def restore(connection: Connection, runs: Sequence[UUID], now: int) -> list[Displacement]:
    """Give the runs set aside for these their time back; returns those that cannot have it.

    What is lost may have had others set aside for itself: they get their time back in turn.
    """
    lost: list[Displacement] = []
    given_up = list(runs)
    while given_up:
        await connection.execute(_SQL["restore_set_aside"], given_up, now)
        more = _displacements(await connection.fetch(_SQL["lose_set_aside"], given_up, now))
        lost += more
        given_up = [displacement.run for displacement in more]
    return lost


async def displace(connection: Connection, exchange: UUID, now: int) -> list[Displacement]:
    """Make final what was set aside for the runs that an exchange keeps."""
    lost = _displacements(await connection.fetch(_SQL["displace"], exchange, now))
    return lost + await restore(connection, [displacement.run for displacement in lost], now)


def _displacements(rows: Sequence[Record]) -> list[Displacement]:
    return [
        Displacement(row["id"], row["task_id"], row["lead"], row["reason"], row["displaced_by"])
        for row in rows
    ]


async def commit_exchange(
    connection: Connection, exchange: UUID, data: dict[str, Any], now: int
) -> tuple[UUID, bool] | None:
    """Held becomes committed; the task, and whether it is led here. None if it was not held."""
    row = await connection.fetchrow(_SQL["commit_exchange"], exchange, data, now)
    return None if row is None else (row[0], row[1])


async def release_exchange(
    connection: Connection, exchange: UUID, now: int
) -> tuple[UUID, bool] | None:
    """Held becomes released; the task, and whether it is led here. None if it was not held."""
    row = await connection.fetchrow(_SQL["release_exchange"], exchange, now)
    return None if row is None else (row[0], row[1])


async def refuse_exchange(connection: Connection, exchange: UUID, task: UUID, now: int) -> None:
    """Remember a release that came before its hold."""
    await connection.execute(_SQL["refuse_exchange"], exchange, task, now)


async def drop_runs(
    connection: Connection, exchange: UUID, keep: Sequence[UUID], now: int, *, led_here: bool
) -> list[UUID]:
    """Drop the exchange's runs but these (at their lead they wait on); their ids."""
    if led_here:
        rows = await connection.fetch(_SQL["drop_led_runs"], exchange, list(keep), now)
    else:
        rows = await connection.fetch(_SQL["drop_runs"], exchange, list(keep))
    dropped = [row[0] for row in rows]
    if led_here and dropped:
        await connection.execute(_SQL["wake_dropped"], dropped, now + _DROPPED_PAUSE)
    return dropped


async def take_waiting(connection: Connection, runs: Sequence[UUID]) -> dict[UUID, str]:
    """Take these slots out of their waiting, to be booked; their reasons."""
    rows = await connection.fetch(_SQL["take_waiting"], list(runs))
    return {row[0]: row[1] for row in rows}


async def give_back_waiting(
    connection: Connection,
    task: UUID,
    held: HeldTask,
    request: HoldRequest,
    reasons: dict[UUID, str],
    now: int,
) -> None:
    """Those that could not be booked wait on."""
    waiting = [run for run in request.runs if run.run in reasons]
    await connection.execute(
        _SQL["give_back_waiting"],
        task,
        held.participant,
        held.scheduling_class,
        request.priority,
        held.duration,
        now,
        [run.run for run in waiting],
        [run.slot for run in waiting],
        [run.attempt for run in waiting],
        [reasons[run.run] for run in waiting],
    )


async def decision(
    connection: Connection, exchange: UUID, now: int
) -> tuple[str, dict[str, Any] | None] | None:
    """This lead's word on an exchange, and its commit message; None if it is unknown."""
    row = await connection.fetchrow(_SQL["decision"], exchange, now)
    return None if row is None else (row[0], row[1])


async def wake_waiting(connection: Connection, task: UUID, now: int) -> bool:
    """Have a task's waiting slots planned now; False if it has none, or is not led here."""
    return await connection.fetchval(_SQL["wake_waiting"], task, now) is not None


async def expired_holds(connection: Connection, now: int) -> list[ExpiredHold]:
    """Holds whose life is over, oldest first."""
    rows = await connection.fetch(_SQL["expired_holds"], now)
    return [
        ExpiredHold(row["id"], row["task_id"], row["lead"], row["held_at"], row["expires_at"])
        for row in rows
    ]


async def notify(connection: Connection, *words: object) -> None:
    """Tell every process of this node, when the transaction commits."""
    await connection.execute(_SQL["notify"], " ".join(str(word) for word in words))


async def tell_leads(connection: Connection, lost: Sequence[Displacement], now: int) -> None:
    """Tell the leads of displaced runs, this node itself included, through the outbox."""
    for displacement in lost:
        body = {
            "run": str(displacement.run),
            "state": "displaced",
            "reason": displacement.reason,
            "displaced_by": str(displacement.displaced_by),
        }
        await outbox.post(connection, [displacement.lead], outbox.Kind.RUN_END, body, now)
        await notify(connection, "run", displacement.run, displacement.task, "displaced")


async def is_being_decided(connection: Connection, run: UUID) -> bool:
    """Whether this node leads an open negotiation about a run."""
    return bool(await connection.fetchval(_SQL["is_being_decided"], run))


async def lead_of_exchange(connection: Connection, exchange: UUID, task: UUID | None) -> str | None:
    """Who may decide on an exchange, or if it is unknown, on this task; None if that is, too."""
    found: str | None = await connection.fetchval(_SQL["lead_of_exchange"], exchange, task)
    return found


async def runs_to_come(
    connection: Connection, tasks: Sequence[UUID], lead: str, since: int, until: int
) -> dict[UUID, tuple[str, list[UUID]]]:
    """Of these tasks of a lead: state, and ids of committed runs starting in [since, until)."""
    rows = await connection.fetch(_SQL["runs_to_come"], list(tasks), lead, since, until)
    return {row[0]: (row[1], row[2] or []) for row in rows}
