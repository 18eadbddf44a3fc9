"""Twins of ``node/store/sql/bookings.sql``: blocking runs and holds; see ``rulings.py``, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import ExchangeRow, RunRow, TaskRow, pack, pack_spans, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from node.model.spans import normalise

TWINS = Twins("node.store", "bookings")


def least(*instants: int | None) -> int | None:
    """Return the earliest instant, ignoring null like SQL."""
    return min((instant for instant in instants if instant is not None), default=None)


def greatest(*instants: int | None) -> int | None:
    """Return the latest instant, ignoring null like SQL."""
    return max((instant for instant in instants if instant is not None), default=None)


def lane(scheduling_class: str) -> str | None:
    """Return the lane of runs of this class; None if they take none."""
    return scheduling_class if scheduling_class in {"exclusive", "normal"} else None


@TWINS.of("scheduling_class", "priority", "fixed", "spans", "rank")
def occupied(
    tables: Tables, starts: Sequence[int], ends: Sequence[int], fixed_before: int
) -> Answer:
    """Return the occupied spans in these windows by class, priority, rank, and fixedness."""
    spans: dict[tuple[str, int, bool, int], dict[tuple[int, int], None]] = {}
    for run in _touching(tables, starts, ends):
        fixed = run.state == "running" or run.starts_at < fixed_before
        of_kind = spans.setdefault((run.scheduling_class, run.priority, fixed, run.rank), {})
        of_kind[run.starts_at, run.ends_at] = None
    return [(*kind[:3], pack_spans(of_kind), kind[3]) for kind, of_kind in spans.items()]


def _touching(tables: Tables, starts: Sequence[int], ends: Sequence[int]) -> Iterable[RunRow]:
    runs_by_number = {
        run.number: run
        for start, end in normalise(zip(starts, ends, strict=True))
        for run in tables.runs.touching(start, end)
    }
    return runs_by_number.values()


@TWINS.of(
    *("id", "task_id", "test", "scheduling_class", "priority", "starts_at", "ends_at", "fixed"),
    *("lead", "rank"),
)
def blocking_runs(
    tables: Tables, starts: Sequence[int], ends: Sequence[int], fixed_before: int
) -> Answer:
    """Return the runs that occupy time in these windows."""
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
            tasks[run.task_id].lead,
            run.rank,
        )
        for run in _touching(tables, starts, ends)
    ]


@TWINS.of(
    *("id", "participant", "scheduling_class", "spec", "test", "duration", "led_here", "campaign"),
    *("pool_task", "priority", "schedule", "created_at", "counted", "restored"),
    *("limit_rule", "limit_refusal", "run_bytes", "limit_caps", "limit_user"),
)
def accept_epochs(
    tables: Tables,
    tasks: Sequence[UUID],
    leads: Sequence[str],
    epochs: Sequence[int],
    tools: Sequence[str],
    revisions: Sequence[int],
    exchanges: Sequence[UUID],
    took_place: Sequence[str],
    generations: Sequence[UUID],
) -> Answer:
    """Lock the active tasks led by these leads whose revisions are the lead's; return them."""
    accepted = []
    requests = zip(tasks, leads, epochs, tools, revisions, exchanges, generations, strict=True)
    for task, lead, epoch, tool, revision, exchange, generation in requests:
        row = tables.tasks.rows.get(task)
        if row is None or (row.lead, row.state, row.revision) != (lead, "active", revision):
            continue
        if row.lease_epoch > epoch:
            continue
        first = row.generation or generation
        tables.tasks.change(row, lease_epoch=epoch, tool=tool, generation=first)
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
                row.campaign,
                row.parent or row.pool_task,
                row.priority,
                unpack(row.schedule),
                row.created_at,
                _counted(tables, row, exchange, took_place) if row.limited else None,
                first != generation,
                row.limit_rule,
                row.limit_refusal,
                row.run_bytes,
                unpack(row.limit_caps),
                row.limit_user,
            )
        )
    return accepted


def _counted(tables: Tables, task: TaskRow, exchange: UUID, took_place: Sequence[str]) -> int:
    """Count the runs of a task that took place, without those of this exchange."""
    runs = tables.runs.by_task.of(task.id)
    return sum(run.state in took_place and run.exchange_id != exchange for run in runs)


@TWINS.of("id", "state", "lead", "lease_epoch", "revision")
def task_standings(tables: Tables, asked: Sequence[UUID]) -> Answer:
    """Return the state of tasks, to explain why ``accept_epochs`` skipped them."""
    rows = (tables.tasks.rows.get(task) for task in dict.fromkeys(asked))
    return [
        (row.id, row.state, row.lead, row.lease_epoch, row.revision)
        for row in rows
        if row is not None
    ]


@TWINS.of("id", "state", "answer", "task_id", "lead")
def exchange_standings(tables: Tables, asked: Sequence[UUID]) -> Answer:
    """Return the state of exchanges."""
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
    lifetimes: Sequence[int],
) -> Answer:
    """Insert the exchanges that do not exist yet."""
    opened = []
    for exchange, task, epoch, life in zip(exchanges, tasks, epochs, lifetimes, strict=True):
        if exchange not in tables.exchanges.rows:
            tables.exchanges.insert(ExchangeRow(exchange, task, epoch, now, now + life))
            opened.append((exchange,))
    return opened


_BEGUN = frozenset({"running", "merging", "finished"})


@TWINS.of("id", "earlier", "task_id", "unknown", "cancelled", "began_at")
def earlier_attempts(
    tables: Tables,
    runs: Sequence[UUID],
    tasks: Sequence[UUID],
    slots: Sequence[int],
    attempts: Sequence[int],
    unknown_before: Sequence[int | None],
) -> Answer:
    """Return other runs of these slots that have begun here or are in the future.

    With an epoch, return also those that were booked before it under the same or a later attempt,
    and those that were cancelled by themselves.
    """
    conflicts = []
    requests = zip(runs, tasks, slots, attempts, unknown_before, strict=True)
    for run, task, slot, attempt, before in requests:
        others = tables.runs.earlier(task, slot, attempt)
        if before is not None:
            later = tables.runs.from_attempt(task, slot, attempt)
            others += [
                each for each in later if _booked_before(tables, each, before) or _alone(each)
            ]
        for earlier in others:
            unknown = earlier.attempt >= attempt
            began_at = earlier.started_at
            if began_at is None and earlier.state in _BEGUN:
                began_at = earlier.starts_at
            to_come = earlier.state in {"booked", "set-aside"}
            forgotten = before is not None and _alone(earlier)
            counts = unknown or to_come or began_at is not None or forgotten
            if earlier.participant is not None and counts:
                cancelled = earlier.reason if _alone(earlier) else None
                conflicts.append((run, earlier.id, task, unknown, cancelled, began_at))
    return conflicts


def _booked_before(tables: Tables, run: RunRow, epoch: int) -> bool:
    exchange = None if run.exchange_id is None else tables.exchanges.rows.get(run.exchange_id)
    return exchange is not None and exchange.lease_epoch < epoch


def _alone(run: RunRow) -> bool:
    return run.state == "cancelled" and not run.freed


@TWINS.of()
def give_up(tables: Tables, runs: Sequence[UUID], reasons: Sequence[str], now: int) -> Answer:
    """Cancel runs that have not begun, because their lead plans their slots anew."""
    for each, reason in zip(runs, reasons, strict=True):
        run = tables.runs.rows.get(each)
        if run is not None and run.state in {"booked", "set-aside"}:
            tables.runs.change(
                run, state="cancelled", freed=True, reason=reason, changed_at=now, finished_at=now
            )
    return ()


@TWINS.of()
def forget(tables: Tables, runs: Sequence[UUID]) -> Answer:
    """Delete runs that were never begun."""
    for run in runs:
        if (row := tables.runs.rows.get(run)) is not None:
            tables.delete_run(row)
    return ()


@TWINS.of("displaced_by")
def set_aside(
    tables: Tables,
    runs: Sequence[UUID],
    starts: Sequence[int],
    ends: Sequence[int],
    classes: Sequence[str],
    priorities: Sequence[int],
    any_run: Sequence[bool],
    ranks: Sequence[int],
    named_by: Sequence[UUID],
    named: Sequence[UUID],
    earliest: int,
    now: int,
) -> Answer:
    """Set aside runs of lower rank or priority, named ones or any, and store for which run."""
    yielding = set(zip(named_by, named, strict=True))
    victims: dict[UUID, tuple[RunRow, UUID]] = {}
    wanted = sorted(
        zip(ranks, priorities, starts, ends, classes, runs, any_run, strict=True),
        key=lambda run: (-run[0], -run[1], run[2]),
    )
    for rank, priority, start, end, scheduling_class, displacing, of_any in wanted:
        for run in tables.runs.touching(start, end):
            gives_way = run.state == "booked" and (run.rank, run.priority) < (rank, priority)
            conflicts = "exclusive" in {scheduling_class, run.scheduling_class}
            may = of_any or (displacing, run.id) in yielding
            if gives_way and may and conflicts and run.starts_at >= earliest:
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
    ranks: Sequence[int],
) -> Answer:
    """Book the runs that are free in order of start; at equal starts those that come first."""
    rows: list[RunRow] = []
    names = [str(scheduling_class) for scheduling_class in classes]
    wanted = sorted(
        zip(starts, numbers, runs, slots, attempts, ends, strict=True),
        key=lambda run: (run[0], -ranks[run[1] - 1], -priorities[run[1] - 1], run[1]),
    )
    for starts_at, number, run, slot, attempt, ends_at in wanted:
        index = number - 1
        row = RunRow(
            run,
            tasks[index],
            exchanges[index],
            slot,
            attempt,
            participants[index],
            names[index],
            priorities[index],
            starts_at,
            ends_at,
            "booked",
            now,
            now,
            lane(names[index]),
            rank=ranks[index],
        )
        if not tables.closed_to(row) and tables.runs.offer(row):
            rows.append(row)
    tables.runs.tell_taken(rows)
    return [(run.id,) for run in rows]


@TWINS.of("port")
def ports_in_use(tables: Tables) -> Answer:
    """Return the ports of exchanges that may still run on this node."""
    every = itertools.chain.from_iterable(tables.exchanges.ported.values())
    return [(port,) for port in dict.fromkeys(every)]


@TWINS.of()
def keep_answers(
    tables: Tables, exchanges: Sequence[UUID], answers: Sequence[dict[str, Any]]
) -> Answer:
    """Store the answers to holds."""
    for exchange, answer in zip(exchanges, answers, strict=True):
        row = tables.exchanges.rows.get(exchange)
        if row is not None:
            data = answer.get("data") or {}
            port = data.get("port")
            ports = None if port is None else range(port, port + data.get("ports", 1))
            tables.exchanges.change(row, answer=pack(answer), ports=ports)
    return ()
