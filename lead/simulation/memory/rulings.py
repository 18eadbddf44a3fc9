"""Twins of ``node/store/sql/bookings.sql``: commit, release and expiry of holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.bookings import TWINS, least
from lead.simulation.memory.rows import (
    ExchangeRow,
    NegotiationRow,
    PlanningRow,
    RunRow,
    pack,
    unpack,
)
from lead.simulation.memory.statements import Answer
from lead.simulation.memory.tables import Tables


@TWINS.of("id")
def restore_set_aside(tables: Tables, runs: Sequence[UUID], now: int) -> Answer:
    """Book the runs again that were set aside for these, where their future time is free."""
    restored = [
        run
        for run in _set_aside_for(tables, runs)
        if run.starts_at > now and not tables.runs.in_the_way(run)
    ]
    for run in restored:
        tables.runs.change(run, state="booked", displaced_by=None, changed_at=now)
    return [(run.id,) for run in restored]


def _set_aside_for(tables: Tables, runs: Iterable[UUID]) -> list[RunRow]:
    return [row for run in dict.fromkeys(runs) for row in tables.runs.set_aside_for.of(run)]


_DISPLACED_BY = "displaced by a run of higher priority"
_PUT_FIRST = "displaced by a run that its lead puts first, whatever the priorities"
_RANKED = "displaced by a run that the owner of the host puts first"
_DISPLACED = ("id", "task_id", "reason", "displaced_by", "lead")


@TWINS.of(*_DISPLACED)
def lose_set_aside(tables: Tables, runs: Sequence[UUID], now: int) -> Answer:
    """Displace the runs that are still set aside for these."""
    why = (
        "gave way to a run of higher priority that was then not booked, and lost its time meanwhile"
    )
    lost = _set_aside_for(tables, runs)
    for run in lost:
        tables.runs.change(run, state="displaced", changed_at=now, reason=why)
    leads = [tables.tasks.rows[run.task_id].lead for run in lost]
    return [
        (run.id, run.task_id, run.reason, None, lead) for run, lead in zip(lost, leads, strict=True)
    ]


@TWINS.of(*_DISPLACED)
def displace(tables: Tables, exchanges: Sequence[UUID], now: int) -> Answer:
    """Displace the runs that were set aside for the runs of these exchanges."""
    answer = []
    for winner in _of_exchanges(tables, exchanges):
        winning = tables.tasks.rows[winner.task_id]
        for run in tables.runs.set_aside_for.of(winner.id):
            requester = tables.tasks.rows[run.task_id].requester
            whose = f"task {winner.task_id}"
            if None not in {requester, winning.requester} and requester != winning.requester:
                whose = "a task of another user"
            why = (
                f"{_DISPLACED_BY} ({winning.test} of {whose}, "
                f"priority {winner.priority} over {run.priority})"
            )
            if winner.rank > run.rank:
                why = f"{_RANKED} ({winning.test} of {whose})"
            elif winner.priority > winning.priority:
                why = f"{_PUT_FIRST} ({winning.test} of {whose})"
            tables.runs.change(run, state="displaced", changed_at=now, reason=why)
            lead = tables.tasks.rows[run.task_id].lead
            itself = tables.nodes.itself
            known = lead in (winning.lead, itself and itself.identity)
            by_rank = winner.rank > run.rank
            other = _RANKED if by_rank else f"{_DISPLACED_BY} that another node leads"
            sentence = why if known else other
            answer.append((run.id, run.task_id, sentence, winner.id if known else None, lead))
    return answer


def _of_exchanges(tables: Tables, exchanges: Sequence[UUID]) -> list[RunRow]:
    unique = dict.fromkeys(exchanges)
    return [run for exchange in unique for run in tables.runs.by_exchange.of(exchange)]


@TWINS.of("id", "task_id", "led_here")
def decide_exchanges(
    tables: Tables,
    exchanges: Sequence[UUID],
    commits: Sequence[bool],
    documents: Sequence[dict[str, Any]],
    senders: Sequence[str | None],
    now: int,
) -> Answer:
    """Commit or release held exchanges, if the sender leads their tasks."""
    decided = []
    for exchange, commit, data, sender in zip(exchanges, commits, documents, senders, strict=True):
        row = tables.exchanges.held.get(exchange)
        if row is None or sender not in {None, tables.tasks.rows[row.task_id].lead}:
            continue
        if commit:
            tables.exchanges.change(row, state="committed", data=pack(data), decided_at=now)
        else:
            tables.exchanges.change(row, state="released", decided_at=now)
        decided.append((row.id, row.task_id, tables.led_here(row.task_id)))
    return decided


@TWINS.of()
def refuse_exchanges(
    tables: Tables,
    exchanges: Sequence[UUID],
    tasks: Sequence[UUID | None],
    senders: Sequence[str | None],
    now: int,
) -> Answer:
    """Insert a released exchange, so that a hold that arrives after its release is refused."""
    for exchange, task, sender in zip(exchanges, tasks, senders, strict=True):
        row = None if task is None else tables.tasks.rows.get(task)
        if row is None or sender not in {None, row.lead}:
            continue
        if exchange not in tables.exchanges.rows:
            refused = ExchangeRow(exchange, row.id, 0, now, now, state="released", decided_at=now)
            tables.exchanges.insert(refused)
    return ()


Kept = Iterable[tuple[UUID, UUID]]


def _to_drop(tables: Tables, exchanges: Sequence[UUID], keep: Kept) -> list[RunRow]:
    keep_set = set(keep)
    return [
        run
        for run in _of_exchanges(tables, exchanges)
        if run.state in {"booked", "set-aside"} and (run.exchange_id, run.id) not in keep_set
    ]


@TWINS.of("id")
def drop_runs(
    tables: Tables, exchanges: Sequence[UUID], keepers: Sequence[UUID], keep: Sequence[UUID]
) -> Answer:
    """Delete, at a participant, the runs that were never committed."""
    dropped = _to_drop(tables, exchanges, zip(keepers, keep, strict=True))
    for run in dropped:
        tables.delete_run(run)
    return [(run.id,) for run in dropped]


@TWINS.of("id")
def drop_led_runs(
    tables: Tables,
    exchanges: Sequence[UUID],
    keepers: Sequence[UUID],
    keep: Sequence[UUID],
    now: int,
) -> Answer:
    """Return, at the lead, the slots of uncommitted runs to the waiting ones."""
    dropped = _to_drop(tables, exchanges, zip(keepers, keep, strict=True))
    for run in dropped:
        tables.runs.change(
            run,
            state="waiting",
            exchange_id=None,
            lane=None,
            displaced_by=None,
            changed_at=now,
            starts_at=run.slot,
            ends_at=run.slot + run.ends_at - run.starts_at,
            reason="was not booked by all participants; is being tried again"
            if run.reason is None
            else run.reason,
        )
    return [(run.id,) for run in dropped]


@TWINS.of()
def wake_dropped(tables: Tables, runs: Sequence[UUID], plan_at: int, now: int) -> Answer:
    """Schedule the tasks of dropped runs again; at once if a worker is planning them."""
    slots: dict[UUID, list[int]] = defaultdict(list)
    for run in runs:
        row = tables.runs.rows.get(run)
        if row is not None:
            slots[row.task_id].append(row.slot)
    for task, of_task in slots.items():
        agenda = tables.plannings.rows.get(task)
        if agenda is not None and tables.tasks.rows[task].state == "active":
            tables.plannings.change(
                agenda,
                plan_at=_after_a_drop(agenda, plan_at, now),
                next_run_at=least(agenda.next_run_at, min(of_task)),
            )
    return ()


def _after_a_drop(agenda: PlanningRow, plan_at: int, now: int) -> int | None:
    if agenda.lease_until is not None:
        return least(agenda.plan_at, now, agenda.lease_until - 1)
    if agenda.failures == 0:
        return least(agenda.plan_at, plan_at)
    return plan_at if agenda.plan_at is None else agenda.plan_at


def wake(tables: Tables, row: PlanningRow, plan_at: int, slot: int) -> None:
    """Plan a task no later than ``plan_at``, from no later slot than ``slot``.

    An instant before its lease ends tells a worker that is planning it.
    """
    before_end = None if row.lease_until is None else row.lease_until - 1
    tables.plannings.change(
        row,
        plan_at=least(row.plan_at, plan_at, before_end),
        next_run_at=least(row.next_run_at, slot),
    )


@TWINS.of("id", "reason")
def take_waiting(tables: Tables, runs: Sequence[UUID]) -> Answer:
    """Delete waiting runs whose slots are booked under the same ids."""
    rows = (tables.runs.rows.get(run) for run in dict.fromkeys(runs))
    removed = [run for run in rows if run is not None and run.state == "waiting"]
    for run in removed:
        tables.delete_run(run)
    return [(run.id, run.reason) for run in removed]


@TWINS.of()
def give_back_waiting(
    tables: Tables,
    now: int,
    runs: Sequence[UUID],
    tasks: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    reasons: Sequence[str],
) -> Answer:
    """Let the slots that could not be booked wait again."""
    wanted = zip(runs, tasks, slots, attempts, reasons, strict=True)
    for run, task_id, slot, attempt, reason in wanted:
        existing = tables.runs.rows.get(run)
        task = tables.tasks.rows.get(task_id)
        if existing is not None:
            if existing.state == "waiting" and task is not None:
                tables.runs.change(existing, reason=reason, changed_at=now)
        elif task is not None:
            row = RunRow(
                run,
                task_id,
                None,
                slot,
                attempt,
                task.participant,
                task.scheduling_class,
                task.priority,
                slot,
                slot + task.duration,
                "waiting",
                now,
                now,
                reason=reason,
            )
            tables.runs.insert(row)
    return ()


@TWINS.of("task_id")
def wake_waiting(tables: Tables, task: UUID, now: int) -> Answer:
    """Plan the waiting slots of a task now."""
    row = tables.plannings.rows.get(task)
    waiting = tables.runs.waiting.of(task)
    if row is None or not waiting:
        return ()
    wake(tables, row, now, min(run.slot for run in waiting))
    return [(task,)]


@TWINS.of("id", "task_id", "lease_epoch", "expires_at", "held_at", "lead")
def expired_holds(tables: Tables, now: int, silent: Sequence[str], limit: int) -> Answer:
    """Return expired holds, oldest first, except those of the ``silent`` leads."""
    tasks = tables.tasks.rows
    expired = [
        row
        for row in tables.exchanges.held.values()
        if row.expires_at <= now and tasks[row.task_id].lead not in silent
    ]
    expired.sort(key=lambda row: (row.expires_at, row.number))
    return [
        (
            *(row.id, row.task_id, row.lease_epoch),
            *(row.expires_at, row.held_at, tasks[row.task_id].lead),
        )
        for row in expired[:limit]
    ]


@TWINS.of("pg_notify")
def notify(tables: Tables, payloads: Sequence[str]) -> Answer:
    """Notify every process of this node when the transaction commits."""
    for payload in payloads:
        tables.journal.tell(payload)
    return [(None,)] * len(payloads)


@TWINS.of("state", "commit_message", "concerned")
def decision(tables: Tables, exchange: UUID, now: int, sender: str | None) -> Answer:
    """Return the lead's decision on an exchange; an expired open one is aborted."""
    row = tables.negotiations.rows.get(exchange)
    if row is None:
        return ()
    participants = unpack(tables.tasks.rows[row.task_id].participants)
    concerned = sender is None or any(each["node"] == sender for each in participants)
    if row.state == "open" and row.expires_at <= now and concerned:
        tables.negotiations.change(row, state="aborted")
    return [(row.state, unpack(row.commit_message), concerned)]


@TWINS.of("exists")
def is_being_decided(tables: Tables, run: UUID) -> Answer:
    """Return whether an open negotiation contains this run."""
    negotiations: Iterable[NegotiationRow] = tables.negotiations.open.values()
    return [(any(run in negotiation.run_ids for negotiation in negotiations),)]


@TWINS.of("id", "state", "revision", "runs", "starts")
def runs_to_come(
    tables: Tables, asked: Sequence[UUID], lead: str, since: int, until: int
) -> Answer:
    """Return this node's future runs of the tasks of one lead."""
    rows = (tables.tasks.rows.get(task) for task in dict.fromkeys(asked))
    return [
        (row.id, row.state, row.revision, *committed_runs(tables, row.id, since, until, _TO_COME))
        for row in rows
        if row is not None and row.lead == lead
    ]


_TO_COME = frozenset({"booked", "set-aside", "running"})


def committed_runs(
    tables: Tables, task: UUID, since: int, until: int, states: frozenset[str]
) -> tuple[list[UUID] | None, list[int] | None]:
    """Return ids and starts of a task's committed runs in these states and this time, or None."""
    starts = {
        run.id: run.starts_at
        for run in tables.runs.open.of(task)
        if since <= run.starts_at < until
        and run.state in states
        and tables.committed(run.exchange_id)
    }
    ids = sorted(starts)
    return ids or None, [starts[run] for run in ids] or None
