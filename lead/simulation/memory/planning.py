"""Twins of ``lead/store/sql/planning.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.bookings import committed_runs, greatest, least
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

TWINS = Twins("lead.store", "planning")

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
    tables: Tables,
    now: int,
    before: int,
    limit: int,
    owner: str,
    lease_until: int,
    shut: Sequence[str],
    only: str | None,
) -> Answer:
    """The tasks due whose next run comes soonest, with a lease on each."""
    due = [
        (row.next_run_at, row.added_at, row.number, row)
        for row in tables.plannings.due.before(now + 1)
        if row.next_run_at is not None
        and row.next_run_at < before
        and (row.lease_until is None or row.lease_until <= now)
        and (row.waits_for not in shut or _waited(row, now))
        and only in {None, row.waits_for}
    ]
    claimed = [row for *_, row in sorted(due)[:limit]]
    for row in claimed:
        tables.plannings.change(
            row,
            lease_owner=owner,
            lease_until=lease_until,
            plan_at=lease_until,
            lease_epoch=row.lease_epoch + 1,
        )
    return [_claimed(row, tables.tasks.rows[row.task_id]) for row in claimed]


def _waited(row: Planning, now: int) -> bool:
    return row.waits_until is not None and row.waits_until <= now


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
def next_due(tables: Tables, before: int, shut: Sequence[str]) -> Answer:
    """When the next task is due to be planned."""
    soonest: int | None = None
    for plan_at, row in tables.plannings.due:
        if soonest is not None and plan_at >= soonest:
            break
        if row.waits_for not in shut and _runs_before(row, before):
            soonest = least(soonest, greatest(plan_at, row.lease_until))
    for node in dict.fromkeys(shut):
        for row in tables.plannings.waiting_for.of(node):
            if row.plan_at is not None and _runs_before(row, before):
                soonest = least(soonest, greatest(row.waits_until, row.lease_until))
    return [(soonest,)]


@TWINS.of("min")
def next_to_come(tables: Tables, since: int) -> Answer:
    """The first slot beyond those that are near enough to be planned."""
    slots = [row.next_run_at for _, row in tables.plannings.due]
    return [(min((at for at in slots if at is not None and at >= since), default=None),)]


def _runs_before(row: Planning, before: int) -> bool:
    return row.next_run_at is not None and row.next_run_at < before


@TWINS.of("slot", "attempt", "reason")
def waiting(tables: Tables, task: UUID, limit: int) -> Answer:
    """Slots that wait for time, those that were not asked for longest first."""
    rows = tables.runs.waiting.of(task)
    rows.sort(key=lambda run: (run.changed_at, run.slot, run.number))
    return [(run.slot, run.attempt, run.reason) for run in rows[:limit]]


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
    """Store a planning attempt; the same outcome again, for the same reason, is counted."""
    newest = tables.decisions.by_task.newest(task)
    again = newest is not None and (newest.outcome, newest.sentence) == (outcome, sentence)
    if newest is not None and again and newest.placed == placed == 0:
        tables.decisions.change(
            newest,
            times=newest.times + 1,
            decided_at=now,
            exchange_id=exchange,
            asked=asked,
            trace=pack(trace),
            first_slot=least(newest.first_slot, first_slot),
            last_slot=greatest(newest.last_slot, last_slot),
        )
        return ()
    made = Decision(
        next(tables.decisions.ids),
        task,
        exchange,
        now,
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


def _leased(tables: Tables, task: UUID, epoch: int) -> Planning | None:
    row = tables.plannings.rows.get(task)
    if row is None or row.lease_epoch != epoch or row.lease_until is None:
        return None
    return row


@TWINS.of("task_id")
def finish_claim(
    tables: Tables,
    task: UUID,
    epoch: int,
    planned_to: int | None,
    next_run_at: int | None,
    plan_at: int | None,
    failures: int,
    planned_to_before: int | None,
    waits_for: str | None,
    waits_until: int | None,
) -> Answer:
    """Give the task back with what is to be planned next; what changed since the claim stays."""
    row = _leased(tables, task, epoch)
    if row is None or (plan_at is not None and tables.tasks.rows[task].state != "active"):
        return ()
    if row.plan_at is not None and row.lease_until is not None and row.plan_at < row.lease_until:
        plan_at, next_run_at = least(row.plan_at, plan_at), least(row.next_run_at, next_run_at)
    tables.plannings.change(
        row,
        planned_to=planned_to if row.planned_to == planned_to_before else row.planned_to,
        next_run_at=next_run_at,
        plan_at=plan_at,
        failures=failures,
        waits_for=waits_for,
        waits_until=waits_until,
        lease_owner=None,
        lease_until=None,
    )
    return [(task,)]


@TWINS.of("task_id")
def break_off(tables: Tables, task: UUID, epoch: int, plan_at: int) -> Answer:
    """What came of it is not known: it is planned again."""
    row = _leased(tables, task, epoch)
    if row is None:
        return ()
    tables.plannings.change(
        row,
        plan_at=least(row.plan_at, plan_at),
        failures=row.failures + 1,
        lease_owner=None,
        lease_until=None,
    )
    return [(task,)]


@TWINS.of("id")
def abort_broken_off(tables: Tables, task: UUID, epoch: int, now: int) -> Answer:
    """Whoever asks for the decision on what was being negotiated hears that there is none."""
    found = [
        row
        for row in tables.negotiations.by_task.of(task)
        if row.state == "open" and row.lease_epoch == epoch
    ]
    for row in found:
        tables.negotiations.change(row, state="aborted", decided_at=now)
    return [(row.id,) for row in found]


@TWINS.of()
def turn_away(tables: Tables, task: UUID, epoch: int, plan_at: int, node: str) -> Answer:
    """Its turn comes when the participant has room for it."""
    row = _leased(tables, task, epoch)
    if row is not None:
        tables.plannings.change(
            row,
            plan_at=least(row.plan_at, plan_at),
            waits_for=node,
            waits_until=None,
            lease_owner=None,
            lease_until=None,
        )
    return ()


@TWINS.of()
def put_off(tables: Tables, node: str, plan_at: int) -> Answer:
    """Those that wait for a participant are planned when it is asked again."""
    for row in tables.plannings.waiting_for.of(node):
        if row.plan_at is None or row.lease_until is not None:
            continue
        if row.waits_until is None:
            tables.plannings.change(row, waits_for=None)
        else:
            tables.plannings.change(row, plan_at=min(plan_at, row.waits_until))
    return ()


@TWINS.of()
def wake_all(tables: Tables, node: str, now: int) -> Answer:
    """It has answered: those that wait for it are planned now."""
    for row in tables.plannings.waiting_for.of(node):
        if row.plan_at is not None:
            tables.plannings.change(
                row, plan_at=min(row.plan_at, now), waits_for=None, waits_until=None
            )
    return ()


@TWINS.of()
def give_back(tables: Tables, task: UUID, epoch: int, now: int) -> Answer:
    """Let others have the task at once."""
    row = tables.plannings.rows.get(task)
    if row is not None and row.lease_epoch == epoch:
        tables.plannings.change(
            row, plan_at=least(row.plan_at, now), lease_owner=None, lease_until=None
        )
    return ()


@TWINS.of()
def abort_stale(tables: Tables, now: int) -> Answer:
    """Abort the negotiations of workers that are gone."""
    stale = [row for row in tables.negotiations.open.values() if row.expires_at <= now]
    for row in stale:
        tables.negotiations.change(row, state="aborted", decided_at=now)
    return ()


@TWINS.of("id")
def set_participants(
    tables: Tables,
    task: UUID,
    participants: list[dict[str, Any]],
    tool: str,
    duration: int,
    epoch: int,
) -> Answer:
    """What the participants answered, unless the lease was lost."""
    row, agenda = tables.tasks.rows.get(task), tables.plannings.rows.get(task)
    if row is None or agenda is None or agenda.lease_epoch != epoch:
        return ()
    tables.tasks.change(
        row,
        participants=pack(participants),
        nodes=nodes_of(participants),
        tool=tool,
        duration=duration,
    )
    return [(task,)]


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
    return [(None,)]
