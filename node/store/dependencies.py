"""Tasks that follow others: the runs that the end of a run leads to, in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from node.model import runstate
from node.model.dependencies import EndedRun, Follower, FollowingRun, following_runs
from node.model.ids import TaskId, run_id
from node.model.outcome import Figure, Judgement
from node.model.outcomes import PlanningOutcome
from node.model.reasons import placed_again, task_changed
from node.model.runstate import RunState
from node.model.wire.tasks import PER_HOUR_MAX, Dependency
from node.store import changes, notices, runs, tasks
from node.store.changes import TaskChange
from node.store.database import Connection, Record
from node.store.runs import NextAttempt
from node.store.statements import Query, Statements, columns_of

_SQL = Statements("node.store", "dependencies")


@dataclass(frozen=True)
class FollowedTask:
    """A task that another one is to follow, or one that this one follows in turn."""

    id: UUID
    test: str
    lead: str
    state: str
    parent: UUID | None
    pooled: bool
    reference: Any


async def create_followers(
    connection: Connection,
    ended: Sequence[UUID],
    now: int,
    figures: Mapping[UUID, Sequence[Figure]] = MappingProxyType({}),
) -> None:
    """Create what follows these runs, which are led here and have just ended for good.

    ``figures`` are those of the runs that have some. What the runs raised has to be kept before.
    The runs of a task that ends with them need not be given: what follows it ends as well.
    However many there are, one query has all that decides.
    """
    if not ended:
        return
    rows = await connection.fetch(
        _SQL["followers"], list(ended), sorted(runstate.OVER), PER_HOUR_MAX
    )
    following = following_runs(((_ended_run(row, figures), _follower(row)) for row in rows), now)
    if following:
        await _keep(connection, list(following.values()), now)


def _ended_run(row: Record, figures: Mapping[UUID, Sequence[Figure]]) -> EndedRun:
    return EndedRun(
        row["run"],
        row["followed"],
        RunState(row["state"]),
        row["reason"],
        row["slot"],
        Judgement(row["judgement"] or Judgement.UNKNOWN),
        figures.get(row["run"], ()),
        row["raised"],
    )


def _follower(row: Record) -> Follower:
    return Follower(
        row["task"],
        Dependency.model_validate(row["after"]),
        row["paused"],
        row["attempt"] or 0,
        bool(row["skipped"]),
        row["busy"],
        row["asked_at"] or (),
    )


async def _keep(connection: Connection, every: Sequence[FollowingRun], now: int) -> None:
    rows = await connection.fetch(_SQL["follow"], now, *columns_of(FollowingRun, every))
    kept = {row[0] for row in rows}
    for run in every:
        if run.id not in kept:
            continue
        await notices.notify(connection, "run", run.id, run.task, run.state)
        if run.state is RunState.WAITING:
            await tasks.wake_planning(connection, run.task, now, run.slot)
            await notices.notify(connection, "task", run.task, "plan")
        else:
            skipped = TaskChange(PlanningOutcome.SKIPPED, run.reason, [run.slot])
            await changes.keep_changes(connection, {run.task: skipped}, now)


async def replan_followers(connection: Connection, within: Mapping[UUID, int], now: int) -> None:
    """Plan the runs again that a change of their tasks gave up, if they can still start.

    ``within`` has by task how much later than its slot a run may start, for tasks that follow
    others.
    """
    if not within:
        return
    since = [now - slip for slip in within.values()]
    rows = await connection.fetch(_SQL["given_up"], list(within), since)
    again = [
        NextAttempt(
            row["id"],
            run_id(TaskId(row["task"]), row["slot"], row["attempt"] + 1),
            row["attempt"] + 1,
            placed_again(task_changed()),
        )
        for row in rows
    ]
    for task, slot in await runs.create_waiting_attempts(connection, again, now):
        await tasks.wake_planning(connection, task, now, slot)
        await notices.notify(connection, "task", task, "plan")


lock: Query[[], None] = _SQL.command("lock_dependencies")
"""Let no other transaction change what tasks follow until this one ends."""

dependency_chain: Query[[UUID], list[FollowedTask]] = _SQL.rows("chain", FollowedTask)
"""A task, the one that it follows, and so on; empty if the task is unknown here."""

booked_ends: Query[[UUID], list[int]] = _SQL.column("booked_ends")
"""Return where the booked runs of a task end, those in progress included."""
