"""Twins of ``lead/store/sql/planning.sql``: negotiations, decisions, and records of the lead."""

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
    """Insert negotiations before the first message is sent, unless the lease was lost."""
    runs_by_number: dict[int, list[UUID]] = defaultdict(list)
    for number, run in zip(numbers, runs, strict=True):
        runs_by_number[number].append(run)
    opened = []
    for number, exchange in enumerate(exchanges, 1):
        task, epoch = tasks[number - 1], epochs[number - 1]
        agenda = tables.plannings.rows.get(task)
        if agenda is not None and agenda.lease_epoch == epoch:
            row = NegotiationRow(exchange, task, epoch, runs_by_number[number], now, expires_at)
            tables.negotiations.insert(row)
            opened.append((exchange,))
    return opened


@TWINS.of("id")
def decide_commit(
    tables: Tables, exchanges: Sequence[UUID], now: int, messages: Sequence[dict[str, Any]]
) -> Answer:
    """Commit exchanges, unless the lease was lost, the exchange has expired or the task has ended.

    This is the commit point.
    """
    decided = []
    for exchange, message in zip(exchanges, messages, strict=True):
        row = tables.negotiations.open.get(exchange)
        if row is not None and row.expires_at > now and _is_ours(tables, row):
            tables.negotiations.change(
                row, state="committed", commit_message=pack(message), decided_at=now
            )
            decided.append((exchange,))
    return decided


def _is_ours(tables: Tables, row: NegotiationRow) -> bool:
    agenda = tables.plannings.rows.get(row.task_id)
    leased = agenda is not None and agenda.lease_epoch == row.lease_epoch
    return leased and tables.tasks.rows[row.task_id].state == "active"


@TWINS.of("commit_message")
def committed(tables: Tables, exchange: UUID) -> Answer:
    """Return the commit message of a committed exchange."""
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
    """Return the lead's runs of an exchange that a participant has dropped and must hold again."""
    row = tables.negotiations.rows.get(exchange)
    if row is None:
        return ()
    task = tables.tasks.rows[row.task_id]
    run_rows = [run for run in tables.runs.by_exchange.of(exchange) if run.id in runs]
    run_rows.sort(key=lambda run: (run.starts_at, run.number))
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
        for run in run_rows
    ]


@TWINS.of("id")
def lock_tasks(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Lock tasks against concurrent changes."""
    return [(task,) for task in sorted(set(tasks)) if task in tables.tasks.rows]


@TWINS.of("id")
def ended(tables: Tables, runs: Sequence[UUID], over: Sequence[str]) -> Answer:
    """Return those of these runs that have ended at the lead."""
    rows = (tables.runs.rows.get(run) for run in dict.fromkeys(runs))
    return [(run.id,) for run in rows if run is not None and run.state in over]


@TWINS.of()
def decide_abort(tables: Tables, exchanges: Sequence[UUID], now: int) -> Answer:
    """Abort the exchanges that are still open."""
    for exchange in exchanges:
        row = tables.negotiations.open.get(exchange)
        if row is not None:
            tables.negotiations.change(row, state="aborted", decided_at=now)
    return ()


@TWINS.of("id", "lease_epoch")
def abort_broken_off(tables: Tables, task: UUID, epoch: int, now: int) -> Answer:
    """Abort the open negotiations that nobody can commit any more."""
    broken_off = [
        row
        for row in tables.negotiations.by_task.of(task)
        if row.state == "open" and row.lease_epoch <= epoch
    ]
    for row in broken_off:
        tables.negotiations.change(row, state="aborted", decided_at=now)
    return [(row.id, row.lease_epoch) for row in broken_off]


@TWINS.of()
def abort_stale(tables: Tables, now: int) -> Answer:
    """Abort the expired negotiations of workers that are gone."""
    stale = [row for row in tables.negotiations.open.values() if row.expires_at <= now]
    for row in stale:
        tables.negotiations.change(row, state="aborted", decided_at=now)
    return ()


@TWINS.of()
def keep_led_exchange(
    tables: Tables, exchange: UUID, task: UUID, epoch: int, data: dict[str, Any], now: int
) -> Answer:
    """Insert the lead's record of an exchange in which it does not take part."""
    if exchange not in tables.exchanges.rows:
        row = ExchangeRow(
            exchange, task, epoch, now, now, state="committed", data=pack(data), decided_at=now
        )
        tables.exchanges.insert(row)
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
    """Insert the lead's record of runs in which it does not take part."""
    name = str(scheduling_class)
    wanted = zip(runs, slots, attempts, starts, ends, strict=True)
    for run, slot, attempt, starts_at, ends_at in wanted:
        existing = tables.runs.rows.get(run)
        if existing is None:
            row = RunRow(
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
            tables.runs.insert(row)
        elif existing.state == "waiting":
            tables.runs.change(
                existing,
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
    """Store slots that found no time, each with its reason."""
    name = str(scheduling_class)
    wanted = zip(runs, slots, attempts, states, reasons, strict=True)
    for run, slot, attempt, state, reason in wanted:
        existing = tables.runs.rows.get(run)
        if existing is not None:
            _keep_waiting(tables, existing, str(state), reason, now)
            continue
        row = RunRow(
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
        tables.runs.insert(row)
    return ()


def _keep_waiting(tables: Tables, run: RunRow, state: str, reason: str, now: int) -> None:
    is_held = run.state in {"booked", "set-aside"} and tables.held(run.exchange_id)
    if run.state != "waiting" and not is_held:
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
    """Store planning attempts; count repetitions of the latest outcome with the same reason."""
    attempts = zip(
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
    for task, exchange, *values in attempts:
        latest = DecisionRow(0, task, exchange, now, now, *values)
        newest = tables.decisions.by_task.newest(task)
        if newest is not None and _is_repetition(newest, latest):
            _count(tables, newest, latest)
        else:
            latest.id = next(tables.decisions.ids)
            tables.decisions.insert(latest)
    return ()


def _is_repetition(one: DecisionRow, other: DecisionRow) -> bool:
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
