"""Bookings of this node's time: occupied time, holds, commits, and releases.

Two runs that exclude each other never overlap, whatever processes book at once: the constraint
``run_no_overlap`` in ``schema.sql`` compares the lanes of booked and running runs. A normal run has
a lane of its own number, an exclusive one has all lanes, a background run none. So ``book`` inserts
what it can and returns it; whoever asks earlier whether time is free only explains, or saves a try.

A run that gives way is first set aside for the one that displaces it, which takes it out of the
constraint. With the commit of the winner it is displaced for good; a release books it again, if its
time is still free.

A hold names revision and lease epoch of its task. The row of the task is locked first, by every
hold, so an older epoch, which belongs to a worker that lost its lease, books nothing after a newer
one. Commits and releases may come twice, late, or before their hold: an exchange keeps its answer,
and a release without a hold is stored, so that the hold which follows it is refused.

Each function is one transaction or takes part in one. A statement that changes a state checks the
present state again.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.model import runstate, times
from node.model.classes import SchedulingClass
from node.model.digests import starts_of
from node.model.exchangestate import ExchangeState
from node.model.hold_limits import IntroducedTask
from node.model.host_limits.standing import LimitStanding
from node.model.ranks import OWN
from node.model.reason import Reason
from node.model.reasons import (
    displaced_by_lead,
    displaced_by_other_lead,
    displaced_by_owner,
    displaced_by_priority,
    not_held_by_all,
    time_lost_meanwhile,
)
from node.model.resources import occupied_class
from node.model.spans import Span
from node.model.taskstate import TaskState
from node.model.timeline import Booking, OccupiedSpan
from node.model.wire.participants import CommitRequest, HoldRequest, RunRequest
from node.store import notices, outbox
from node.store.database import POSTGRES_EPOCH, Connection
from node.store.statements import Query, Statements, as_tuple, spread

_SQL = Statements("node.store", "bookings")

_BLOCKING = {SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL}
_DROPPED_PAUSE = 5 * times.SECOND
"""Maximum delay before a slot is planned again after its hold was dropped (microseconds)."""


@dataclass(frozen=True)
class HeldTask:
    """The fields of a task that a hold needs."""

    task: UUID
    participant: int | None
    """This node's place; None if it only leads, or only keeps resources."""
    scheduling_class: SchedulingClass
    spec: dict[str, Any]
    test: str
    led_here: bool
    campaign: str | None
    pool_task: UUID | None
    introduced: IntroducedTask
    restored: bool
    """True if its lead's database was restored since the task was first held here."""
    limit: LimitStanding
    """Its standing with the limits of this host."""
    takes: Mapping[str, int] = field(default_factory=dict)
    """The amounts that each run takes of the resources that this node keeps."""

    @property
    def occupying(self) -> SchedulingClass:
        """The class as which its runs occupy this host: nothing runs where no part is taken."""
        return occupied_class(self.scheduling_class, keeps_only=self.participant is None)


@dataclass(frozen=True)
class Hold:
    """A request by ``lead`` to hold the runs of one exchange, and the rank that they have here.

    ``spare_priority`` is the priority as which they count once their task may lose no further run;
    None if it has no budget of displacements.
    """

    exchange: UUID
    lead: str
    request: HoldRequest
    rank: int = OWN
    spare_priority: int | None = None

    @property
    def runs(self) -> Sequence[UUID]:
        """The ids of the runs to book."""
        return [run.run for run in self.request.runs]


@dataclass(frozen=True)
class ExchangeRuling:
    """The decision on one exchange: keep the runs of ``commit``, or without it release all.

    ``sender`` must lead the task; None is this node itself, releasing a hold that has expired.
    """

    exchange: UUID
    task: UUID | None
    commit: CommitRequest | None
    sender: str | None


@dataclass(frozen=True)
class ExchangeStatus:
    """The state of an exchange, the answer that was given to its hold, its task, and its lead."""

    state: ExchangeState
    answer: dict[str, Any]
    task: UUID
    lead: str


@dataclass(frozen=True)
class Displacement:
    """A run that was lost to one of higher priority, as its lead may know it."""

    run: UUID
    task: UUID
    lead: str
    reason: str
    displaced_by: UUID | None


@dataclass(frozen=True)
class _LosingRun:
    """A run that gives way for good, with the run that wins, and what decided between them.

    ``winning_task`` is None where it is of another user. ``told`` is whether the lead of the run
    may know the winner.
    """

    run: UUID
    task: UUID
    lead: str
    priority: int
    winner: UUID
    test: str
    winning_priority: int
    winning_task: UUID | None
    by_owner: bool
    by_lead: bool
    told: bool

    def why(self) -> Reason:
        """Return the reason, as this host may know it."""
        if self.by_owner:
            return displaced_by_owner(self.test, self.winning_task)
        if self.by_lead:
            return displaced_by_lead(self.test, self.winning_task)
        return displaced_by_priority(
            self.winning_priority, self.priority, self.test, self.winning_task
        )

    def displacement(self) -> Displacement:
        """Return what the lead of the run is told."""
        if self.told:
            return Displacement(self.run, self.task, self.lead, self.why(), self.winner)
        why = displaced_by_owner() if self.by_owner else displaced_by_other_lead()
        return Displacement(self.run, self.task, self.lead, why, None)


@dataclass(frozen=True)
class ExpiredHold:
    """A hold whose life is over, and on which its lead has not decided."""

    exchange: UUID
    task: UUID
    lead: str
    lease_epoch: int
    held_at: int
    expires_at: int


async def occupied_spans(
    connection: Connection, windows: Sequence[Span], fixed_before: int
) -> list[OccupiedSpan]:
    """Return what occupies time in these windows; runs before ``fixed_before`` cannot give way."""
    rows = await connection.fetch(
        _SQL["occupied"],
        [start for start, _ in windows],
        [end for _, end in windows],
        fixed_before,
    )
    return [OccupiedSpan(SchedulingClass(r[0]), r[1], r[2], unpack_spans(r[3]), r[4]) for r in rows]


def unpack_spans(sent: bytes) -> list[Span]:
    """Unpack alternating starts and ends, which Postgres sends as 8-byte µs since its own epoch."""
    instants = [each + POSTGRES_EPOCH for each in struct.unpack(f">{len(sent) // 8}q", sent)]
    return list(zip(instants[::2], instants[1::2], strict=True))


async def blocking_runs(
    connection: Connection, windows: Sequence[Span], fixed_before: int
) -> list[Booking]:
    """Return the runs in these windows; those before ``fixed_before`` cannot give way."""
    rows = await connection.fetch(
        _SQL["blocking_runs"],
        [start for start, _ in windows],
        [end for _, end in windows],
        fixed_before,
    )
    return [
        Booking(row[0], row[1], row[2], SchedulingClass(row[3]), row[4], row[5], row[6], *row[7:])
        for row in rows
    ]


async def accept_epochs(connection: Connection, holds: Sequence[Hold]) -> dict[UUID, HeldTask]:
    """Lock the tasks of these holds, each of a different task, and return the accepted ones.

    A hold is accepted if its task is active, is led by the sender, and has the same revision and
    no newer epoch. The epoch, and the tool chosen by the lead, are stored with the task.
    """
    rows = await connection.fetch(
        _SQL["accept_epochs"],
        [hold.request.task for hold in holds],
        [hold.lead for hold in holds],
        [hold.request.lease_epoch for hold in holds],
        [hold.request.tool for hold in holds],
        [hold.request.revision for hold in holds],
        [hold.exchange for hold in holds],
        sorted(runstate.TOOK_PLACE),
        [hold.request.generation for hold in holds],
    )
    return {
        row["id"]: HeldTask(
            row["id"],
            row["participant"],
            SchedulingClass(row["scheduling_class"]),
            row["spec"],
            row["test"],
            bool(row["led_here"]),
            row["campaign"],
            row["pool_task"],
            IntroducedTask(
                row["duration"], row["priority"], row["schedule"], row["created_at"], row["counted"]
            ),
            row["restored"],
            LimitStanding.from_columns(
                row["limit_rule"],
                row["limit_refusal"],
                row["run_bytes"],
                row["limit_caps"],
                row["limit_user"],
            ),
            row["takes"] or {},
        )
        for row in rows
    }


async def task_standings(
    connection: Connection, tasks: Sequence[UUID]
) -> dict[UUID, tuple[TaskState, str, int, int]]:
    """Return state, lead, highest epoch, and revision of the known ones among these tasks."""
    rows = await connection.fetch(_SQL["task_standings"], list(tasks))
    return {row[0]: (TaskState(row[1]), row[2], row[3], row[4]) for row in rows}


async def exchange_standings(
    connection: Connection, exchanges: Sequence[UUID]
) -> dict[UUID, ExchangeStatus]:
    """Return the status of the known ones among these exchanges."""
    rows = await connection.fetch(_SQL["exchange_standings"], list(exchanges))
    return {row[0]: ExchangeStatus(ExchangeState(row[1]), row[2], row[3], row[4]) for row in rows}


async def open_exchanges(connection: Connection, holds: Sequence[Hold], now: int) -> set[UUID]:
    """Write exchanges, and return those that are new."""
    rows = await connection.fetch(
        _SQL["open_exchanges"],
        [hold.exchange for hold in holds],
        [hold.request.task for hold in holds],
        [hold.request.lease_epoch for hold in holds],
        now,
        [hold.request.life for hold in holds],
    )
    return {row[0] for row in rows}


Wanted = Sequence[tuple[Hold, HeldTask, Sequence[RunRequest]]]
"""Holds with their tasks, and those of their runs that can still start in time."""


@dataclass(frozen=True)
class EarlierAttempt:
    """An earlier run of a slot for which another attempt is requested.

    ``unknown`` is set if its lead does not know it: it numbers the slot's attempts anew.
    ``cancelled`` is why it was cancelled by itself, of which its restored lead may not know.
    ``began_at`` is None if it has not begun.
    """

    wanted: UUID
    run: UUID
    task: UUID
    unknown: bool
    cancelled: str | None
    began_at: int | None


async def earlier_attempts(connection: Connection, wanted: Wanted) -> list[EarlierAttempt]:
    """Return the earlier runs here of slots for which another attempt is requested.

    A lead whose database was restored may request an attempt again that it does not remember.
    """
    again = [
        (
            run.run,
            hold.request.task,
            run.slot,
            run.attempt,
            hold.request.lease_epoch if task.restored else None,
            task.introduced.retries if run.again else None,
        )
        for hold, task, runs in wanted
        for run in runs
        if run.attempt > 1 or task.restored
    ]
    if not again:
        return []
    rows = await connection.fetch(_SQL["earlier_attempts"], *zip(*again, strict=True))
    return [EarlierAttempt(*row) for row in rows]


give_up: Query[[Mapping[UUID, str], int], None] = spread(_SQL.command("give_up"))
"""Cancel runs that have not begun, for these reasons: their lead plans their slots anew."""

forget: Query[[Sequence[UUID]], None] = _SQL.command("forget")
"""Delete runs that were never begun and that their lead does not know, to free their ids."""


async def set_aside(
    connection: Connection, wanted: Wanted, earliest: int, now: int
) -> Counter[UUID]:
    """Set aside the runs that give way to displacing ones; count them by displacing run."""
    displacing = [
        (
            run.run,
            run.starts_at,
            run.ends_at,
            task.occupying,
            hold.request.priority,
            hold.request.yielding is None,
            hold.rank,
        )
        for hold, task, runs in wanted
        for run in runs
        if run.displacing and task.occupying in _BLOCKING
    ]
    if not displacing:
        return Counter()
    named = [
        (run.run, yielding)
        for hold, _, runs in wanted
        for run in runs
        for yielding in hold.request.yielding or ()
        if run.displacing
    ]
    rows = await connection.fetch(
        _SQL["set_aside"],
        *zip(*displacing, strict=True),
        [run for run, _ in named],
        [yielding for _, yielding in named],
        earliest,
        now,
    )
    return Counter(row[0] for row in rows)


async def book(connection: Connection, wanted: Wanted, now: int) -> set[UUID]:
    """Book the runs whose time is free, and return their ids."""
    flat = [
        (number, run.run, run.slot, run.attempt, run.starts_at, run.ends_at, run.again)
        for number, (_, _, runs) in enumerate(wanted, 1)
        for run in runs
    ]
    if not flat:
        return set()
    rows = await connection.fetch(
        _SQL["book"],
        now,
        *zip(*flat, strict=True),
        [hold.exchange for hold, _, _ in wanted],
        [hold.request.task for hold, _, _ in wanted],
        [task.participant for _, task, _ in wanted],
        [task.scheduling_class for _, task, _ in wanted],
        [hold.request.priority for hold, _, _ in wanted],
        [hold.rank for hold, _, _ in wanted],
        [hold.spare_priority for hold, _, _ in wanted],
    )
    if series := [hold.request.task for hold, _, _ in wanted if hold.spare_priority is not None]:
        await connection.execute(_SQL["spare"], series)
    return {row[0] for row in rows}


async def other_attempts(
    connection: Connection, task: UUID, runs: Sequence[RunRequest]
) -> dict[UUID, tuple[UUID, int]]:
    """Return by run the other attempt of its slot that is booked or has begun here, and its number.

    While there is one, the run is not booked.
    """
    columns = [(run.run, task, run.slot, run.attempt, run.again) for run in runs]
    rows = await connection.fetch(_SQL["other_attempts"], *zip(*columns, strict=True))
    return {row[0]: (row[1], row[2]) for row in rows}


ports_in_use: Query[[], set[int]] = _SQL.distinct("ports_in_use")
"""The ports reserved for exchanges whose runs are not over."""

keep_answers: Query[[Mapping[UUID, dict[str, Any]]], None] = spread(_SQL.command("keep_answers"))
"""Store answers by exchange, so that a repeated request gets the same answer."""

_lose_set_aside: Query[[Sequence[UUID], int, str], list[Displacement]] = _SQL.rows(
    "lose_set_aside", Displacement
)


async def restore(connection: Connection, runs: Sequence[UUID], now: int) -> list[Displacement]:
    """Book the runs that were set aside for these runs again; return those that lost their time.

    Runs that were set aside for a lost run are booked again in turn.
    """
    lost: list[Displacement] = []
    given_up = list(runs)
    while given_up:
        await connection.execute(_SQL["restore_set_aside"], given_up, now)
        more = await _lose_set_aside(connection, given_up, now, time_lost_meanwhile())
        lost += more
        given_up = [displacement.run for displacement in more]
    return lost


_losing_runs: Query[[Sequence[UUID]], list[_LosingRun]] = _SQL.rows("losing_runs", _LosingRun)
_displace: Query[[Mapping[UUID, str], int], None] = spread(_SQL.command("displace"))


async def displace(
    connection: Connection, exchanges: Sequence[UUID], now: int
) -> list[Displacement]:
    """Displace for good the runs that were set aside for the kept runs of these exchanges."""
    losing = await _losing_runs(connection, exchanges)
    if not losing:
        return []
    await _displace(connection, {each.run: each.why() for each in losing}, now)
    lost = await restore(connection, [each.run for each in losing], now)
    return [*(each.displacement() for each in losing), *lost]


raise_rank: Query[[Sequence[UUID], int], None] = _SQL.command("raise_rank")
"""Give the booked runs of these exchanges at least this rank."""


async def decide(
    connection: Connection, rulings: Sequence[ExchangeRuling], now: int
) -> dict[UUID, tuple[UUID, bool]]:
    """Commit or release held exchanges; return by exchange the task and whether it is led here.

    Exchanges that are not held, or not led by the sender, are left out.
    """
    rows = await connection.fetch(
        _SQL["decide_exchanges"],
        [ruling.exchange for ruling in rulings],
        [ruling.commit is not None for ruling in rulings],
        [{} if ruling.commit is None else ruling.commit.data for ruling in rulings],
        [ruling.sender for ruling in rulings],
        now,
    )
    return {row[0]: (row[1], row[2]) for row in rows}


async def keep_early_releases(
    connection: Connection, releases: Sequence[ExchangeRuling], now: int
) -> None:
    """Store releases that arrived before their holds, which are then refused."""
    await connection.execute(
        _SQL["refuse_exchanges"],
        [ruling.exchange for ruling in releases],
        [ruling.task for ruling in releases],
        [ruling.sender for ruling in releases],
        now,
    )


RunsToKeep = Sequence[tuple[UUID, UUID]]
"""Runs to keep, each with its exchange: an exchange cannot keep a run of another one."""


def _columns(kept: RunsToKeep) -> tuple[list[UUID], list[UUID]]:
    return [exchange for exchange, _ in kept], [run for _, run in kept]


async def drop_runs(
    connection: Connection, exchanges: Sequence[UUID], keep: RunsToKeep
) -> list[UUID]:
    """Delete the runs of these exchanges except those to keep; return the deleted ids."""
    rows = await connection.fetch(_SQL["drop_runs"], list(exchanges), *_columns(keep))
    return [row[0] for row in rows]


async def drop_led_runs(
    connection: Connection, exchanges: Sequence[UUID], keep: RunsToKeep, now: int
) -> list[UUID]:
    """Let the runs of exchanges led here wait again, except those to keep; return their ids."""
    rows = await connection.fetch(
        _SQL["drop_led_runs"], list(exchanges), *_columns(keep), now, not_held_by_all()
    )
    dropped = [row[0] for row in rows]
    if dropped:
        await connection.execute(_SQL["wake_dropped"], dropped, now + _DROPPED_PAUSE, now)
    return dropped


take_waiting: Query[[Sequence[UUID]], dict[UUID, str]] = _SQL.by_key("take_waiting")
"""Remove these waiting slots so that they can be booked; return their reasons."""


async def give_back_waiting(
    connection: Connection, waiting: Sequence[tuple[RunRequest, UUID, str]], now: int
) -> None:
    """Let slots that could not be booked wait again, each with its task and reason."""
    await connection.execute(
        _SQL["give_back_waiting"],
        now,
        [run.run for run, _, _ in waiting],
        [task for _, task, _ in waiting],
        [run.slot for run, _, _ in waiting],
        [run.attempt for run, _, _ in waiting],
        [reason for _, _, reason in waiting],
    )


decision: Query[[UUID, int, str | None], tuple[str, dict[str, Any] | None, bool] | None] = _SQL.row(
    "decision", as_tuple
)
"""This lead's decision on an exchange, and the commit message; None if unknown.

``sender`` is the identity of the node that asks, None for this node itself; the last value says
whether it takes part.
"""

wake_waiting: Query[[UUID, int], bool] = _SQL.finds("wake_waiting")
"""Plan the waiting slots of a task now; False if it has none, or is not led here."""

expired_holds: Query[[int, Sequence[str], int], list[ExpiredHold]] = _SQL.rows(
    "expired_holds", ExpiredHold
)
"""The holds that have expired at an instant, oldest first, but for these leads; at most so many."""


async def tell_leads(connection: Connection, lost: Sequence[Displacement], now: int) -> None:
    """Tell the leads of displaced runs, this node itself included, through the outbox."""
    for displacement in lost:
        body = {
            "run": str(displacement.run),
            "state": "displaced",
            "reason": displacement.reason,
            "displaced_by": str(displacement.displaced_by) if displacement.displaced_by else None,
        }
        await outbox.post(connection, [displacement.lead], outbox.MessageKind.RUN_END, body, now)
        await notices.notify(connection, "run", displacement.run, displacement.task, "displaced")


is_being_decided: Query[[UUID], bool] = _SQL.value("is_being_decided")
"""Return whether this node leads an open negotiation about a run."""


async def runs_to_come(
    connection: Connection, tasks: Sequence[UUID], lead: str, since: int, until: int
) -> dict[UUID, tuple[str, int, dict[UUID, int]]]:
    """Return by task of this lead its state and revision, and its runs starting in [since, until).

    The runs are the committed ones, with their starts.
    """
    rows = await connection.fetch(_SQL["runs_to_come"], list(tasks), lead, since, until)
    return {row[0]: (row[1], row[2], starts_of(row[3], row[4])) for row in rows}
