"""Twins of ``lead/store/sql/planning.sql``: negotiations, decisions, the lead's own records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.bookings import greatest, least
from lead.simulation.memory.planning import TWINS
from lead.simulation.memory.rows import (
    DecisionRow,
    ExchangeRow,
    NegotiationRow,
    RunRow,
    pack,
    unpack,
)
from lead.simulation.memory.statements import Answer
from lead.simulation.memory.tables import Tables


@TWINS.of("id")
def open_negotiations(
    tables: Tables,
    exchanges: Sequence[UUID],
    tasks: Sequence[UUID],
    epochs: Sequence[int],
    numbers: Sequence[int],
    runs: Sequence[UUID],
    now: int,
    expires_at: int,
) -> Answer:
    """Write the names before the first message goes out, where the lease was not lost."""
    named: dict[int, list[UUID]] = defaultdict(list)
    for number, run in zip(numbers, runs, strict=True):
        named[number].append(run)
    opened = []
    for number, exchange in enumerate(exchanges, 1):
        task, epoch = tasks[number - 1], epochs[number - 1]
        agenda = tables.plannings.rows.get(task)
        if agenda is not None and agenda.lease_epoch == epoch:
            made = NegotiationRow(exchange, task, epoch, named[number], now, expires_at)
            tables.negotiations.insert(made)
            opened.append((exchange,))
    return opened


@TWINS.of("id")
def decide_commit(
    tables: Tables, exchanges: Sequence[UUID], now: int, messages: Sequence[dict[str, Any]]
) -> Answer:
    """The commit point: unless the lease was lost, the time is over or the task has ended."""
    decided = []
    for exchange, message in zip(exchanges, messages, strict=True):
        row = tables.negotiations.open.get(exchange)
        if row is not None and row.expires_at > now and _still_ours(tables, row):
            tables.negotiations.change(
                row, state="committed", commit_message=pack(message), decided_at=now
            )
            decided.append((exchange,))
    return decided


def _still_ours(tables: Tables, row: NegotiationRow) -> bool:
    agenda = tables.plannings.rows.get(row.task_id)
    leased = agenda is not None and agenda.lease_epoch == row.lease_epoch
    return leased and tables.tasks.rows[row.task_id].state == "active"


@TWINS.of("commit_message")
def committed(tables: Tables, exchange: UUID) -> Answer:
    """What was decided on an exchange."""
    row = tables.negotiations.rows.get(exchange)
    return [(unpack(row.commit_message),)] if row is not None and row.state == "committed" else ()


@TWINS.of(
    "id",
    "task_id",
    "slot",
    "attempt",
    "starts_at",
    "ends_at",
    "priority",
    "revision",
    "lease_epoch",
    "tool",
    "life",
)
def held_again(tables: Tables, exchange: UUID, runs: Sequence[UUID]) -> Answer:
    """What the lead holds of an exchange, to be held by a participant that has dropped it."""
    row = tables.negotiations.rows.get(exchange)
    if row is None:
        return ()
    task = tables.tasks.rows[row.task_id]
    held = [run for run in tables.runs.by_exchange.of(exchange) if run.id in runs]
    held.sort(key=lambda run: (run.starts_at, run.number))
    return [
        (
            run.id,
            run.task_id,
            run.slot,
            run.attempt,
            run.starts_at,
            run.ends_at,
            run.priority,
            task.revision,
            row.lease_epoch,
            task.tool or "",
            row.expires_at - row.opened_at,
        )
        for run in held
    ]


@TWINS.of("id")
def lock_tasks(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Whoever changes them waits."""
    return [(task,) for task in sorted(set(tasks)) if task in tables.tasks.rows]


@TWINS.of("id")
def ended(tables: Tables, runs: Sequence[UUID], over: Sequence[str]) -> Answer:
    """Of these runs, those that are over at the lead."""
    rows = (tables.runs.rows.get(run) for run in dict.fromkeys(runs))
    return [(run.id,) for run in rows if run is not None and run.state in over]


@TWINS.of()
def decide_abort(tables: Tables, exchanges: Sequence[UUID], now: int) -> Answer:
    """These exchanges are aborted, unless they are decided."""
    for exchange in exchanges:
        row = tables.negotiations.open.get(exchange)
        if row is not None:
            tables.negotiations.change(row, state="aborted", decided_at=now)
    return ()


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
def abort_stale(tables: Tables, now: int) -> Answer:
    """Abort the negotiations of workers that are gone."""
    stale = [row for row in tables.negotiations.open.values() if row.expires_at <= now]
    for row in stale:
        tables.negotiations.change(row, state="aborted", decided_at=now)
    return ()


@TWINS.of()
def keep_led_exchange(
    tables: Tables, exchange: UUID, task: UUID, epoch: int, data: dict[str, Any], now: int
) -> Answer:
    """The lead's record of an exchange in which it takes no part."""
    if exchange not in tables.exchanges.rows:
        kept = ExchangeRow(
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
            made = RunRow(
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
        made = RunRow(
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


def _keep_waiting(tables: Tables, run: RunRow, state: str, reason: str, now: int) -> None:
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
def keep_decisions(
    tables: Tables,
    now: int,
    tasks: Sequence[UUID],
    exchanges: Sequence[UUID | None],
    outcomes: Sequence[str],
    sentences: Sequence[str],
    asked: Sequence[int],
    placed: Sequence[int],
    first_slots: Sequence[int | None],
    last_slots: Sequence[int | None],
    traces: Sequence[dict[str, Any]],
) -> Answer:
    """Store planning attempts; the same outcome again, for the same reason, is counted."""
    made = zip(
        tasks,
        exchanges,
        outcomes,
        sentences,
        asked,
        placed,
        first_slots,
        last_slots,
        map(pack, traces),
        strict=True,
    )
    for task, exchange, *values in made:
        latest = DecisionRow(0, task, exchange, now, now, *values)
        newest = tables.decisions.by_task.newest(task)
        if newest is not None and _says_the_same(newest, latest):
            _count(tables, newest, latest)
        else:
            latest.id = next(tables.decisions.ids)
            tables.decisions.insert(latest)
    return ()


def _says_the_same(one: DecisionRow, other: DecisionRow) -> bool:
    alike = (one.outcome, one.sentence) == (other.outcome, other.sentence)
    return alike and one.placed == other.placed == 0


def _count(tables: Tables, newest: DecisionRow, latest: DecisionRow) -> None:
    tables.decisions.change(
        newest,
        times=newest.times + 1,
        decided_at=latest.decided_at,
        exchange_id=latest.exchange_id,
        asked=latest.asked,
        trace=latest.trace,
        first_slot=least(newest.first_slot, latest.first_slot),
        last_slot=greatest(newest.last_slot, latest.last_slot),
    )
