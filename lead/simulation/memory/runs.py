"""Twins of ``node/store/sql/runs.sql``; its queries for display have none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import PartRow, RunRow, pack_optional, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables
from node.model import times

TWINS = Twins("node.store", "runs")

_DUE_MAX = 1000
_WITHOUT_PARTS_MAX = 500
_LOST_MAX = 100
_WITHDRAWN = frozenset({"cancelled", "displaced", "set-aside"})


@TWINS.of(
    "id",
    "task_id",
    "participant",
    "starts_at",
    "ends_at",
    "lead",
    "test",
    "tool",
    "spec",
    "participants",
    "addresses",
    "data",
)
def due_runs(tables: Tables, before: int) -> Answer:
    """Return committed runs that start soon, with everything needed to launch this node's part."""
    due = (run for run in tables.runs.booked.before(before) if tables.committed(run.exchange_id))
    return [_due(tables, run) for run in islice(due, _DUE_MAX)]


def _due(tables: Tables, run: RunRow) -> tuple[Any, ...]:
    task = tables.tasks.rows[run.task_id]
    exchange = tables.exchanges.rows.get(run.exchange_id)  # type: ignore[arg-type]
    return (
        run.id,
        run.task_id,
        run.participant,
        run.starts_at,
        run.ends_at,
        task.lead,
        task.test,
        task.tool if run.tool is None else run.tool,
        unpack(task.spec if run.spec is None else run.spec),
        unpack(task.participants),
        unpack(task.addresses),
        None if exchange is None else unpack(exchange.data),
    )


@TWINS.of("min")
def next_start(tables: Tables, after: int) -> Answer:
    """Return the start of the first run at or after an instant."""
    return [(next((run.starts_at for run in tables.runs.booked.since(after)), None),)]


@TWINS.of("doubtful")
def begin(tables: Tables, run: UUID, now: int) -> Answer:
    """Set a committed run running; no database in memory is restored, so none is in doubt."""
    row = tables.runs.rows.get(run)
    if row is None or row.state != "booked" or not tables.committed(row.exchange_id):
        return ()
    tables.runs.change(row, state="running", changed_at=now)
    return [(False,)]


@TWINS.of("id", "name")
def unconfirmed(tables: Tables, runs: Sequence[UUID], now: int) -> Answer:
    """Return the nodes that did not confirm the commit of these runs before their holds expired."""
    return [(run, name) for run in sorted(set(runs)) for name in _silent(tables, run, now)]


def _silent(tables: Tables, run: UUID, now: int) -> Sequence[str]:
    row = tables.runs.rows.get(run)
    negotiation = None if row is None else tables.negotiations.rows.get(row.exchange_id)  # type: ignore[arg-type]
    if negotiation is None or negotiation.decided_at is None:
        return ()
    if now <= negotiation.decided_at + 2 * (negotiation.expires_at - negotiation.opened_at):
        return ()
    messages = sorted(tables.outbox.commits.of(str(negotiation.id)), key=lambda message: message.id)
    nodes = tables.nodes.rows
    return [nodes[it.node].name if it.node in nodes else it.node for it in messages]


@TWINS.of()
def process(tables: Tables, run: UUID, started_at: int, process_id: int, ticks: int) -> Answer:
    """Store the process of a run."""
    row = tables.runs.running.get(run)
    if row is not None:
        tables.runs.change(row, started_at=started_at, process_id=process_id, process_ticks=ticks)
    return ()


@TWINS.of("id")
def lock_task_of(tables: Tables, runs: Sequence[UUID]) -> Answer:
    """Lock the tasks of runs against concurrent changes."""
    rows = (tables.runs.rows.get(run) for run in runs)
    return [(task,) for task in sorted({row.task_id for row in rows if row is not None})]


@TWINS.of(
    "id",
    "task_id",
    "state",
    "participant",
    "starts_at",
    "ends_at",
    "slot",
    "attempt",
    "test",
    "spec",
    "lead",
    "participants",
    "duration",
    "tool",
    "revision",
    "campaign",
    "reference",
)
def lock(tables: Tables, runs: Sequence[UUID]) -> Answer:
    """Return runs and lock them until the transaction ends."""
    return [
        (
            row.id,
            row.task_id,
            row.state,
            row.participant,
            row.starts_at,
            row.ends_at,
            row.slot,
            row.attempt,
            task.test,
            unpack(task.spec if row.spec is None else row.spec),
            task.lead,
            unpack(task.participants),
            task.duration,
            task.tool if row.tool is None else row.tool,
            task.revision,
            task.campaign,
            unpack(task.reference),
        )
        for run in sorted(runs)
        if (row := tables.runs.rows.get(run)) is not None
        for task in (tables.tasks.rows[row.task_id],)
    ]


@TWINS.of("run_id")
def keep_part(
    tables: Tables,
    run: UUID,
    participant: int,
    name: str,
    result: dict[str, Any] | None,
    reason: str | None,
    started_at: int | None,
    finished_at: int | None,
    command: list[str] | None,
    output: str | None,
    circumstances: dict[str, Any] | None,
    moved_bytes: int | None,
    signature: str | None,
) -> Answer:
    """Store a part, unless it exists."""
    row = PartRow(
        run,
        participant,
        name,
        pack_optional(result),
        reason,
        started_at,
        finished_at,
        command,
        output,
        pack_optional(circumstances),
        moved_bytes,
        signature,
    )
    tables.parts.check_values(row)
    if (run, participant) in tables.parts.rows:
        return ()
    tables.parts.insert(row)
    return [(run,)]


_PART = (
    "participant",
    "name",
    "result",
    "reason",
    "started_at",
    "finished_at",
    "command",
    "output",
    "circumstances",
    "signature",
)


@TWINS.of(*_PART)
def parts(tables: Tables, run: UUID) -> Answer:
    """Return all stored parts of a run in participant order."""
    rows = sorted(tables.parts.by_run.of(run), key=lambda part: part.participant)
    return [_part(row) for row in rows]


@TWINS.of("run_id", *_PART)
def parts_to_send(tables: Tables, lead: str, asked: Sequence[UUID]) -> Answer:
    """Return this node's parts of runs that another node leads, but for those on their way."""
    under_way = {
        unpack(row.message).get("run")
        for row in tables.outbox.rows.values()
        if row.node == lead and row.kind == "part"
    }
    found = []
    for run in sorted(set(asked) & tables.runs.rows.keys()):
        place, task = tables.runs.rows[run].participant, tables.runs.rows[run].task_id
        if tables.tasks.rows[task].lead == lead and str(run) not in under_way:
            own = (part for part in tables.parts.by_run.of(run) if part.participant == place)
            found += [(run, *_part(part)) for part in own]
    return found


def _part(row: PartRow) -> tuple[Any, ...]:
    return (
        row.participant,
        row.name,
        unpack(row.result),
        row.reason,
        row.started_at,
        row.finished_at,
        row.command,
        row.output,
        unpack(row.circumstances),
        row.signature,
    )


@TWINS.of("id", "task_id", "process_id")
def move(
    tables: Tables,
    runs: Sequence[UUID],
    state: str,
    reason: str | None,
    now: int,
    over: bool,
    before: Sequence[str],
) -> Answer:
    """Change the state of the runs that are in one of the states ``before``."""
    rows = (tables.runs.rows.get(run) for run in dict.fromkeys(runs))
    changed = [run for run in rows if run is not None and run.state in before]
    for run in changed:
        tables.runs.change(
            run,
            state=str(state),
            reason=run.reason if reason is None else reason,
            changed_at=now,
            finished_at=now if over and run.finished_at is None else run.finished_at,
        )
    return [(run.id, run.task_id, run.process_id) for run in changed]


@TWINS.of()
def add_reason(tables: Tables, run: UUID, words: str) -> Answer:
    """Append to the reason of a run that has ended."""
    row = tables.runs.rows.get(run)
    if row is not None:
        tables.runs.change(row, reason=words if row.reason is None else f"{row.reason}; {words}")
    return ()


@TWINS.of()
def keep_winner(tables: Tables, run: UUID, winner: UUID) -> Answer:
    """Store which run displaced this one on another node."""
    row = tables.runs.rows.get(run)
    if row is not None and row.state == "displaced" and row.displaced_by is None:
        tables.runs.change(row, displaced_by=winner)
    return ()


@TWINS.of("id")
def conclude(
    tables: Tables,
    run: UUID,
    state: str,
    reason: str | None,
    result: dict[str, Any] | None,
    summary: str | None,
    now: int,
    before: Sequence[str],
    verdict: str | None,
    verdict_reasons: Sequence[str],
) -> Answer:
    """Store the merged outcome of a run."""
    row = tables.runs.rows.get(run)
    if row is None or row.state not in before:
        return ()
    tables.runs.change(
        row,
        state=str(state),
        reason=reason,
        result=pack_optional(result),
        summary=summary,
        changed_at=now,
        finished_at=now,
        verdict=verdict,
        verdict_reasons=list(verdict_reasons),
    )
    return [(run,)]


@TWINS.of("id")
def without_parts(tables: Tables, now: int, after: int | None) -> Answer:
    """Return, at the lead, the ended runs that still lack parts."""
    lacking = (
        run
        for run in tables.runs.merging.values()
        if run.ends_at < now
        and (after is None or run.ends_at > after)
        and tables.led_here(run.task_id)
    )
    return [(run.id,) for run in islice(lacking, _WITHOUT_PARTS_MAX)]


@TWINS.of("id", "process_id", "process_ticks")
def interrupted(tables: Tables) -> Answer:
    """Return the runs that a former process of this node left running."""
    return [(run.id, run.process_id, run.process_ticks) for run in tables.runs.running.values()]


@TWINS.of("id")
def lost(tables: Tables, now: int, left: Sequence[UUID]) -> Answer:
    """Return the runs that are still running after their end, or after the launcher left them."""
    late = (
        run
        for run in tables.runs.running.values()
        if run.participant is not None and (run.ends_at < now or run.id in left)
    )
    return [(run.id,) for run in islice(late, _LOST_MAX)]


@TWINS.of("id")
def overslept(tables: Tables, now: int) -> Answer:
    """Return the runs that should have started but did not."""
    missed = (
        run
        for run in tables.runs.booked.before(now)
        if run.participant is not None and tables.committed(run.exchange_id)
    )
    return [(run.id,) for run in islice(missed, _DUE_MAX)]


@TWINS.of("id")
def open_runs_of_tasks(tables: Tables, tasks: Sequence[UUID]) -> Answer:
    """Return the runs of these tasks that have not ended."""
    of = tables.runs.open.of
    return [(run,) for run in sorted(run.id for task in dict.fromkeys(tasks) for run in of(task))]


@TWINS.of("id")
def booked_runs_of_task(tables: Tables, task: UUID) -> Answer:
    """Return the task's runs that have time here and have not begun."""
    of_task = tables.runs.open.of(task)
    booked = (run.id for run in of_task if run.state in ("booked", "set-aside"))
    return [(run,) for run in sorted(booked)]


@TWINS.of("id")
def cut_runs_of_tasks(tables: Tables, tasks: Sequence[UUID], now: int) -> Answer:
    """Return the runs of these tasks that failed before their booked end, which is to come."""
    of = tables.runs.by_task.of
    every = (run for task in dict.fromkeys(tasks) for run in of(task))
    cut = (run.id for run in every if run.state == "failed" and run.ends_at > now)
    return [(run,) for run in sorted(cut)]


@TWINS.of("task_id", "slot")
def wait_again(
    tables: Tables,
    runs: Sequence[UUID],
    following: Sequence[UUID],
    tries: Sequence[int],
    reasons: Sequence[str],
    now: int,
) -> Answer:
    """Let the slots of runs that lost their time wait again, each as a new attempt."""
    waiting = []
    rows = [tables.runs.rows.get(run) for run in runs]  # as they were before
    for row, then, attempt, reason in zip(rows, following, tries, reasons, strict=True):
        if row is None or tables.tasks.rows[row.task_id].state != "active":
            continue
        if tables.runs.offer(attempt_row := _next_attempt(row, then, attempt, reason, now)):
            waiting.append((attempt_row.task_id, attempt_row.slot))
    return waiting


def _next_attempt(row: RunRow, following: UUID, attempt: int, reason: str, now: int) -> RunRow:
    return RunRow(
        following,
        row.task_id,
        None,
        row.slot,
        attempt,
        row.participant,
        row.scheduling_class,
        row.priority,
        row.slot,
        row.slot + row.ends_at - row.starts_at,
        "waiting",
        now,
        now,
        reason=reason,
    )


@TWINS.of("count")
def purge_runs(tables: Tables, before: int, finished: bool, at_most: int) -> Answer:
    """Delete runs past their retention; an open task with ``max_runs`` keeps the runs it counts."""
    bounds = (before, times.EARLIEST) if finished else (times.EARLIEST, before)
    # A run that changed its state back and forth comes several times.
    over, old = list({run.id: run for run in tables.runs.over_before(*bounds)}.values()), []
    for run in over:
        task = tables.tasks.rows[run.task_id]
        if run.freed or not (task.limited and task.state in {"active", "paused"}):
            old.append(run)
    old.sort(key=lambda run: (run.starts_at, run.id))
    gone = {run.id for run in old[:at_most]}
    for run in over:
        if run.id in gone:
            tables.delete_run(run)
        else:
            tables.runs.keep(run)
    return [(len(gone),)]


@TWINS.of("count")
def purge_gaps(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete old gaps."""
    old = [row for row in tables.gaps.rows.values() if row.last_slot < before]
    gone = sorted(old, key=lambda row: (row.first_slot, row.id))[:at_most]
    for row in gone:
        tables.gaps.delete(row)
    return [(len(gone),)]


@TWINS.of("count")
def purge_decisions(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete old planning attempts."""
    over = {row.id: row for row in tables.decisions.over_before(before)}  # some come twice
    old = sorted(over.values(), key=lambda row: row.id)
    for row in old[:at_most]:
        tables.decisions.delete(row)
    for row in old[at_most:]:
        tables.decisions.keep(row)
    return [(len(old[:at_most]),)]


@TWINS.of("count")
def purge_exchanges(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete old exchanges without runs."""
    exchanges, old = tables.exchanges, []
    for exchange in list(exchanges.bare):
        row = exchanges.rows.get(exchange)
        if row is None or exchange in tables.runs.by_exchange:
            del exchanges.bare[exchange]
        elif row.state != "held" and row.decided_at is not None and row.decided_at < before:
            old.append((row.decided_at, row.id, row))
    gone = sorted(old, key=itemgetter(0, 1))[:at_most]
    for _, _, row in gone:
        exchanges.delete(row)
    return [(len(gone),)]


@TWINS.of("count")
def purge_negotiations(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete old negotiations, whose decisions no participant asks for any more."""
    decided = list(tables.negotiations.decided_before(before))
    decided.sort(key=lambda row: (row.decided_at, row.id))
    old = [row for row in decided if not tables.outbox.commits.of(str(row.id))]
    gone = {row.id for row in old[:at_most]}
    for row in decided:
        if row.id in gone:
            tables.negotiations.delete(row)
        else:
            tables.negotiations.keep(row)
    return [(len(gone),)]


@TWINS.of("count")
def purge_idempotency(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete old idempotency keys."""
    old = [row for row in tables.idempotencies.rows.values() if row.created_at < before]
    gone = sorted(old, key=lambda row: (row.created_at, row.key))[:at_most]
    for row in gone:
        tables.idempotencies.delete(row)
    return [(len(gone),)]


@TWINS.of("id")
def taken_back(tables: Tables, executing: Sequence[UUID]) -> Answer:
    """Return those of the executing runs that have been cancelled, displaced or set aside."""
    rows = (tables.runs.rows.get(run) for run in dict.fromkeys(executing))
    return [(run.id,) for run in rows if run is not None and run.state in _WITHDRAWN]
