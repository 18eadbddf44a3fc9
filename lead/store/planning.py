"""Claims, negotiations and decisions in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.model import Claim, Decision, Following, UnplacedSlot, WaitingSlot
from node.model import runstate
from node.model.classes import SchedulingClass
from node.model.wire.participants import CommitRequest, RunRequest
from node.store.database import Connection, Queries

_SQL = Queries("lead.store", "planning")


async def claim(  # noqa: PLR0913 - what bounds it
    connection: Connection,
    now: int,
    before: int,
    limit: int,
    owner: str,
    lease_until: int,
    *,
    shut: Sequence[str] = (),
    only: str | None = None,
) -> list[Claim]:
    """Take the tasks due whose next run comes soonest, with a lease on each.

    Not those that wait for a participant in ``shut``; or ``only`` those that wait for this one.
    """
    rows = await connection.fetch(
        _SQL["claim"], now, before, limit, owner, lease_until, list(shut), only
    )
    found = [_claim(dict(row)) for row in rows]
    return sorted(found, key=lambda claimed: (claimed.next_run_at, claimed.created_at))


def _claim(row: dict[str, Any]) -> Claim:
    scheduling_class = SchedulingClass(row.pop("scheduling_class"))
    return Claim(task=row.pop("task_id"), scheduling_class=scheduling_class, **row)


async def next_due(connection: Connection, before: int, shut: Sequence[str]) -> int | None:
    """When the next task is due that does not wait for a participant in ``shut``."""
    found: int | None = await connection.fetchval(_SQL["next_due"], before, list(shut))
    return found


async def next_to_come(connection: Connection, since: int) -> int | None:
    """The first slot from then on that is to be planned."""
    found: int | None = await connection.fetchval(_SQL["next_to_come"], since)
    return found


async def waiting(connection: Connection, task: UUID, limit: int) -> list[WaitingSlot]:
    """Slots that wait for time, the longest not asked for first."""
    rows = await connection.fetch(_SQL["waiting"], task, limit)
    return [WaitingSlot(row[0], row[1], row[2]) for row in rows]


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


async def finish_claim(connection: Connection, claimed: Claim, following: Following) -> bool:
    """Give the task back with what is to be planned next; False if it is not ours any more.

    What was changed since the claim is kept: a wake-up, another place to plan from.
    """
    kept = await connection.fetchval(
        _SQL["finish_claim"],
        claimed.task,
        claimed.lease_epoch,
        following.planned_to,
        following.next_run_at,
        following.plan_at,
        following.failures,
        claimed.planned_to,
        following.waits_for,
        following.waits_until,
    )
    return kept is not None


async def break_off(connection: Connection, claimed: Claim, plan_at: int) -> bool:
    """Give the task back without a word on its slots; False if it is not ours any more."""
    kept = await connection.fetchval(_SQL["break_off"], claimed.task, claimed.lease_epoch, plan_at)
    return kept is not None


async def abort_broken_off(connection: Connection, claimed: Claim, now: int) -> list[UUID]:
    """Abort what was negotiated under this claim and not decided; the exchanges."""
    rows = await connection.fetch(_SQL["abort_broken_off"], claimed.task, claimed.lease_epoch, now)
    return [row[0] for row in rows]


async def turn_away(connection: Connection, claimed: Claim, participant: str, now: int) -> None:
    """Give the task back, to wait until this participant has room for its questions."""
    await connection.execute(_SQL["turn_away"], claimed.task, claimed.lease_epoch, now, participant)


async def put_off(connection: Connection, participant: str, ask_at: int) -> None:
    """The tasks that wait for this participant wait until it is asked again."""
    await connection.execute(_SQL["put_off"], participant, ask_at)


async def wake_all(connection: Connection, participant: str, now: int) -> None:
    """The tasks that wait for this participant are planned now."""
    await connection.execute(_SQL["wake_all"], participant, now)


async def give_back(connection: Connection, claimed: Claim, now: int) -> None:
    """Let others have the task at once."""
    await connection.execute(_SQL["give_back"], claimed.task, claimed.lease_epoch, now)


async def abort_stale(connection: Connection, now: int) -> None:
    """Abort negotiations whose time is over."""
    await connection.execute(_SQL["abort_stale"], now)


async def set_participants(
    connection: Connection, claimed: Claim, participants: list[dict[str, Any]]
) -> bool:
    """What the participants answered, and tool and duration that follow; False: lease lost."""
    kept = await connection.fetchval(
        _SQL["set_participants"],
        claimed.task,
        participants,
        claimed.tool or "",
        claimed.duration,
        claimed.lease_epoch,
    )
    return kept is not None


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
