"""The runs of this node: launching, parts, ends, and lists for users.

A run is a row at its lead and at each participant, each with that node's view of its state. A state
is entered only from those that may precede it (``model/runstate.py``): each UPDATE has them in its
condition, so of two ends that come at once the first one stands, and a function returns what really
changed. Whoever ends runs or tasks locks the task before its runs, so that they wait for each other
in one order.

A commit leads to a start only while the run is still booked; what was measured is written as the
part of this participant, once, and the lead merges the parts. Ends that nobody wrote (a dead
process, a slot overslept, parts that never came) are found by their instants, and not by
remembering them.

Gaps, slots that were never planned, are listed in the form of runs. Instants are in microseconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from node.model import runstate, times
from node.model.errors import SearchTooWide
from node.model.outcome import Judged, Judgement
from node.model.reason import Reason
from node.model.runstate import RunState
from node.model.wire.tasks import PARTICIPANTS, Participant
from node.store.database import Connection, Record
from node.store.statements import Purge, Query, Statements, as_tuple, columns_of, spread

SEARCH_S = 5.0
"""Most seconds for which the database searches runs for words: it reads each run of the span."""

_DIGITS = 32
"""Number of digits of an id."""
_TASKS_MAX = 100
"""Most tasks of which each is looked up in the index of its runs; a seat of a pool has one."""

_SQL = Statements("node.store", "runs")


@dataclass(frozen=True)
class DueRun:
    """The facts to launch this node's part of a run; ``participant`` is None if it only leads."""

    id: UUID
    task: UUID
    participant: int | None
    starts_at: int
    ends_at: int
    lead: str
    test: str
    tool: str | None
    spec: dict[str, Any]
    participants: tuple[Participant, ...]
    addresses: dict[str, str]
    data: dict[str, dict[str, Any]]
    told: dict[str, Any] | None = None
    """The data that this node has told in its own hold."""
    bound: bool = False
    """True if it is led here for a user who is bound by the rules for targets."""
    user: str | None = None
    """The label of that user; None if there is none."""
    rule: str | None = None
    """The rule of this host's limits that admits its task."""


@dataclass(frozen=True)
class ConfirmedRun:
    """A run as it is booked here, for another participant; ``told`` is as in :class:`DueRun`."""

    task: UUID
    lead: str
    starts_at: int
    participant: int | None
    test: str
    tool: str | None
    spec: dict[str, Any]
    told: dict[str, Any] | None


@dataclass(frozen=True)
class BegunRun:
    """A run that was set running; ``doubtful`` if only a restored database says that it stands."""

    doubtful: bool


@dataclass(frozen=True)
class LockedRun:
    """A run that is locked until the transaction ends."""

    id: UUID
    task: UUID
    state: RunState
    participant: int | None
    starts_at: int
    ends_at: int
    slot: int
    attempt: int
    test: str
    spec: dict[str, Any]
    lead: str
    participants: tuple[Participant, ...]
    duration: int
    tool: str | None
    revision: int
    campaign: str | None
    reference: dict[str, Any] | None
    keepers: Sequence[str] = ()
    """The nodes that keep what the run takes, as far as they are known here."""
    repeat: int | None = None
    """The interval of its task (µs), if it has a fixed one."""
    cron: str | None = None
    timezone: str | None = None
    alert_memory: list[Any] | None = None
    """The memory of its task for alerts as it was read, if there is one; it is not locked."""

    @property
    def parties(self) -> set[str]:
        """The nodes that measure it, or keep what it takes."""
        return {each.node for each in self.participants} | set(self.keepers)


@dataclass(frozen=True)
class OtherAttempt:
    """Another attempt of the slot of a run."""

    run: UUID
    attempt: int
    state: str
    reason: str | None
    starts_at: int


@dataclass(frozen=True)
class KeptPart:
    """One participant's part as stored; ``signature`` is its statement about it, if it signs."""

    participant: int
    name: str
    result: dict[str, Any] | None
    reason: str | None
    started_at: int | None
    finished_at: int | None
    command: tuple[str, ...] | None = None
    output: str | None = None
    circumstances: dict[str, Any] | None = None
    signature: str | None = None


@dataclass(frozen=True)
class RunConclusion:
    """The merged outcome of a run."""

    state: RunState
    reason: str | None
    result: dict[str, Any] | None
    summary: str | None
    verdict: str | None = None
    verdict_reasons: tuple[str, ...] = ()
    judged: Judged | None = None
    """The judgement of its figures, if it has a result; otherwise its state says all."""
    every: int | None = None
    """The mean of the two intervals after it (µs), of a task with a cron schedule."""


@dataclass(frozen=True)
class RunStateChange:
    """A run whose state has changed, and its task."""

    id: UUID
    task: UUID


@dataclass(frozen=True)
class EndedRun:
    """A run that ended; ``cause`` is its reason without times, lengths and ids."""

    id: UUID
    task: UUID
    lead: str
    state: str
    test: str
    spec: dict[str, Any]
    participants: tuple[Participant, ...]
    campaign: str | None
    reason: str | None
    cause: str | None
    verdict: str | None
    judgement: str


@dataclass(frozen=True)
class RunFilter:
    """The runs to list, and the page; without any value all runs, newest first."""

    task: UUID | None = None
    states: Sequence[str] | None = None
    test: str | None = None
    prefix: str | None = None
    since: int | None = None
    before: int | None = None
    after_start: int | None = None
    after_run: UUID | None = None
    limit: int = 50
    requester: str | None = None
    participant: str | None = None
    target: str | None = None
    campaign: str | None = None
    verdicts: Sequence[str] | None = None
    mesh: str | None = None
    classes: Sequence[str] | None = None
    words: Sequence[str] | None = None
    """In lower case; what people read of a run has all of them."""
    outcomes: Sequence[str] | None = None
    every_attempt: bool = False
    """Also attempts that came to nothing, and that a later one of their slot followed."""
    ascending: bool = False


async def due_runs(
    connection: Connection, after: int, before: int, known: Sequence[UUID] = ()
) -> list[DueRun]:
    """Return the committed runs that start in that span, but for those that are known, by start.

    Also earlier ones that this node only leads.
    """
    rows = await connection.fetch(_SQL["due_runs"], after, before, list(known))
    return [_due_run(dict(row)) for row in rows]


def _due_run(row: dict[str, Any]) -> DueRun:
    return DueRun(
        id=row.pop("id"),
        task=row.pop("task_id"),
        user=row.pop("bound_user"),
        participants=PARTICIPANTS.validate_python(row.pop("participants")),
        **row,
    )


find_booked_with: Query[[UUID, str], ConfirmedRun | None] = _SQL.row("booked_with", ConfirmedRun)
"""A run that is booked or running here and has this participant; None if not."""

next_start: Query[[int], int | None] = _SQL.value("next_start")
"""The start of the first booked run from then on; it may be held only."""

begin: Query[[UUID, int], BegunRun | None] = _SQL.row("begin", BegunRun)
"""Set a booked run running; None if it was cancelled or displaced."""

unconfirmed_runs: Query[[Sequence[UUID], int], dict[UUID, list[str]]] = _SQL.lists_by_key(
    "unconfirmed", str
)
"""Return the participants that did not confirm a run led here and have dropped it by an instant.

Runs without such participants are left out.
"""

keep_process: Query[[UUID, int, int, int], None] = _SQL.command("process")
"""Store the process, so that a later start of the service can end what is left of it.

Takes ``run``, ``started_at``, ``process``, ``ticks``.
"""


async def lock(connection: Connection, run: UUID) -> LockedRun | None:
    """Lock a run, and its task against being ended; return None if it is unknown here."""
    locked = await lock_all(connection, [run])
    return locked[0] if locked else None


async def lock_all(connection: Connection, runs: Sequence[UUID]) -> list[LockedRun]:
    """Lock runs and their tasks; return the runs known here in the order of their ids."""
    await connection.execute(_SQL["lock_task_of"], list(runs))
    rows = await connection.fetch(_SQL["lock"], list(runs))
    return [_locked_run(dict(row)) for row in rows]


def _locked_run(values: dict[str, Any]) -> LockedRun:
    return LockedRun(
        id=values.pop("id"),
        task=values.pop("task_id"),
        state=RunState(values.pop("state")),
        participants=PARTICIPANTS.validate_python(values.pop("participants")),
        **values,
    )


keep_part: Query[[UUID, KeptPart, int | None], bool] = spread(_SQL.finds("keep_part"))
"""Store a part; False if that participant's part is there already.

The last argument is what it moved as measured (bytes), if this node leads the run and can tell.
"""


async def parts(connection: Connection, run: UUID) -> list[KeptPart]:
    """Return the parts that have arrived, in participant order."""
    return [_part_of_row(dict(row)) for row in await connection.fetch(_SQL["parts"], run)]


async def parts_to_send(
    connection: Connection, lead: str, asked: Sequence[UUID]
) -> dict[UUID, KeptPart]:
    """Return this node's parts of those of these runs that ``lead`` leads, by run.

    Parts whose message to the lead is on its way are left out.
    """
    rows = await connection.fetch(_SQL["parts_to_send"], lead, list(asked))
    found = [dict(row) for row in rows]
    return {row.pop("run_id"): _part_of_row(row) for row in found}


def _part_of_row(row: dict[str, Any]) -> KeptPart:
    command = row.pop("command")
    return KeptPart(**row, command=None if command is None else tuple(command))


add_reason: Query[[UUID, str], None] = _SQL.command("add_reason")
"""Append words to the reason of a run."""

keep_winner: Query[[UUID, UUID], None] = _SQL.command("keep_winner")
"""Store by which run a run was displaced, if that is not known here yet.

Takes ``run``, ``winner``.
"""


async def set_state(
    connection: Connection, runs: Sequence[UUID], state: RunState, reason: str | None, now: int
) -> list[RunStateChange]:
    """Set the state of those runs that may enter it, and return them."""
    rows = await connection.fetch(
        _SQL["move"],
        list(runs),
        state,
        reason,
        now,
        state in runstate.OVER,
        runstate.predecessors(state),
        _code_of(reason),
    )
    return [RunStateChange(row[0], row[1]) for row in rows]


def _code_of(reason: str | None) -> str | None:
    """Return the code of a reason; None for a sentence that was composed elsewhere."""
    return reason.code if isinstance(reason, Reason) else None


async def conclude(
    connection: Connection, run: UUID, outcome: RunConclusion, now: int
) -> Judgement | None:
    """Store the merged outcome and return its judgement.

    None if the run may not enter its state (any more).
    """
    judged = outcome.judged
    judgement = await connection.fetchval(
        _SQL["conclude"],
        run,
        outcome.state,
        outcome.reason,
        outcome.result,
        outcome.summary,
        now,
        runstate.predecessors(outcome.state),
        outcome.verdict,
        list(outcome.verdict_reasons),
        judged and judged.judgement,
        _code_of(judged.reason if judged else outcome.reason),
        judged and judged.reason,
        outcome.every,
    )
    return None if judgement is None else Judgement(judgement)


runs_without_parts: Query[[int, int | None], list[UUID]] = _SQL.column("without_parts")
"""The runs led here that wait for parts and ended before an instant, if not before another one.

Takes ``ended_before``, ``ended_after``.
"""


interrupted_runs: Query[[], list[tuple[UUID, int | None, int | None]]] = _SQL.rows(
    "interrupted", as_tuple
)
"""The runs that an earlier process left running: id, process, its start ticks."""

lost_runs: Query[[int, Sequence[UUID]], list[UUID]] = _SQL.column("lost")
"""The runs with a part here that still run and should have ended before then.

Those in ``left``, which the launcher has left, are returned whenever they end.
"""


overslept_runs: Query[[int, Sequence[UUID]], list[tuple[UUID, int]]] = _SQL.rows(
    "overslept", as_tuple
)
"""Some of the committed runs with a part here that should have started before an instant.

Each with its start; those that are known are left out.
"""


async def taken_back_runs(connection: Connection, executing: Sequence[UUID]) -> list[UUID]:
    """Return those of the running runs that have been ended in the meantime."""
    if not executing:
        return []
    return [row[0] for row in await connection.fetch(_SQL["taken_back"], list(executing))]


open_runs_of_tasks: Query[[Sequence[UUID]], list[UUID]] = _SQL.column("open_runs_of_tasks")
"""The runs of these tasks that are not over."""

coming_runs_with: Query[[str, int], list[UUID]] = _SQL.column("coming_with")
"""The runs to come that this other node leads, or takes part in if they are led here."""

booked_runs_of_task: Query[[UUID], list[UUID]] = _SQL.column("booked_runs_of_task")
"""The task's runs that have time here and have not begun."""

cut_runs_of_tasks: Query[[Sequence[UUID], int], list[UUID]] = _SQL.column("cut_runs_of_tasks")
"""The runs of these tasks that failed here and whose booked end is in the future."""


@dataclass(frozen=True)
class NextAttempt:
    """The next attempt of a run's slot."""

    run: UUID
    following: UUID
    attempt: int
    reason: str


async def create_waiting_attempts(
    connection: Connection, attempts: Sequence[NextAttempt], now: int
) -> list[tuple[UUID, int]]:
    """Create waiting attempts, and return task and slot of each.

    An attempt is left out if it exists already, or if its task has ended.
    """
    rows = await connection.fetch(_SQL["wait_again"], *columns_of(NextAttempt, attempts), now)
    return [(row[0], row[1]) for row in rows]


attempts_beside: Query[[Sequence[UUID]], dict[UUID, list[OtherAttempt]]] = _SQL.lists_by_key(
    "attempts_beside", OtherAttempt
)
"""The other attempts of the slots of these runs, in their order, by run."""

other_attempts: Query[[UUID, int, int], dict[UUID, str]] = _SQL.by_key("other_attempts")
"""The states of the runs of a task's slot beside an attempt that live or have a result, locked."""


async def find_run_or_gap(connection: Connection, run: UUID) -> Record | None:
    """Return a run, or a gap in the form of one; None if it is unknown here."""
    row: Record | None = await connection.fetchrow(_SQL["run"], run)
    if row is None:
        row = await connection.fetchrow(_SQL["gap"], run)
    return row


find_follow_ups: Query[[Sequence[UUID], str | None], list[Record]] = _SQL.records("follow_ups")
"""The runs that follow these runs, with the id of the followed one (``asked_by``).

Takes their ids, and the requester of the tasks that are meant (None: all).
"""

find_askers: Query[[Sequence[UUID], str | None], list[tuple[UUID, UUID]]] = _SQL.rows(
    "asked_by", as_tuple
)
"""The id of each of these runs that follows another one, and the id of that one; takes the same."""


async def find_at_slot(connection: Connection, task: UUID, slot: int) -> tuple[UUID, int] | None:
    """Return the run of a task that has a slot, or the gap in which it lies, and the slot.

    People write whole seconds or minutes, which mean all of them. None if there is neither.
    """
    units = (times.MINUTE, times.SECOND, 1)
    end = slot + next(unit for unit in units if slot % unit == 0)
    row = await connection.fetchrow(_SQL["at_slot"], task, slot, end)
    return None if row is None else (row[0], row[1])


judgements: Query[[Sequence[UUID]], dict[UUID, str | None]] = _SQL.by_key("judgements")
"""The judgements of those of these runs that are over, by run."""

find_nearest_slot: Query[[UUID, int], int | None] = _SQL.value("nearest_slot")
"""Return the slot (µs) of a run or gap of a task that is nearest to an instant; None if none is."""

find_measurement: Query[[UUID], Record | None] = _SQL.record("recorded_run")
"""Spec and terms of a run and its participants, for bundles; None if it is unknown."""


async def find_page(connection: Connection, wanted: RunFilter) -> list[Record]:
    """Return runs for users, and gaps in the form of runs; both in one order, by start.

    In a transaction, for which it sets how lists are planned.

    :raises SearchTooWide: a search for words was not over after ``SEARCH_S``.
    """
    ids = (None, None) if wanted.prefix is None else _ids_beginning_with(wanted.prefix)
    tasks = await _filtered_tasks(connection, wanted)
    if ids is None or tasks == []:
        return []
    task, *arguments, ascending = vars(wanted).values()
    task, tasks = (tasks[0], None) if tasks and len(tasks) == 1 else (None, tasks)
    query = _SQL["runs_forward" if ascending else "runs_backward"]
    try:
        async with asyncio.timeout(None if wanted.words is None else SEARCH_S):
            await connection.execute(_SQL["plan_for_values"])
            rows: list[Record] = await connection.fetch(query, task, *arguments, tasks, *ids)
    except TimeoutError as error:
        if wanted.words is None:
            raise
        msg = (
            f"the search was ended after {SEARCH_S:g} s; search in a shorter span (since, before), "
            "or name the task"
        )
        raise SearchTooWide(msg) from error
    return rows


async def _filtered_tasks(connection: Connection, wanted: RunFilter) -> list[UUID] | None:
    """Return all tasks that the filters leave; None if they may be more than ``_TASKS_MAX``.

    Few of many tasks have few of the newest runs, so that these are read by their tasks.
    """
    filters = (
        wanted.task,
        wanted.test,
        wanted.requester,
        wanted.participant,
        wanted.target,
        wanted.campaign,
        wanted.mesh,
    )
    if filters == (None,) * len(filters):
        return None
    most = None if wanted.task is not None else _TASKS_MAX + 1  # a pool task has all its seats
    rows = await connection.fetch(_SQL["filtered_tasks"], *filters, most)
    return [row["id"] for row in rows] if most is None or len(rows) < most else None


def _ids_beginning_with(prefix: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last id that begins like this; None if none does."""
    digits = prefix.replace("-", "")
    if not digits or not set(digits) <= set("0123456789abcdef"):
        return None
    first, last = (UUID(digits[:_DIGITS].ljust(_DIGITS, fill)) for fill in "0f")
    return (first, last) if str(first).startswith(prefix) else None


async def find_by_id(
    connection: Connection, ids: Sequence[UUID], requester: str | None
) -> list[Record]:
    """Return those of these runs and gaps that exist, by start; only what this user requested."""
    rows: list[Record] = [
        *await connection.fetch(_SQL["named_runs"], list(ids), requester),
        *await connection.fetch(_SQL["named_gaps"], list(ids), requester),
    ]
    return sorted(rows, key=lambda row: (row["starts_at"], row["run_id"]))


@dataclass
class Bucket:
    """A piece of a span in one class."""

    number: int
    scheduling_class: str
    runs: Counter[str] = field(default_factory=Counter)
    """The number of runs that overlap it, by state."""
    judgements: Counter[str] = field(default_factory=Counter)
    """The number of those that are over, by judgement."""
    busy: int = 0
    """For how much of it at least one of them occupies time."""


async def buckets(connection: Connection, wanted: RunFilter, resolution: int) -> list[Bucket]:
    """Return the runs in equal pieces of a span, by start and class; empty ones are left out."""
    found: dict[tuple[int, str], Bucket] = {}
    arguments = (
        wanted.since,
        wanted.before,
        resolution,
        wanted.requester,
        wanted.classes,
        wanted.participant,
    )
    for row in await connection.fetch(_SQL["buckets"], *arguments):
        number, name = row["number"], row["lane"]
        bucket = found.setdefault((number, name), Bucket(number, name))
        if row["state"] is None:
            bucket.busy = row["busy"]
        else:
            bucket.runs[row["state"]] += row["runs"]
            if row["judgement"] is not None:
                bucket.judgements[row["judgement"]] += row["runs"]
    return list(found.values())


decisions: Query[[UUID, int | None, int], list[Record]] = _SQL.records("decisions")
"""The planning attempts of a task, or only those of one slot; newest first."""


async def find_ended(connection: Connection, some: Sequence[UUID]) -> list[EndedRun]:
    """Return those of some runs that are over."""
    rows = await connection.fetch(_SQL["ended"], list(some), list(runstate.OVER))
    return [
        EndedRun(**{**row, "participants": PARTICIPANTS.validate_python(row["participants"])})
        for row in rows
    ]


count_by_state: Query[[], list[tuple[str, str, int]]] = _SQL.rows("counts", as_tuple)
"""The number of runs by state and class."""


async def purge(connection: Connection, before: int, at_most: int, *, finished: bool) -> int:
    """Delete runs that ended before, the finished ones or all others; return how many."""
    return int(await connection.fetchval(_SQL["purge_runs"], before, finished, at_most))


purge_gaps: Purge = _SQL.value("purge_gaps")
"""Delete gaps whose last slot was before; return how many."""

purge_decisions: Purge = _SQL.value("purge_decisions")
"""Delete old planning attempts; return how many."""

purge_surplus: Purge = _SQL.value("purge_surplus_runs")
"""Delete ended runs of other leads beyond the latest ``kept`` of each; return how many.

Leads that share a cap of the limits are one.
"""

purge_surplus_exchanges: Purge = _SQL.value("purge_surplus_exchanges")
"""Delete exchanges of other leads without runs, beyond the latest ``kept`` of each."""

purge_exchanges: Purge = _SQL.value("purge_exchanges")
"""Delete exchanges decided before that have no runs any more; return how many."""

purge_negotiations: Purge = _SQL.value("purge_negotiations")
"""Delete the lead's side of exchanges decided before; return how many."""

purge_idempotency: Purge = _SQL.value("purge_idempotency")
"""Delete old Idempotency-Keys; return how many."""

schedule_at: Query[[int, int, int, int | None, UUID | None, str | None, int], list[Record]] = (
    _SQL.records("as_of")
)
"""A page of the runs of a span, in the states that they had at an instant.

Takes ``at``, ``since``, ``before``, start and id of the last run of the page before, ``requester``,
``limit``.
"""

changes_between: Query[[int, int, int, int, str | None, int], list[Record]] = _SQL.records(
    "changes"
)
"""The runs of a span that were booked otherwise at ``earlier`` than at ``later``.

Takes ``earlier``, ``later``, ``since``, ``before``, ``requester``, ``limit``.
"""
