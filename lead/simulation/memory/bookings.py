"""Twins of ``node/store/sql/bookings.sql``."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import Exchange, Negotiation, Planning, Run, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from node.model.spans import normalise
from node.store.database import POSTGRES_EPOCH

TWINS = Twins("node.store", "bookings")


def least(*instants: int | None) -> int | None:
    """The earliest; null does not count (as in SQL)."""
    return min((instant for instant in instants if instant is not None), default=None)


def greatest(*instants: int | None) -> int | None:
    """The latest; null does not count (as in SQL)."""
    return max((instant for instant in instants if instant is not None), default=None)


def lane(scheduling_class: str) -> str | None:
    """The lane that a run of this class takes."""
    return scheduling_class if scheduling_class in {"exclusive", "normal"} else None


@TWINS.of("scheduling_class", "priority", "fixed", "spans")
def occupied(
    tables: Tables, starts: Sequence[int], ends: Sequence[int], fixed_before: int
) -> Answer:
    """What occupies time in these windows, each span once, by class, priority and fixedness."""
    spans: dict[tuple[str, int, bool], dict[tuple[int, int], None]] = {}
    for run in _touching(tables, starts, ends):
        fixed = run.state == "running" or run.starts_at < fixed_before
        of_kind = spans.setdefault((run.scheduling_class, run.priority, fixed), {})
        of_kind[run.starts_at, run.ends_at] = None
    return [(*kind, _sent(of_kind)) for kind, of_kind in spans.items()]


def _sent(spans: Iterable[tuple[int, int]]) -> bytes:
    """As Postgres sends instants: eight bytes each, microseconds since its own epoch."""
    instants = [instant - POSTGRES_EPOCH for span in spans for instant in span]
    return struct.pack(f">{len(instants)}q", *instants)


def _touching(tables: Tables, starts: Sequence[int], ends: Sequence[int]) -> Iterable[Run]:
    found = {
        run.number: run
        for start, end in normalise(zip(starts, ends, strict=True))
        for run in tables.runs.touching(start, end)
    }
    return found.values()


@TWINS.of("id", "task_id", "test", "scheduling_class", "priority", "starts_at", "ends_at", "fixed")
def blocking_runs(
    tables: Tables, starts: Sequence[int], ends: Sequence[int], fixed_before: int
) -> Answer:
    """What occupies time in these windows, run by run."""
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
        for run in _touching(tables, starts, ends)
    ]


@TWINS.of("id", "participant", "scheduling_class", "spec", "test", "duration", "led_here")
def accept_epochs(
    tables: Tables,
    tasks: Sequence[UUID],
    leads: Sequence[str],
    epochs: Sequence[int],
    tools: Sequence[str],
) -> Answer:
    """Lock the tasks that are active, led by who asks, and whose epoch is not older than known."""
    accepted = []
    for task, lead, epoch, tool in zip(tasks, leads, epochs, tools, strict=True):
        row = tables.tasks.rows.get(task)
        if row is None or row.lead != lead or row.state != "active" or row.lease_epoch > epoch:
            continue
        tables.tasks.change(row, lease_epoch=epoch, tool=tool)
        leader = tables.nodes.rows.get(lead)
        accepted.append(
            (
                row.id,
                row.participant,
                row.scheduling_class,
                unpack(row.spec),
                row.test,
                row.duration,
                None if leader is None else leader.is_self,
            )
        )
    return accepted


@TWINS.of("id", "state", "lead", "lease_epoch")
def task_standings(tables: Tables, asked: Sequence[UUID]) -> Answer:
    """Why accept_epochs did not find one."""
    rows = (tables.tasks.rows.get(task) for task in dict.fromkeys(asked))
    return [(row.id, row.state, row.lead, row.lease_epoch) for row in rows if row is not None]


@TWINS.of("id", "state", "answer", "task_id", "lead")
def exchange_standings(tables: Tables, asked: Sequence[UUID]) -> Answer:
    """How exchanges stand."""
    rows = (tables.exchanges.rows.get(exchange) for exchange in dict.fromkeys(asked))
    tasks = tables.tasks.rows
    return [
        (row.id, row.state, unpack(row.answer), row.task_id, tasks[row.task_id].lead)
        for row in rows
        if row is not None
    ]


@TWINS.of("id")
def open_exchanges(
    tables: Tables,
    exchanges: Sequence[UUID],
    tasks: Sequence[UUID],
    epochs: Sequence[int],
    now: int,
    lives: Sequence[int],
) -> Answer:
    """Write the exchanges that are not there."""
    opened = []
    for exchange, task, epoch, life in zip(exchanges, tasks, epochs, lives, strict=True):
        if exchange not in tables.exchanges.rows:
            tables.exchanges.insert(Exchange(exchange, task, epoch, now, now + life))
            opened.append((exchange,))
    return opened


@TWINS.of("displaced_by")
def set_aside(
    tables: Tables,
    runs: Sequence[UUID],
    starts: Sequence[int],
    ends: Sequence[int],
    classes: Sequence[str],
    priorities: Sequence[int],
    earliest: int,
    now: int,
) -> Answer:
    """Runs of strictly lower priority give way; each remembers for whom."""
    victims: dict[UUID, tuple[Run, UUID]] = {}
    wanted = sorted(
        zip(priorities, starts, ends, classes, runs, strict=True),
        key=lambda run: (-run[0], run[1]),
    )
    for priority, start, end, scheduling_class, displacing in wanted:
        for run in tables.runs.touching(start, end):
            gives_way = run.state == "booked" and run.priority < priority
            conflicts = "exclusive" in {scheduling_class, run.scheduling_class}
            if gives_way and conflicts and run.starts_at >= earliest:
                victims.setdefault(run.id, (run, displacing))
    for run, displacing in victims.values():
        tables.runs.change(run, state="set-aside", displaced_by=displacing, changed_at=now)
    return [(displacing,) for _, displacing in victims.values()]


@TWINS.of("id")
def book(
    tables: Tables,
    now: int,
    numbers: Sequence[int],
    runs: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    exchanges: Sequence[UUID],
    tasks: Sequence[UUID],
    participants: Sequence[int | None],
    classes: Sequence[str],
    priorities: Sequence[int],
) -> Answer:
    """Book what is free: in start order, and of those that start together the highest first."""
    booked: list[tuple[UUID]] = []
    names = [str(scheduling_class) for scheduling_class in classes]
    wanted = sorted(
        zip(starts, numbers, runs, slots, attempts, ends, strict=True),
        key=lambda run: (run[0], -priorities[run[1] - 1]),
    )
    for starts_at, number, run, slot, attempt, ends_at in wanted:
        of = number - 1
        made = Run(
            run,
            tasks[of],
            exchanges[of],
            slot,
            attempt,
            participants[of],
            names[of],
            priorities[of],
            starts_at,
            ends_at,
            "booked",
            now,
            now,
            lane(names[of]),
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
def keep_answers(
    tables: Tables, exchanges: Sequence[UUID], answers: Sequence[dict[str, Any]]
) -> Answer:
    """Keep what was answered to holds."""
    for exchange, answer in zip(exchanges, answers, strict=True):
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
def displace(tables: Tables, exchanges: Sequence[UUID], now: int) -> Answer:
    """What was set aside for the runs of these exchanges is lost to them."""
    answered = []
    for winner in _of_exchanges(tables, exchanges):
        test = tables.tasks.rows[winner.task_id].test
        for run in tables.runs.set_aside_for.of(winner.id):
            why = (
                f"displaced by a run of higher priority ({test} of task {winner.task_id}, "
                f"priority {winner.priority} over {run.priority})"
            )
            tables.runs.change(run, state="displaced", changed_at=now, reason=why)
            answered.append(_displaced(tables, run))
    return answered


def _of_exchanges(tables: Tables, exchanges: Sequence[UUID]) -> list[Run]:
    known = dict.fromkeys(exchanges)
    return [run for exchange in known for run in tables.runs.by_exchange.of(exchange)]


@TWINS.of("id", "task_id", "led_here")
def decide_exchanges(
    tables: Tables,
    exchanges: Sequence[UUID],
    commits: Sequence[bool],
    datas: Sequence[dict[str, Any]],
    senders: Sequence[str | None],
    now: int,
) -> Answer:
    """What is held is committed or released, if its task is led by who says so."""
    decided = []
    for exchange, commit, data, sender in zip(exchanges, commits, datas, senders, strict=True):
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
    """A release that overtook its hold."""
    for exchange, task, sender in zip(exchanges, tasks, senders, strict=True):
        known = None if task is None else tables.tasks.rows.get(task)
        if known is None or sender not in {None, known.lead}:
            continue
        if exchange not in tables.exchanges.rows:
            refused = Exchange(exchange, known.id, 0, now, now, state="released", decided_at=now)
            tables.exchanges.insert(refused)
    return ()


def _to_drop(tables: Tables, exchanges: Sequence[UUID], keep: Sequence[UUID]) -> list[Run]:
    kept = set(keep)
    return [
        run
        for run in _of_exchanges(tables, exchanges)
        if run.state in {"booked", "set-aside"} and run.id not in kept
    ]


@TWINS.of("id")
def drop_runs(tables: Tables, exchanges: Sequence[UUID], keep: Sequence[UUID]) -> Answer:
    """A participant forgets what was never committed."""
    dropped = _to_drop(tables, exchanges, keep)
    for run in dropped:
        tables.delete_run(run)
    return [(run.id,) for run in dropped]


@TWINS.of("id")
def drop_led_runs(
    tables: Tables, exchanges: Sequence[UUID], keep: Sequence[UUID], now: int
) -> Answer:
    """At the lead the slots wait to be asked for again."""
    dropped = _to_drop(tables, exchanges, keep)
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
    now: int,
    runs: Sequence[UUID],
    tasks: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    reasons: Sequence[str],
) -> Answer:
    """What of them could not be booked waits on."""
    wanted = zip(runs, tasks, slots, attempts, reasons, strict=True)
    for run, task_id, slot, attempt, reason in wanted:
        there = tables.runs.rows.get(run)
        task = tables.tasks.rows.get(task_id)
        if there is not None:
            if there.state == "waiting" and task is not None:
                tables.runs.change(there, reason=reason, changed_at=now)
        elif task is not None:
            made = Run(
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
            tables.runs.insert(made)
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
def expired_holds(tables: Tables, now: int, silent: Sequence[str], limit: int) -> Answer:
    """Holds whose life is over, oldest first; not of the leads that have just said nothing."""
    tasks = tables.tasks.rows
    expired = [
        row
        for row in tables.exchanges.held.values()
        if row.expires_at <= now and tasks[row.task_id].lead not in silent
    ]
    expired.sort(key=lambda row: (row.expires_at, row.number))
    return [
        (row.id, row.task_id, row.expires_at, row.held_at, tasks[row.task_id].lead)
        for row in expired[:limit]
    ]


@TWINS.of("pg_notify")
def notify(tables: Tables, said: Sequence[str]) -> Answer:
    """Tell every process of this node, when the transaction commits."""
    for payload in said:
        tables.journal.tell(payload)
    return [(None,)] * len(said)


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
