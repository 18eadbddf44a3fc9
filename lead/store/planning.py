"""The lead's tables of planning: the agenda of tasks, claims, negotiations, and decisions.

Any number of workers, in any number of processes, plan from one agenda. A worker claims due tasks
with a lease, which skips what others have locked. Each claim raises the lease epoch of the task,
and what is written for a claim names its epoch: a worker that lost its lease changes nothing any
more.

An exchange is written as an open negotiation before its first message is sent. ``decide_commit`` is
the commit point. It takes an exchange only while it is open, its lease stands, its time is not
over, and its task is active; it stores the commit message in the same statement. So a participant
that asks later gets the same answer from every process of this node, and one that finds nothing may
drop the hold (presumed abort). Who returns a task to the agenda never undoes a wake-up or an edit
that came after the claim.

Instants are in microseconds. Not here: the choice of slots and participants (``lead/planning``),
and the sending of messages (``lead/exchange``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from lead.model.reasons import planning_broke_off
from lead.model.records import (
    AgendaUpdate,
    Claim,
    PlanningDecision,
    UnplacedSlot,
    WaitingSlot,
)
from lead.store.failures import describe_failure
from node.model import runstate
from node.model.attempts import CAME_TO_NOTHING
from node.model.digests import starts_of
from node.model.host_limits.standing import LimitStanding
from node.model.ids import Generation
from node.model.runstate import RunState
from node.model.task_terms import take_terms
from node.model.taskstate import TaskState
from node.model.wire.participants import CommitRequest, HoldRequest, RunRequest
from node.model.wire.tasks import KEEPERS, PARTICIPANTS
from node.store import dependencies, notices
from node.store.database import Connection
from node.store.statements import Query, Statements, as_tuple, columns_of, spread

_SQL = Statements("lead.store", "planning")


@dataclass(frozen=True)
class LeaseRequest:
    """The lease that ``owner`` takes at ``now``, until ``until``; instants in microseconds."""

    owner: str
    now: int
    until: int


async def claim(
    connection: Connection,
    lease: LeaseRequest,
    before: int,
    limit: int,
    *,
    restricted: Sequence[str] = (),
    only: str | None = None,
) -> list[Claim]:
    """Take the due tasks whose next run comes soonest, with a lease on each.

    Take at most ``limit`` tasks whose next run is before ``before``. Leave out those that wait for
    a participant in ``restricted``; with ``only``, take only those that wait for that participant.
    A task whose terms cannot be read stores why and is due again when its lease would have ended.
    """
    rows = await connection.fetch(
        _SQL["claim"], lease.now, before, limit, lease.owner, lease.until, list(restricted), only
    )
    claims = []
    for row in rows:
        try:
            claims.append(_claim(dict(row)))
        except ValidationError as error:
            await _put_off_unreadable(connection, row["task_id"], row["lease_epoch"], lease, error)
    return sorted(claims, key=lambda claimed: (claimed.next_run_at, claimed.terms.created_at))


def _claim(row: dict[str, Any]) -> Claim:
    return Claim(
        task=row.pop("task_id"),
        state=TaskState(row.pop("state")),
        terms=take_terms(row),
        limit=take_standing(row),
        **row,
    )


def take_standing(row: dict[str, Any]) -> LimitStanding:
    """Remove from a row of a task how it stands with the limits of this host, and return it."""
    return LimitStanding(
        row.pop("limit_rule"),
        row.pop("limit_refusal"),
        row.pop("run_bytes"),
        user=row.pop("limit_user"),
    )


async def _put_off_unreadable(
    connection: Connection, task: UUID, lease_epoch: int, lease: LeaseRequest, error: Exception
) -> None:
    why = describe_failure(error, "a stored task cannot be read", task=str(task))
    decision = PlanningDecision.broken_off(planning_broke_off(why))
    await break_off(connection, task, lease_epoch, lease.until)
    await keep_decisions(connection, [(task, decision)], lease.now)
    await notify_planned(connection, {task: False})


count_takeovers: Query[[str, int, int], None] = _SQL.command("count_takeovers")
"""Count that a process took tasks over from others, whose leases had run out.

Takes ``owner``, ``now``, ``count``.
"""

next_due_and_slot: Query[[int, Sequence[str]], tuple[int | None, int | None]] = _SQL.only_row(
    "next_due", as_tuple
)
"""Return when the next task is due, and the first slot from an instant on.

Tasks that wait for one of these participants are due when they can wait no longer.
"""


seen_since: Query[[Mapping[str, int]], list[str]] = spread(_SQL.column("seen_since"))
"""Return those of these nodes that have answered on this host since an instant each."""


async def waiting_slots(
    connection: Connection, tasks: Sequence[UUID], limit: int
) -> dict[UUID, list[WaitingSlot]]:
    """Return by task the slots that wait for time, those that were not tried for longest first."""
    found: dict[UUID, list[WaitingSlot]] = {task: [] for task in tasks}
    rows = await connection.fetch(_SQL["waiting"], list(tasks), limit, sorted(CAME_TO_NOTHING))
    for task, *waiting in rows:
        found[task].append(WaitingSlot(*waiting))
    return found


async def slots_with_runs(
    connection: Connection, changed: dict[UUID, int]
) -> dict[UUID, dict[int, int | None]]:
    """Return by changed task the slots after the given one that have had runs before.

    Each slot has the number of the attempt that may follow, or None if none may, for example
    because the slot was measured.
    """
    rows = await connection.fetch(_SQL["touched"], list(changed), list(changed.values()))
    found: dict[UUID, dict[int, int | None]] = {task: {} for task in changed}
    for task, slot, attempt, again in rows:
        found[task][slot] = attempt + 1 if again else None
    return found


async def run_counts(connection: Connection, tasks: Sequence[UUID]) -> dict[UUID, int]:
    """Return by task how many runs count toward its ``max_runs``; waiting slots do not."""
    rows = await connection.fetch(_SQL["counted_runs"], list(tasks), sorted(runstate.NOT_COUNTED))
    return {row[0]: row[1] for row in rows}


booked_starts: Query[[UUID], dict[int, int]] = _SQL.by_key("booked_starts")
"""Return by slot the starts of the booked runs of a task."""


@dataclass(frozen=True)
class ExchangeOpening:
    """The ids of an exchange and its runs, before any participant is asked to hold them."""

    exchange: UUID
    claimed: Claim
    runs: Sequence[UUID]


async def open_negotiations(
    connection: Connection, openings: Sequence[ExchangeOpening], now: int, expires_at: int
) -> set[UUID]:
    """Write the ids before the first message is sent; return those whose lease was not lost."""
    rows = await connection.fetch(
        _SQL["open_negotiations"],
        [opening.exchange for opening in openings],
        [opening.claimed.task for opening in openings],
        [opening.claimed.lease_epoch for opening in openings],
        [number for number, opening in enumerate(openings, 1) for _ in opening.runs],
        [run for opening in openings for run in opening.runs],
        now,
        expires_at,
    )
    return {row[0] for row in rows}


lock_tasks: Query[[Sequence[UUID]], None] = _SQL.command("lock_tasks")
"""Lock tasks, so that a concurrent cancel comes before or after what follows."""


async def decide_commit(
    connection: Connection, messages: dict[UUID, CommitRequest], now: int
) -> set[UUID]:
    """Commit exchanges, given by id with their messages; return those that were committed.

    This is the commit point: an exchange is left out if its lease was lost, its time is over, or
    its task has ended.
    """
    bodies = [message.model_dump(mode="json") for message in messages.values()]
    rows = await connection.fetch(_SQL["decide_commit"], list(messages), now, bodies)
    return {row[0] for row in rows}


async def find_commit(connection: Connection, exchange: UUID) -> CommitRequest | None:
    """Return the commit of an exchange; None if it was not committed, or was purged."""
    body = await connection.fetchval(_SQL["committed"], exchange)
    return None if body is None else CommitRequest.model_validate(body)


async def repeated_hold_request(
    connection: Connection, exchange: UUID, runs: Sequence[UUID], generation: Generation
) -> HoldRequest | None:
    """Return the request to hold these runs of an exchange again, or None without runs.

    They displace no run: what they could displace was displaced the first time.
    """
    rows = await connection.fetch(_SQL["held_again"], exchange, list(runs), sorted(CAME_TO_NOTHING))
    if not rows:
        return None
    return HoldRequest(
        task=rows[0]["task_id"],
        generation=generation,
        lease_epoch=rows[0]["lease_epoch"],
        tool=rows[0]["tool"],
        priority=rows[0]["priority"],
        yielding=(),
        revision=rows[0]["revision"],
        life=rows[0]["life"],
        runs=tuple(
            RunRequest(
                run=row["id"],
                slot=row["slot"],
                attempt=row["attempt"],
                starts_at=row["starts_at"],
                ends_at=row["ends_at"],
                again=row["again"],
            )
            for row in rows
        ),
    )


async def find_ended_runs(connection: Connection, runs: Sequence[UUID]) -> set[UUID]:
    """Return those of these runs that are over at the lead, for example cancelled."""
    rows = await connection.fetch(_SQL["ended"], list(runs), sorted(runstate.OVER))
    return {row[0] for row in rows}


decide_abort: Query[[Sequence[UUID], int], None] = _SQL.command("decide_abort")
"""Abort exchanges of which no run was held by all participants."""


async def keep_led_runs(
    connection: Connection,
    exchange: UUID,
    claimed: Claim,
    data: dict[str, Any],
    runs: Sequence[RunRequest],
    now: int,
) -> None:
    """Write the lead's record of runs in which this node takes no part."""
    await connection.execute(
        _SQL["keep_led_exchange"], exchange, claimed.task, claimed.lease_epoch, data, now
    )
    await connection.execute(
        _SQL["keep_led_runs"],
        claimed.task,
        exchange,
        claimed.terms.scheduling_class,
        claimed.terms.priority,
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
    """Write slots that found no time as waiting or given up, each with its reason."""
    if not slots:
        return
    await connection.execute(
        _SQL["keep_waiting"],
        claimed.task,
        claimed.participant,
        claimed.terms.scheduling_class,
        claimed.terms.priority,
        claimed.terms.duration,
        now,
        *columns_of(UnplacedSlot, slots),
    )
    unplaced = [slot.run for slot in slots if slot.state is RunState.UNPLACED]
    await dependencies.create_followers(connection, unplaced, now)


async def keep_decisions(
    connection: Connection, decisions: Sequence[tuple[UUID, PlanningDecision]], now: int
) -> None:
    """Store planning attempts, one for each task."""
    await connection.execute(
        _SQL["keep_decisions"],
        now,
        [task for task, _ in decisions],
        [decision.exchange for _, decision in decisions],
        [decision.outcome for _, decision in decisions],
        [decision.sentence for _, decision in decisions],
        [decision.asked for _, decision in decisions],
        [decision.placed for _, decision in decisions],
        [decision.first_slot for _, decision in decisions],
        [decision.last_slot for _, decision in decisions],
        [decision.trace for _, decision in decisions],
    )


async def finish_claims(
    connection: Connection, finished: Sequence[tuple[Claim, AgendaUpdate]]
) -> set[UUID]:
    """Return tasks to the agenda with their next planning; return those still leased here.

    Changes made since the claim win: a wake-up, or another slot to plan from.
    """
    rows = await connection.fetch(
        _SQL["finish_claims"],
        [claimed.task for claimed, _ in finished],
        [claimed.lease_epoch for claimed, _ in finished],
        [claimed.planned_to for claimed, _ in finished],
        [following.planned_to for _, following in finished],
        [following.next_run_at for _, following in finished],
        [following.plan_at for _, following in finished],
        [following.failures for _, following in finished],
        [following.waits_for for _, following in finished],
        [following.waits_until for _, following in finished],
        [following.wants_room for _, following in finished],
        [following.known_epoch for _, following in finished],
    )
    return {row[0] for row in rows}


break_off: Query[[UUID, int, int], bool] = _SQL.finds("break_off")
"""Put a task back on the agenda, its slots unchanged; False if its lease was lost.

Takes ``task``, ``lease_epoch``, ``plan_at``.
"""

abort_broken_off: Query[[UUID, int, int], list[tuple[UUID, int]]] = _SQL.rows(
    "abort_broken_off", as_tuple
)
"""Abort the open negotiations of a task up to an epoch; return their exchanges and epochs.

Takes ``task``, ``last_epoch``, ``now``.
"""


async def wait_for_room(connection: Connection, claimed: Claim, participant: str, now: int) -> None:
    """Return a task to the agenda, to wait until this participant has room for requests."""
    await connection.execute(_SQL["turn_away"], claimed.task, claimed.lease_epoch, now, participant)


put_off: Query[[str, int], None] = _SQL.command("put_off")
"""Put off the tasks that wait for this participant until it is asked again."""

wake_all: Query[[str, int], None] = _SQL.command("wake_all")
"""Make the tasks that wait for this participant due now."""

note_answered: Query[[Sequence[str], int], None] = _SQL.command("note_answered")
"""Record that these nodes, which were taken to be away, have answered."""


async def release_claim(connection: Connection, claimed: Claim, now: int) -> None:
    """Release the lease, so that another worker can claim the task at once."""
    await connection.execute(_SQL["give_back"], claimed.task, claimed.lease_epoch, now)


abort_stale: Query[[int], None] = _SQL.command("abort_stale")
"""Abort negotiations whose time is over."""

lock_to_change: Query[[Sequence[UUID]], None] = _SQL.command("lock_to_change")
"""Lock tasks whose participants are about to be written, before anything else is locked."""


async def set_participants(connection: Connection, claimed: Claim) -> bool:
    """Write the answers of a claim's participants, its tool, and duration; False if lease lost.

    Must run in a transaction: it first locks the task, and so waits for a concurrent edit, which
    takes the lease away.
    """
    await lock_to_change(connection, [claimed.task])
    kept = await connection.fetchval(
        _SQL["set_participants"],
        claimed.task,
        PARTICIPANTS.dump_python(claimed.terms.participants, mode="json"),
        claimed.terms.tool or "",
        claimed.terms.duration,
        claimed.lease_epoch,
        KEEPERS.dump_python(claimed.terms.keepers, mode="json"),
    )
    return kept is not None


@dataclass(frozen=True)
class LedTask:
    """An open task led here, with the starts of its future runs.

    ``accepted`` is false if the participant has not answered yet. ``runs`` is None while a decision
    about them may be on its way. ``given_up`` has those of them that were taken for over here while
    the clock was ahead.
    """

    id: UUID
    state: str
    revision: int
    accepted: bool
    runs: dict[UUID, int] | None
    given_up: tuple[UUID, ...]


@dataclass(frozen=True)
class TaskPage:
    """A page of at most ``limit`` tasks, those after the task ``after``."""

    after: UUID
    limit: int


async def led_tasks(
    connection: Connection,
    participant: str,
    since: int,
    until: int,
    decided_before: int,
    page: TaskPage,
) -> list[LedTask]:
    """Return the open tasks led here that this participant has not refused.

    Those whose commit after ``decided_before`` is still on its way come without their runs.
    """
    rows = await connection.fetch(
        _SQL["digests"], participant, since, until, decided_before, page.after, page.limit
    )
    return [
        LedTask(
            row["id"],
            row["state"],
            row["revision"],
            row["accepted"],
            runs=starts_of(row["runs"], row["starts"]) if row["settled"] else None,
            given_up=tuple(row["given_up"] or ()),
        )
        for row in rows
    ]


runs_lacking_part: Query[[str, int, int, int], list[UUID]] = _SQL.column("lacking")
"""Runs led here that ended between two instants, if this participant sent no part.

Takes ``participant``, ``since``, ``until``, ``limit``.
"""

is_wanted: Query[[UUID], bool] = _SQL.value("is_wanted")
"""Return whether this run is booked here, or being negotiated."""


async def notify_planned(connection: Connection, planned: dict[UUID, bool]) -> None:
    """Notify the watchers of tasks that a planning attempt was made, and whether it booked."""
    words = {True: "booked", False: "planned"}
    await notices.notify_all(
        connection, [("task", task, words[booked]) for task, booked in planned.items()]
    )
