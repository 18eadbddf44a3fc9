"""Claims, negotiations and decisions in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.model import Claim, Decision, Following, UnplacedSlot
from lead.planning.agenda import Slot
from node.model import runstate
from node.model.classes import SchedulingClass
from node.model.wire.participants import CommitRequest, RunRequest
from node.store.database import Connection, Queries

_SQL = Queries("lead.store", "planning")


async def claim(
    connection: Connection, now: int, before: int, limit: int, owner: str, lease_until: int
) -> list[Claim]:
    """Take the tasks due whose next run comes soonest, with a lease on each."""
    rows = await connection.fetch(_SQL["claim"], now, before, limit, owner, lease_until)
    return sorted((_claim(dict(row)) for row in rows), key=lambda found: found.next_run_at)


def _claim(row: dict[str, Any]) -> Claim:
    scheduling_class = SchedulingClass(row.pop("scheduling_class"))
    return Claim(task=row.pop("task_id"), scheduling_class=scheduling_class, **row)


async def next_due(connection: Connection, before: int) -> int | None:
    """When the next task is due to be planned."""
    found: int | None = await connection.fetchval(_SQL["next_due"], before)
    return found


async def next_to_come(connection: Connection, since: int) -> int | None:
    """The first slot from then on that is to be planned."""
    found: int | None = await connection.fetchval(_SQL["next_to_come"], since)
    return found


async def waiting(connection: Connection, task: UUID, limit: int) -> list[tuple[int, int]]:
    """Slots that wait for time, earliest first: nominal start and attempt."""
    return [(row[0], row[1]) for row in await connection.fetch(_SQL["waiting"], task, limit)]


async def counted_runs(connection: Connection, task: UUID) -> int:
    """Runs that use up the task's ``max_runs``; waiting slots are not among them."""
    return int(await connection.fetchval(_SQL["counted_runs"], task, sorted(runstate.NOT_COUNTED)))


async def open_negotiation(
    connection: Connection,
    exchange: UUID,
    claimed: Claim,
    runs: Sequence[UUID],
    now: int,
    expires_at: int,
) -> bool:
    """Write the names before the first message goes out; False if the lease was lost."""
    opened = await connection.fetchval(
        _SQL["open_negotiation"],
        exchange,
        claimed.task,
        claimed.lease_epoch,
        list(runs),
        now,
        expires_at,
    )
    return opened is not None


async def decide_commit(
    connection: Connection, exchange: UUID, task: UUID, message: CommitRequest, now: int
) -> bool:
    """The commit point; False if it must not be committed any more."""
    await connection.execute(_SQL["lock_task"], task)
    body = message.model_dump(mode="json")
    return await connection.fetchval(_SQL["decide_commit"], exchange, now, body) is not None


async def ended(connection: Connection, runs: Sequence[UUID]) -> set[UUID]:
    """Those of these runs that are over here: cancelled or displaced meanwhile, say."""
    rows = await connection.fetch(_SQL["ended"], list(runs), sorted(runstate.OVER))
    return {row[0] for row in rows}


async def decide_abort(connection: Connection, exchange: UUID, now: int) -> None:
    """Nothing was held by all: the exchange is aborted."""
    await connection.execute(_SQL["decide_abort"], exchange, now)


async def keep_led(
    connection: Connection,
    exchange: UUID,
    claimed: Claim,
    data: dict[str, Any],
    runs: Sequence[RunRequest],
    now: int,
) -> None:
    """The lead's record of runs in which this node takes no part."""
    await connection.execute(
        _SQL["keep_led_exchange"], exchange, claimed.task, claimed.lease_epoch, data, now
    )
    await connection.execute(
        _SQL["keep_led_runs"],
        claimed.task,
        exchange,
        claimed.scheduling_class,
        claimed.priority,
        now,
        [run.run for run in runs],
        [run.slot for run in runs],
        [run.attempt for run in runs],
        [run.starts_at for run in runs],
        [run.ends_at for run in runs],
    )


async def keep_unplaced(
    connection: Connection, claimed: Claim, slots: Sequence[UnplacedSlot], now: int
) -> None:
    """Slots that found no time wait, or are given up, each with its reason."""
    if not slots:
        return
    await connection.execute(
        _SQL["keep_waiting"],
        claimed.task,
        claimed.participant,
        claimed.scheduling_class,
        claimed.priority,
        claimed.duration,
        now,
        [slot.run for slot in slots],
        [slot.slot for slot in slots],
        [slot.attempt for slot in slots],
        [slot.state for slot in slots],
        [slot.reason for slot in slots],
    )


async def keep_decision(connection: Connection, task: UUID, decision: Decision, now: int) -> None:
    """Store a planning attempt."""
    await connection.execute(
        _SQL["keep_decision"],
        task,
        decision.exchange,
        now,
        decision.outcome,
        decision.sentence,
        decision.asked,
        decision.placed,
        decision.first_slot,
        decision.last_slot,
        decision.trace,
    )


async def finish_claim(
    connection: Connection, claimed: Claim, following: Following, asked: Sequence[Slot], now: int
) -> bool:
    """Give the task back with what is to be planned next; False if it is not ours any more.

    A slot that waits and was not ``asked`` for came meanwhile: it is planned at once.
    """
    kept = await connection.fetchval(
        _SQL["finish_claim"],
        claimed.task,
        claimed.lease_epoch,
        following.planned_to,
        following.next_run_at,
        following.plan_at,
        following.failures,
    )
    if kept is None:
        return False
    nominals, attempts = [slot.nominal for slot in asked], [slot.attempt for slot in asked]
    await connection.execute(_SQL["wake_if_waiting"], claimed.task, now, nominals, attempts)
    return True


async def give_back(connection: Connection, claimed: Claim) -> None:
    """Let others have the task at once."""
    await connection.execute(_SQL["give_back"], claimed.task, claimed.lease_epoch)


async def abort_stale(connection: Connection, now: int) -> None:
    """Abort negotiations whose time is over."""
    await connection.execute(_SQL["abort_stale"], now)


async def set_participants(
    connection: Connection, task: UUID, participants: list[dict[str, Any]], tool: str, duration: int
) -> None:
    """What the participants answered, and the tool and duration that follow."""
    await connection.execute(_SQL["set_participants"], task, participants, tool, duration)


async def digests(
    connection: Connection, participant: str, since: int, until: int, decided_before: int
) -> list[tuple[UUID, str, list[UUID]]]:
    """Active tasks led here with this participant: id, state, and the ids of the runs to come."""
    rows = await connection.fetch(_SQL["digests"], participant, since, until, decided_before)
    return [(row[0], row[1], row[2] or []) for row in rows]


async def notify_planned(connection: Connection, task: UUID, *, booked: bool) -> None:
    """Tell whoever watches the task that a planning attempt was made."""
    await connection.execute(
        _SQL["notify_planned"], f"task {task} {'booked' if booked else 'planned'}"
    )
