"""Consequences of the end of a run for the tasks that follow its task. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model.ids import RunId, TaskId, run_id
from node.model.reason import Reason
from node.model.reasons import followed_run_ended, follows_run, paused_when_followed_ended
from node.model.runstate import RunState
from node.model.wire.tasks import Dependency, RunOutcome

_WANTED = {
    RunOutcome.SUCCEEDED: frozenset({RunState.FINISHED}),
    RunOutcome.ENDED: frozenset({RunState.FINISHED, RunState.FAILED}),
}
"""The states in which a run is followed. A run that never took place is followed by none."""

_IN_WORDS = {
    RunOutcome.SUCCEEDED: "runs that succeed",
    RunOutcome.ENDED: "runs that have ended",
}


@dataclass(frozen=True)
class EndedRun:
    """A run that is over; ``slot`` is its booked end, where runs that follow it have their slot."""

    id: UUID
    task: UUID
    state: RunState
    reason: str | None
    slot: int


@dataclass(frozen=True)
class Follower:
    """A task that follows the task of a run.

    ``attempt`` is the last run that it has in that slot, 0 if it has none. ``skipped`` says that
    this run was cancelled because of the run that it was to follow.
    """

    task: UUID
    after: Dependency
    paused: bool = False
    attempt: int = 0
    skipped: bool = False


@dataclass(frozen=True)
class FollowingRun:
    """A run to store: it waits for a time, or is cancelled from the beginning, for a reason."""

    id: RunId
    task: UUID
    slot: int
    attempt: int
    state: RunState
    reason: str


def following_run(ended: EndedRun, follower: Follower) -> FollowingRun | None:
    """Return the run that the end of a run leads to; None if there is one already.

    A run that failed may still succeed when a late part arrives: what was cancelled because of it
    is then tried again.
    """
    wanted = ended.state in _WANTED[follower.after.outcome] and not follower.paused
    if follower.attempt and not (wanted and follower.skipped):
        return None
    attempt = follower.attempt + 1
    return FollowingRun(
        id=run_id(TaskId(follower.task), ended.slot, attempt),
        task=follower.task,
        slot=ended.slot,
        attempt=attempt,
        state=RunState.WAITING if wanted else RunState.CANCELLED,
        reason=_why(ended, follower),
    )


def _why(ended: EndedRun, follower: Follower) -> Reason:
    """Return why a run follows the one that has ended, or is skipped."""
    if ended.state in _WANTED[follower.after.outcome]:
        if follower.paused:
            return paused_when_followed_ended(ended.id, ended.task)
        return follows_run(ended.id, ended.task)
    wanted = outcome_text(follower.after)
    return followed_run_ended(ended.id, ended.task, ended.state, wanted, ended.reason)


def outcome_text(after: Dependency) -> str:
    """Return which runs a task follows: ``runs that succeed``."""
    return _IN_WORDS[after.outcome]


def find_cycle(task: UUID, chain: Sequence[UUID]) -> list[UUID] | None:
    """Return the path on which a task would follow itself, from itself to itself; None if none.

    ``chain`` is the task that it is to follow, the one that this one follows, and so on.
    """
    if task not in chain:
        return None
    return [task, *chain[: list(chain).index(task)], task]
