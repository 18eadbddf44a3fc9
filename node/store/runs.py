"""The runs of this node: launching, parts, ends, and lists for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model import runstate
from node.model.runstate import RunState
from node.model.wire.tasks import PARTICIPANTS, Participant
from node.store.database import Connection, Queries, Record

_SQL = Queries("node.store", "runs")


@dataclass(frozen=True)
class DueRun:
    """All that is needed to launch this node's part; no ``participant`` where it only leads."""

    id: UUID
    task: UUID
    participant: int | None
    starts_at: int
    ends_at: int
    test: str
    tool: str | None
    spec: dict[str, Any]
    participants: tuple[Participant, ...]
    addresses: dict[str, str]
    data: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class LockedRun:
    """A run nobody else can change until the transaction ends."""

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


@dataclass(frozen=True)
class KeptPart:
    """One participant's part as kept."""

    participant: int
    name: str
    result: dict[str, Any] | None
    reason: str | None
    started_at: int | None
    finished_at: int | None
    command: tuple[str, ...] | None = None
    output: str | None = None
    circumstances: dict[str, Any] | None = None


@dataclass(frozen=True)
class RunConclusion:
    """The merged outcome of a run."""

    state: RunState
    reason: str | None
    result: dict[str, Any] | None
    summary: str | None
    verdict: str | None = None
    verdict_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunStateChange:
    """A run whose state was changed."""

    id: UUID
    task: UUID


@dataclass(frozen=True)
class RunFilter:
    """Which runs, and which page of them; None everywhere means all of them, newest first."""

    task: UUID | None = None
    states: Sequence[str] | None = None
    test: str | None = None
    prefix: str | None = None
    since: int | None = None
    before: int | None = None
    after_start: int | None = None
    after_run: UUID | None = None
    ascending: bool = False
    limit: int = 50


async def due_runs(connection: Connection, before: int) -> list[DueRun]:
    """Committed runs that start before then, in start order."""
    rows = await connection.fetch(_SQL["due_runs"], before)
    return [_due(dict(row)) for row in rows]


def _due(row: dict[str, Any]) -> DueRun:
    return DueRun(
        id=row.pop("id"),
        task=row.pop("task_id"),
        participants=PARTICIPANTS.validate_python(row.pop("participants")),
        **row,
    )


async def next_start(connection: Connection, after: int) -> int | None:
    """When the first run from then on starts; it may be held only."""
    found: int | None = await connection.fetchval(_SQL["next_start"], after)
    return found


async def begin(connection: Connection, run: UUID, now: int) -> bool:
    """Booked becomes running; False if it was taken back."""
    return await connection.fetchval(_SQL["begin"], run, now) is not None


async def unconfirmed(
    connection: Connection, asked: Sequence[UUID], now: int
) -> dict[UUID, list[str]]:
    """Names of those who did not confirm a run led here, and must have dropped it by then, by run.

    Runs that nobody must have dropped are not in it.
    """
    names: dict[UUID, list[str]] = {}
    for run, name in await connection.fetch(_SQL["unconfirmed"], asked, now):
        names.setdefault(run, []).append(name)
    return names


async def keep_process(
    connection: Connection, run: UUID, started_at: int, process: int, ticks: int
) -> None:
    """Remember the process, so that a later start of the service can end what is left of it."""
    await connection.execute(_SQL["process"], run, started_at, process, ticks)


async def lock(connection: Connection, run: UUID) -> LockedRun | None:
    """Lock a run, and its task against being ended meanwhile; None if it is unknown here."""
    found = await lock_all(connection, [run])
    return found[0] if found else None


async def lock_all(connection: Connection, runs: Sequence[UUID]) -> list[LockedRun]:
    """The same of several; those that are known here, in the order of their ids."""
    await connection.execute(_SQL["lock_task_of"], list(runs))
    rows = await connection.fetch(_SQL["lock"], list(runs))
    return [_locked(dict(row)) for row in rows]


def _locked(values: dict[str, Any]) -> LockedRun:
    return LockedRun(
        id=values.pop("id"),
        task=values.pop("task_id"),
        state=RunState(values.pop("state")),
        participants=PARTICIPANTS.validate_python(values.pop("participants")),
        **values,
    )


async def keep_part(connection: Connection, run: UUID, part: KeptPart) -> bool:
    """Keep a part; False if that participant's part is there already."""
    kept = await connection.fetchval(
        _SQL["keep_part"],
        run,
        part.participant,
        part.name,
        part.result,
        part.reason,
        part.started_at,
        part.finished_at,
        None if part.command is None else list(part.command),
        part.output,
        part.circumstances,
    )
    return kept is not None


async def parts(connection: Connection, run: UUID) -> list[KeptPart]:
    """All parts that are here, in participant order."""
    return [
        KeptPart(
            row[0],
            row[1],
            row[2],
            row[3],
            row[4],
            row[5],
            None if row[6] is None else tuple(row[6]),
            row[7],
            row[8],
        )
        for row in await connection.fetch(_SQL["parts"], run)
    ]


async def add_reason(connection: Connection, run: UUID, words: str) -> None:
    """More of why a run is over."""
    await connection.execute(_SQL["add_reason"], run, words)


async def keep_winner(connection: Connection, run: UUID, winner: UUID) -> None:
    """By which run a displaced one was displaced, if that is not known here yet."""
    await connection.execute(_SQL["keep_winner"], run, winner)


async def move(
    connection: Connection, runs: Sequence[UUID], state: RunState, reason: str | None, now: int
) -> list[RunStateChange]:
    """Change the state of those runs that may enter it; those that did."""
    rows = await connection.fetch(
        _SQL["move"],
        list(runs),
        state,
        reason,
        now,
        state in runstate.OVER,
        runstate.predecessors(state),
    )
    return [RunStateChange(row[0], row[1]) for row in rows]


async def conclude(connection: Connection, run: UUID, outcome: RunConclusion, now: int) -> bool:
    """Keep the merged outcome; False if the run may not end that way (any more)."""
    done = await connection.fetchval(
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
    )
    return done is not None


async def without_parts(connection: Connection, ended_before: int) -> list[UUID]:
    """Runs led here that wait for parts although they ended before then."""
    return [row[0] for row in await connection.fetch(_SQL["without_parts"], ended_before)]


async def interrupted(connection: Connection) -> list[tuple[UUID, int | None, int | None]]:
    """Runs that a gone process of this node left running: id, process, its start ticks."""
    return [tuple(row) for row in await connection.fetch(_SQL["interrupted"])]


async def overrun(connection: Connection, ended_before: int) -> list[UUID]:
    """Runs with a part of this node that still run although they should have ended before then."""
    return [row[0] for row in await connection.fetch(_SQL["overrun"], ended_before)]


async def overslept(connection: Connection, started_before: int) -> list[UUID]:
    """Committed runs with a part of this node that should have started before then."""
    return [row[0] for row in await connection.fetch(_SQL["overslept"], started_before)]


async def taken_back(connection: Connection, executing: Sequence[UUID]) -> list[UUID]:
    """Those of the runs being executed that have been ended meanwhile."""
    if not executing:
        return []
    return [row[0] for row in await connection.fetch(_SQL["taken_back"], list(executing))]


async def open_runs_of_tasks(connection: Connection, tasks: Sequence[UUID]) -> list[UUID]:
    """The runs of these tasks that are not over."""
    return [row[0] for row in await connection.fetch(_SQL["open_runs_of_tasks"], list(tasks))]


async def cut_runs_of_task(connection: Connection, task: UUID, now: int) -> list[UUID]:
    """The task's runs that failed here before their booked end, which is still to come."""
    return [row[0] for row in await connection.fetch(_SQL["cut_runs_of_task"], task, now)]


@dataclass(frozen=True)
class NextAttempt:
    """The next attempt of a run's slot."""

    run: UUID
    following: UUID
    attempt: int
    reason: str


async def wait_again(
    connection: Connection, attempts: Sequence[NextAttempt], now: int
) -> list[tuple[UUID, int]]:
    """Make these attempts; task and slot of each, but where there is one or the task has ended."""
    rows = await connection.fetch(
        _SQL["wait_again"],
        [each.run for each in attempts],
        [each.following for each in attempts],
        [each.attempt for each in attempts],
        [each.reason for each in attempts],
        now,
    )
    return [(row[0], row[1]) for row in rows]


async def shown(connection: Connection, run: UUID) -> Record | None:
    """One row of the view ``run_known``; None if the run is unknown here."""
    row: Record | None = await connection.fetchrow(_SQL["run"], run)
    return row


async def listed(connection: Connection, wanted: RunFilter) -> list[Record]:
    """Rows of the view ``run_known`` for people."""
    rows: list[Record] = await connection.fetch(
        _SQL["runs_forward" if wanted.ascending else "runs_backward"],
        wanted.task,
        None if wanted.states is None else list(wanted.states),
        wanted.test,
        wanted.prefix,
        wanted.since,
        wanted.before,
        wanted.after_start,
        wanted.after_run,
        wanted.limit,
    )
    return rows


async def decisions(
    connection: Connection, task: UUID, slot: int | None, limit: int
) -> list[Record]:
    """Planning attempts of a task, or those that dealt with one slot; newest first."""
    rows: list[Record] = await connection.fetch(_SQL["decisions"], task, slot, limit)
    return rows


async def counts(connection: Connection) -> list[tuple[str, str, int]]:
    """Runs by state and class."""
    return [(row[0], row[1], row[2]) for row in await connection.fetch(_SQL["counts"])]


async def purge(
    connection: Connection, finished_before: int, failed_before: int, now_less_a_day: int
) -> None:
    """Delete what is older than it is kept."""
    await connection.execute(_SQL["purge"], finished_before, failed_before)
    await connection.execute(_SQL["purge_decisions"], finished_before)
    await connection.execute(_SQL["purge_exchanges"], now_less_a_day)
    await connection.execute(_SQL["purge_negotiations"], now_less_a_day)
    await connection.execute(_SQL["purge_idempotency"], now_less_a_day)
