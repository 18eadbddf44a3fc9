"""Twins of ``lead/store/sql/planning.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.bookings import committed_runs, wake
from lead.simulation.memory.rows import (
    Decision,
    Exchange,
    Negotiation,
    Planning,
    Run,
    Task,
    pack,
    unpack,
)
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from lead.simulation.memory.tasks import nodes_of
from node.model import times

TWINS = Twins("lead.store", "planning")

_ABORTED_PAUSE = 5 * times.SECOND
_DIGESTS_MAX = 1000
_TO_COME = frozenset({"booked", "set-aside", "running", "merging"})


@TWINS.of(
    "task_id",
    "next_run_at",
    "planned_to",
    "failures",
    "lease_epoch",
    "state",
    "test",
    "spec",
    "tool",
    "tools",
    "scheduling_class",
    "duration",
    "priority",
    "participants",
    "participant",
    "addresses",
    "schedule",
    "campaign",
    "reference",
    "created_at",
)
def claim(
    tables: Tables, now: int, before: int, limit: int, owner: str, lease_until: int
) -> Answer:
    """The tasks due whose next run comes soonest, with a lease on each."""
    due = [
        (row.next_run_at, row.number, row)
        for row in tables.plannings.due.before(now + 1)
        if row.next_run_at is not None
        and row.next_run_at < before
        and (row.lease_until is None or row.lease_until <= now)
    ]
    claimed = [row for _, _, row in sorted(due)[:limit]]
    for row in claimed:
        tables.plannings.change(
            row, lease_owner=owner, lease_until=lease_until, lease_epoch=row.lease_epoch + 1
        )
    return [_claimed(row, tables.tasks.rows[row.task_id]) for row in claimed]


def _claimed(row: Planning, task: Task) -> tuple[Any, ...]:
    return (
        row.task_id,
        row.next_run_at,
        row.planned_to,
        row.failures,
        row.lease_epoch,
        task.state,
        task.test,
        unpack(task.spec),
        task.tool,
        list(task.tools),
        task.scheduling_class,
        task.duration,
        task.priority,
        unpack(task.participants),
        task.participant,
        unpack(task.addresses),
        unpack(task.schedule),
        task.campaign,
        unpack(task.reference),
        task.created_at,
    )


@TWINS.of("min")
def next_due(tables: Tables, before: int) -> Answer:
    """When the next task is due to be planned."""
    soonest: int | None = None
    for plan_at, row in tables.plannings.due:
        if soonest is not None and plan_at >= soonest:
            break
        if row.next_run_at is not None and row.next_run_at < before:
            at = plan_at if row.lease_until is None else max(plan_at, row.lease_until)
            soonest = at if soonest is None else min(soonest, at)
    return [(soonest,)]


@TWINS.of("min")
def next_to_come(tables: Tables, since: int) -> Answer:
    """The first slot beyond those that are near enough to be planned."""
    slots = [row.next_run_at for _, row in tables.plannings.due]
    return [(min((at for at in slots if at is not None and at >= since), default=None),)]


@TWINS.of("slot", "attempt")
def waiting(tables: Tables, task: UUID, limit: int) -> Answer:
    """Slots that wait for time, earliest first."""
    rows = sorted(tables.runs.waiting.of(task), key=lambda run: (run.slot, run.number))
    return [(run.slot, run.attempt) for run in rows[:limit]]


@TWINS.of("count")
def counted_runs(tables: Tables, task: UUID, not_counted: Sequence[str]) -> Answer:
    """Runs that use up the task's ``max_runs``."""
    return [(sum(run.state not in not_counted for run in tables.runs.by_task.of(task)),)]


@TWINS.of("id")
def open_negotiation(
    tables: Tables,
    exchange: UUID,
    task: UUID,
    epoch: int,
    runs: Sequence[UUID],
    now: int,
    expires_at: int,
) -> Answer:
    """Write the names before the first message goes out."""
    row = tables.plannings.rows.get(task)
    if row is None or row.lease_epoch != epoch:
        return ()
    tables.negotiations.insert(Negotiation(exchange, task, epoch, list(runs), now, expires_at))
    return [(exchange,)]


@TWINS.of("id")
def decide_commit(tables: Tables, exchange: UUID, now: int, message: dict[str, Any]) -> Answer:
    """The commit point: unless the lease was lost, the time is over or the task has ended."""
    row = tables.negotiations.open.get(exchange)
    if row is None or row.expires_at <= now:
        return ()
    agenda = tables.plannings.rows.get(row.task_id)
    active = tables.tasks.rows[row.task_id].state == "active"
    if agenda is None or agenda.lease_epoch != row.lease_epoch or not active:
        return ()
    tables.negotiations.change(row, state="committed", commit_message=pack(message), decided_at=now)
    return [(exchange,)]


@TWINS.of("id")
def lock_task(tables: Tables, task: UUID) -> Answer:
    """Whoever changes it waits."""
    return [(task,)] if task in tables.tasks.rows else ()


@TWINS.of("id")
def ended(tables: Tables, runs: Sequence[UUID], over: Sequence[str]) -> Answer:
    """Of these runs, those that are over at the lead."""
    rows = (tables.runs.rows.get(run) for run in dict.fromkeys(runs))
    return [(run.id,) for run in rows if run is not None and run.state in over]


@TWINS.of("id")
def decide_abort(tables: Tables, exchange: UUID, now: int) -> Answer:
    """The exchange is aborted, unless it is decided."""
    row = tables.negotiations.open.get(exchange)
    if row is None:
        return ()
    tables.negotiations.change(row, state="aborted", decided_at=now)
    return [(exchange,)]


@TWINS.of()
def keep_led_exchange(
    tables: Tables, exchange: UUID, task: UUID, epoch: int, data: dict[str, Any], now: int
) -> Answer:
    """The lead's record of an exchange in which it takes no part."""
    if exchange not in tables.exchanges.rows:
        kept = Exchange(
            exchange, task, epoch, now, now, state="committed", data=pack(data), decided_at=now
        )
        tables.exchanges.insert(kept)
    return ()


@TWINS.of()
def keep_led_runs(
    tables: Tables,
    task: UUID,
    exchange: UUID,
    scheduling_class: str,
    priority: int,
    now: int,
    runs: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
) -> Answer:
    """The lead's record of runs in which it takes no part."""
    name = str(scheduling_class)
    wanted = zip(runs, slots, attempts, starts, ends, strict=True)
    for run, slot, attempt, starts_at, ends_at in wanted:
        there = tables.runs.rows.get(run)
        if there is None:
            made = Run(
                run,
                task,
                exchange,
                slot,
                attempt,
                None,
                name,
                priority,
                starts_at,
                ends_at,
                "booked",
                now,
                now,
            )
            tables.runs.insert(made)
        elif there.state == "waiting":
            tables.runs.change(
                there,
                exchange_id=exchange,
                starts_at=starts_at,
                ends_at=ends_at,
                state="booked",
                reason=None,
                changed_at=now,
            )
    return ()


@TWINS.of()
def keep_waiting(
    tables: Tables,
    task: UUID,
    participant: int | None,
    scheduling_class: str,
    priority: int,
    duration: int,
    now: int,
    runs: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    states: Sequence[str],
    reasons: Sequence[str],
) -> Answer:
    """Slots that found no time, each with what stood in the way."""
    name = str(scheduling_class)
    wanted = zip(runs, slots, attempts, states, reasons, strict=True)
    for run, slot, attempt, state, reason in wanted:
        there = tables.runs.rows.get(run)
        if there is not None:
            _keep_waiting(tables, there, str(state), reason, now)
            continue
        made = Run(
            run,
            task,
            None,
            slot,
            attempt,
            participant,
            name,
            priority,
            slot,
            slot + duration,
            str(state),
            now,
            now,
            reason=reason,
        )
        tables.runs.insert(made)
    return ()


def _keep_waiting(tables: Tables, run: Run, state: str, reason: str, now: int) -> None:
    held = run.state in {"booked", "set-aside"} and tables.held(run.exchange_id)
    if run.state != "waiting" and not held:
        return
    over = state == "unplaced"
    tables.runs.change(
        run,
        state=state if run.state == "waiting" else run.state,
        reason=run.reason if over and run.reason else reason,
        changed_at=now,
        finished_at=now if over else None,
    )


@TWINS.of()
def keep_decision(
    tables: Tables,
    task: UUID,
    exchange: UUID | None,
    now: int,
    outcome: str,
    sentence: str,
    asked: int,
    placed: int,
    first_slot: int | None,
    last_slot: int | None,
    trace: dict[str, Any],
) -> Answer:
    """Store a planning attempt."""
    made = Decision(
        next(tables.decisions.ids),
        task,
        exchange,
        now,
        outcome,
        sentence,
        asked,
        placed,
        first_slot,
        last_slot,
        pack(trace),
    )
    tables.decisions.insert(made)
    return ()


@TWINS.of("task_id")
def finish_claim(
    tables: Tables,
    task: UUID,
    epoch: int,
    planned_to: int | None,
    next_run_at: int | None,
    plan_at: int | None,
    failures: int,
) -> Answer:
    """Give the task back with what is to be planned next."""
    row = tables.plannings.rows.get(task)
    if row is None or row.lease_epoch != epoch:
        return ()
    if plan_at is not None and tables.tasks.rows[task].state != "active":
        return ()
    tables.plannings.change(
        row,
        planned_to=planned_to,
        next_run_at=next_run_at,
        plan_at=plan_at,
        failures=failures,
        lease_owner=None,
        lease_until=None,
    )
    return [(task,)]


@TWINS.of()
def wake_if_waiting(
    tables: Tables, task: UUID, now: int, slots: Sequence[int], attempts: Sequence[int]
) -> Answer:
    """A slot that came to wait while the task was being planned is not forgotten."""
    row = tables.plannings.rows.get(task)
    if row is None:
        return ()
    asked = set(zip(slots, attempts, strict=True))
    found = [(run.slot, now) for run in tables.runs.waiting.of(task) if _new(run, asked)]
    for exchange in tables.exchanges.held.values():
        negotiation = tables.negotiations.rows.get(exchange.id)
        if negotiation is None or negotiation.state != "aborted":
            continue
        found += [
            (run.slot, now + _ABORTED_PAUSE)
            for run in tables.runs.by_exchange.of(exchange.id)
            if run.task_id == task and run.state in {"booked", "set-aside"} and _new(run, asked)
        ]
    if found:
        wake(tables, row, min(at for _, at in found), min(slot for slot, _ in found))
    return ()


def _new(run: Run, asked: set[tuple[int, int]]) -> bool:
    return (run.slot, run.attempt) not in asked


@TWINS.of()
def give_back(tables: Tables, task: UUID, epoch: int) -> Answer:
    """Let others have the task at once."""
    row = tables.plannings.rows.get(task)
    if row is not None and row.lease_epoch == epoch:
        tables.plannings.change(row, lease_owner=None, lease_until=None)
    return ()


@TWINS.of()
def abort_stale(tables: Tables, now: int) -> Answer:
    """Abort the negotiations of workers that are gone."""
    stale = [row for row in tables.negotiations.open.values() if row.expires_at <= now]
    for row in stale:
        tables.negotiations.change(row, state="aborted", decided_at=now)
    return ()


@TWINS.of()
def set_participants(
    tables: Tables, task: UUID, participants: list[dict[str, Any]], tool: str, duration: int
) -> Answer:
    """What the participants answered."""
    row = tables.tasks.rows.get(task)
    if row is not None:
        tables.tasks.change(
            row,
            participants=pack(participants),
            nodes=nodes_of(participants),
            tool=tool,
            duration=duration,
        )
    return ()


@TWINS.of("id", "state", "runs")
def digests(
    tables: Tables, participant: str, since: int, until: int, decided_before: int
) -> Answer:
    """Runs to come of the tasks led here, for comparison with one participant."""
    itself = tables.nodes.itself()
    if itself is None:
        return ()
    led = [
        task
        for task in tables.tasks.active_with.of(participant)
        if task.lead == itself.identity and _settled(tables, task.id, decided_before)
    ]
    led.sort(key=lambda task: task.id)
    return [
        (task.id, task.state, committed_runs(tables, task.id, since, until, _TO_COME))
        for task in led[:_DIGESTS_MAX]
    ]


def _settled(tables: Tables, task: UUID, decided_before: int) -> bool:
    return not any(
        row.state == "open" or (row.decided_at is not None and row.decided_at > decided_before)
        for row in tables.negotiations.by_task.of(task)
    )


@TWINS.of("pg_notify")
def notify_planned(tables: Tables, payload: str) -> Answer:
    """Tell whoever watches the task that a planning attempt was made."""
    tables.journal.tell(payload)
    return [("",)]
