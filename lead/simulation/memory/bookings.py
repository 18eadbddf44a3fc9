"""Twins of ``node/store/sql/bookings.sql``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import Exchange, Negotiation, Planning, Run, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "bookings")

_EXPIRED_MAX = 200


def least(*instants: int | None) -> int | None:
    """The earliest; null does not count (as in SQL)."""
    return min((instant for instant in instants if instant is not None), default=None)


def lane(scheduling_class: str) -> str | None:
    """The lane that a run of this class takes."""
    return scheduling_class if scheduling_class in {"exclusive", "normal"} else None


@TWINS.of("id", "task_id", "test", "scheduling_class", "priority", "starts_at", "ends_at", "fixed")
def blocking_runs(tables: Tables, start: int, end: int, fixed_before: int) -> Answer:
    """What occupies time in the span asked for."""
    tasks = tables.tasks.rows
    return [
        (
            run.id,
            run.task_id,
            tasks[run.task_id].test,
            run.scheduling_class,
            run.priority,
            run.starts_at,
            run.ends_at,
            run.state == "running" or run.starts_at < fixed_before,
        )
        for run in tables.runs.touching(start, end)
    ]


@TWINS.of("participant", "scheduling_class", "spec", "test", "tool", "duration", "led_here")
def accept_epoch(tables: Tables, task: UUID, lead: str, epoch: int) -> Answer:
    """Lock the task, if it is active, led by who asks, and the epoch not older than known."""
    row = tables.tasks.rows.get(task)
    if row is None or row.lead != lead or row.state != "active" or row.lease_epoch > epoch:
        return ()
    if row.lease_epoch != epoch:
        tables.tasks.change(row, lease_epoch=epoch)
    leader = tables.nodes.rows.get(lead)
    led_here = None if leader is None else leader.is_self
    return [
        (
            row.participant,
            row.scheduling_class,
            unpack(row.spec),
            row.test,
            row.tool,
            row.duration,
            led_here,
        )
    ]


@TWINS.of("state", "lead", "lease_epoch")
def task_standing(tables: Tables, task: UUID) -> Answer:
    """Why accept_epoch found nothing."""
    row = tables.tasks.rows.get(task)
    return () if row is None else [(row.state, row.lead, row.lease_epoch)]


@TWINS.of("state", "answer", "task_id")
def exchange_answer(tables: Tables, exchange: UUID) -> Answer:
    """An exchange."""
    row = tables.exchanges.rows.get(exchange)
    return () if row is None else [(row.state, unpack(row.answer), row.task_id)]


@TWINS.of("id")
def open_exchange(
    tables: Tables, exchange: UUID, task: UUID, epoch: int, now: int, expires_at: int
) -> Answer:
    """Write the exchange, unless it is there."""
    if exchange in tables.exchanges.rows:
        return ()
    tables.exchanges.insert(Exchange(exchange, task, epoch, now, expires_at))
    return [(exchange,)]


@TWINS.of()
def set_tool(tables: Tables, task: UUID, tool: str) -> Answer:
    """Keep the tool of a task."""
    row = tables.tasks.rows.get(task)
    if row is not None and row.tool != tool:
        tables.tasks.change(row, tool=tool)
    return ()


@TWINS.of("id")
def set_aside(
    tables: Tables,
    runs: Sequence[UUID],
    starts: Sequence[int],
    ends: Sequence[int],
    classes: Sequence[str],
    priority: int,
    earliest: int,
    now: int,
) -> Answer:
    """Runs of strictly lower priority give way; each remembers for whom."""
    victims: dict[UUID, tuple[Run, UUID]] = {}
    for wanted, start, end in zip(runs, starts, ends, strict=True):
        for run in tables.runs.touching(start, end):
            gives_way = run.state == "booked" and run.priority < priority
            if gives_way and run.starts_at >= earliest and run.scheduling_class in classes:
                victims.setdefault(run.id, (run, wanted))
    for run, wanted in victims.values():
        tables.runs.change(run, state="set-aside", displaced_by=wanted, changed_at=now)
    return [(run,) for run in victims]


@TWINS.of("id")
def book(
    tables: Tables,
    task: UUID,
    exchange: UUID,
    participant: int | None,
    scheduling_class: str,
    priority: int,
    now: int,
    runs: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
) -> Answer:
    """Book what is free, in start order."""
    booked: list[tuple[UUID]] = []
    name = str(scheduling_class)
    wanted = sorted(
        zip(starts, range(len(runs)), runs, slots, attempts, ends, strict=True),
        key=lambda run: run[:2],
    )
    for starts_at, _, run, slot, attempt, ends_at in wanted:
        made = Run(
            run,
            task,
            exchange,
            slot,
            attempt,
            participant,
            name,
            priority,
            starts_at,
            ends_at,
            "booked",
            now,
            now,
            lane(name),
        )
        if tables.runs.offer(made):
            booked.append((run,))
    return booked


@TWINS.of("int4")
def ports_in_use(tables: Tables) -> Answer:
    """Ports of exchanges that may still run on this node."""
    rows = tables.exchanges.rows
    ported = tables.exchanges.ported.items()
    ports = {port: None for exchange, port in ported if rows[exchange].state != "released"}
    return [(port,) for port in ports]


@TWINS.of()
def keep_answer(tables: Tables, exchange: UUID, answer: dict[str, Any]) -> Answer:
    """Keep what was answered to a hold."""
    row = tables.exchanges.rows.get(exchange)
    if row is not None:
        port = (answer.get("data") or {}).get("port")
        tables.exchanges.change(row, answer=pack(answer), port=port)
    return ()


@TWINS.of("id")
def restore_set_aside(tables: Tables, runs: Sequence[UUID], now: int) -> Answer:
    """Runs set aside for these get their time back where it is free and still to come."""
    back = [
        run
        for run in _set_aside_for(tables, runs)
        if run.starts_at > now and not tables.runs.in_the_way(run)
    ]
    for run in back:
        tables.runs.change(run, state="booked", displaced_by=None, changed_at=now)
    return [(run.id,) for run in back]


def _set_aside_for(tables: Tables, runs: Iterable[UUID]) -> list[Run]:
    return [row for run in dict.fromkeys(runs) for row in tables.runs.set_aside_for.of(run)]


_DISPLACED = ("id", "task_id", "reason", "displaced_by", "lead")


@TWINS.of(*_DISPLACED)
def lose_set_aside(tables: Tables, runs: Sequence[UUID], now: int) -> Answer:
    """The others cannot come back."""
    why = (
        "gave way to a run of higher priority that was then not booked, and lost its time meanwhile"
    )
    lost = _set_aside_for(tables, runs)
    for run in lost:
        tables.runs.change(run, state="displaced", changed_at=now, reason=why)
    return [_displaced(tables, run) for run in lost]


def _displaced(tables: Tables, run: Run) -> tuple[Any, ...]:
    lead = tables.tasks.rows[run.task_id].lead
    return run.id, run.task_id, run.reason, run.displaced_by, lead


@TWINS.of(*_DISPLACED)
def displace(tables: Tables, exchange: UUID, now: int) -> Answer:
    """What was set aside for the runs of this exchange is lost to them."""
    answered = []
    for winner in tables.runs.by_exchange.of(exchange):
        test = tables.tasks.rows[winner.task_id].test
        for run in tables.runs.set_aside_for.of(winner.id):
            why = (
                f"displaced by a run of higher priority ({test} of task {winner.task_id}, "
                f"priority {winner.priority} over {run.priority})"
            )
            tables.runs.change(run, state="displaced", changed_at=now, reason=why)
            answered.append(_displaced(tables, run))
    return answered


@TWINS.of("task_id", "led_here")
def commit_exchange(tables: Tables, exchange: UUID, data: dict[str, Any], now: int) -> Answer:
    """Held becomes committed."""
    row = tables.exchanges.held.get(exchange)
    if row is None:
        return ()
    tables.exchanges.change(row, state="committed", data=pack(data), decided_at=now)
    return [(row.task_id, tables.led_here(row.task_id))]


@TWINS.of("task_id", "led_here")
def release_exchange(tables: Tables, exchange: UUID, now: int) -> Answer:
    """Held becomes released."""
    row = tables.exchanges.held.get(exchange)
    if row is None:
        return ()
    tables.exchanges.change(row, state="released", decided_at=now)
    return [(row.task_id, tables.led_here(row.task_id))]


@TWINS.of()
def refuse_exchange(tables: Tables, exchange: UUID, task: UUID, now: int) -> Answer:
    """A release that overtook its hold."""
    if task in tables.tasks.rows and exchange not in tables.exchanges.rows:
        refused = Exchange(exchange, task, 0, now, now, state="released", decided_at=now)
        tables.exchanges.insert(refused)
    return ()


def _to_drop(tables: Tables, exchange: UUID, keep: Sequence[UUID]) -> list[Run]:
    kept = set(keep)
    return [
        run
        for run in tables.runs.by_exchange.of(exchange)
        if run.state in {"booked", "set-aside"} and run.id not in kept
    ]


@TWINS.of("id")
def drop_runs(tables: Tables, exchange: UUID, keep: Sequence[UUID]) -> Answer:
    """A participant forgets what was never committed."""
    dropped = _to_drop(tables, exchange, keep)
    for run in dropped:
        tables.delete_run(run)
    return [(run.id,) for run in dropped]


@TWINS.of("id")
def drop_led_runs(tables: Tables, exchange: UUID, keep: Sequence[UUID], now: int) -> Answer:
    """At the lead the slots wait to be asked for again."""
    dropped = _to_drop(tables, exchange, keep)
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
def wake_dropped(tables: Tables, runs: Sequence[UUID], plan_at: int) -> Answer:
    """The tasks of dropped runs are planned again."""
    slots: dict[UUID, list[int]] = defaultdict(list)
    for run in runs:
        row = tables.runs.rows.get(run)
        if row is not None:
            slots[row.task_id].append(row.slot)
    for task, of_task in slots.items():
        agenda = tables.plannings.rows.get(task)
        if agenda is not None and tables.tasks.rows[task].state == "active":
            wake(tables, agenda, plan_at, min(of_task))
    return ()


def wake(tables: Tables, row: Planning, plan_at: int, slot: int) -> None:
    """Plan a task then at the latest, from this slot on at the latest."""
    tables.plannings.change(
        row, plan_at=least(row.plan_at, plan_at), next_run_at=least(row.next_run_at, slot)
    )


@TWINS.of("id", "reason")
def take_waiting(tables: Tables, runs: Sequence[UUID]) -> Answer:
    """Slots that have waited are booked under the same id."""
    rows = (tables.runs.rows.get(run) for run in dict.fromkeys(runs))
    taken = [run for run in rows if run is not None and run.state == "waiting"]
    for run in taken:
        tables.delete_run(run)
    return [(run.id, run.reason) for run in taken]


@TWINS.of()
def give_back_waiting(
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
    reasons: Sequence[str],
) -> Answer:
    """What of them could not be booked waits on."""
    name = str(scheduling_class)
    for run, slot, attempt, reason in zip(runs, slots, attempts, reasons, strict=True):
        there = tables.runs.rows.get(run)
        if there is None:
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
                "waiting",
                now,
                now,
                reason=reason,
            )
            tables.runs.insert(made)
        elif there.state == "waiting":
            tables.runs.change(there, reason=reason, changed_at=now)
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


@TWINS.of("id", "task_id", "expires_at", "held_at", "lead")
def expired_holds(tables: Tables, now: int) -> Answer:
    """Holds whose life is over, oldest first."""
    expired = [row for row in tables.exchanges.held.values() if row.expires_at <= now]
    expired.sort(key=lambda row: (row.expires_at, row.number))
    tasks = tables.tasks.rows
    return [
        (row.id, row.task_id, row.expires_at, row.held_at, tasks[row.task_id].lead)
        for row in expired[:_EXPIRED_MAX]
    ]


@TWINS.of("pg_notify")
def notify(tables: Tables, payload: str) -> Answer:
    """Tell every process of this node, when the transaction commits."""
    tables.journal.tell(payload)
    return [("",)]


@TWINS.of("state", "commit_message")
def decision(tables: Tables, exchange: UUID, now: int) -> Answer:
    """The lead's word on an exchange; one that has run out while open is aborted."""
    row = tables.negotiations.rows.get(exchange)
    if row is None:
        return ()
    if row.state == "open" and row.expires_at <= now:
        tables.negotiations.change(row, state="aborted")
    return [(row.state, unpack(row.commit_message))]


@TWINS.of("exists")
def is_being_decided(tables: Tables, run: UUID) -> Answer:
    """Whether an open negotiation is about this run."""
    negotiations: Iterable[Negotiation] = tables.negotiations.open.values()
    return [(any(run in negotiation.run_ids for negotiation in negotiations),)]


@TWINS.of("lead")
def lead_of_exchange(tables: Tables, exchange: UUID, task: UUID | None) -> Answer:
    """Who may decide on an exchange."""
    row = tables.exchanges.rows.get(exchange)
    known = tables.tasks.rows.get(row.task_id if row is not None else task)  # type: ignore[arg-type]
    return () if known is None else [(known.lead,)]


@TWINS.of("id", "state", "runs")
def runs_to_come(
    tables: Tables, asked: Sequence[UUID], lead: str, since: int, until: int
) -> Answer:
    """What this node has booked for the tasks of one lead."""
    rows = (tables.tasks.rows.get(task) for task in dict.fromkeys(asked))
    return [
        (row.id, row.state, committed_runs(tables, row.id, since, until, _TO_COME))
        for row in rows
        if row is not None and row.lead == lead
    ]


_TO_COME = frozenset({"booked", "set-aside", "running"})


def committed_runs(
    tables: Tables, task: UUID, since: int, until: int, states: frozenset[str]
) -> list[UUID] | None:
    """The committed runs of a task in these states that start then, by id; None if none does."""
    found = [
        run.id
        for run in tables.runs.open.of(task)
        if since <= run.starts_at < until
        and run.state in states
        and tables.committed(run.exchange_id)
    ]
    return sorted(found) or None
