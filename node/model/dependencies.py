"""Consequences of the end of a run for the tasks that follow its task. Pure.

A task that follows without a condition has a run, or one that was skipped with the reason, for each
run of the other. One that has a condition (``when``) is asked for a run only by those that meet it,
and then at most ``per_hour`` times, and not while a run of it is to come or in progress: however
many runs go wrong, it measures the fault, and does not become one. Runs that do not meet the
condition leave nothing. Tasks cannot follow each other in a circle, so no run asks for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model.conditions import parse_condition, what_holds
from node.model.ids import RunId, TaskId, run_id
from node.model.outcome import Figure, Judgement
from node.model.reason import Reason
from node.model.reasons import (
    asked_by_run,
    followed_run_ended,
    follows_run,
    paused_when_followed_ended,
)
from node.model.runstate import RunState
from node.model.times import HOUR
from node.model.wire.tasks import PER_HOUR, Dependency, RunOutcome

_WANTED = {
    RunOutcome.SUCCEEDED: frozenset({RunState.FINISHED}),
    RunOutcome.ENDED: frozenset({RunState.FINISHED, RunState.FAILED}),
}
"""The states in which a run is followed. A run that never took place is followed by none."""

_TOOK_PLACE = frozenset({RunState.FINISHED, RunState.FAILED, RunState.MISSED})
"""The states of runs that may meet a condition."""

_IN_WORDS = {
    RunOutcome.SUCCEEDED: "runs that succeed",
    RunOutcome.ENDED: "runs that have ended",
}


@dataclass(frozen=True)
class EndedRun:
    """A run that is over; ``slot`` is its booked end, where runs that follow it have their slot.

    ``raised`` are the names of the alerts of its task that are raised.
    """

    id: UUID
    task: UUID
    state: RunState
    reason: str | None
    slot: int
    judgement: Judgement = Judgement.UNKNOWN
    figures: Sequence[Figure] = ()
    raised: Collection[str] = ()


@dataclass(frozen=True)
class Follower:
    """A task that follows the task of a run.

    ``attempt`` is the last run that it has in that slot, 0 if it has none. ``skipped`` says that
    this run was cancelled because of the run that it was to follow. Of one with a condition,
    ``busy`` says that a run of it is to come or in progress, and ``asked_at`` when its latest runs
    were asked for.
    """

    task: UUID
    after: Dependency
    paused: bool = False
    attempt: int = 0
    skipped: bool = False
    busy: bool = False
    asked_at: Collection[int] = ()


@dataclass(frozen=True)
class FollowingRun:
    """A run to store: it waits for a time, or is cancelled from the beginning, for a reason."""

    id: RunId
    task: UUID
    slot: int
    attempt: int
    state: RunState
    reason: str


def following_runs(
    ended: Iterable[tuple[EndedRun, Follower]], now: int
) -> dict[UUID, FollowingRun]:
    """Return, by id, the runs that the ends of some runs lead to, which have just ended together.

    Of several that ask the same task for a run, the latest does.
    """
    made: dict[UUID, FollowingRun] = {}
    asked: set[UUID] = set()
    for run, follower in sorted(ended, key=lambda each: -each[0].slot):
        if follower.after.when is None:
            following = following_run(run, follower)
        elif follower.task in asked:
            continue
        elif (following := asked_run(run, follower, now)) is not None:
            asked.add(follower.task)
        if following is not None:
            made[following.id] = following
    return made


def asked_run(ended: EndedRun, follower: Follower, now: int) -> FollowingRun | None:
    """Return the run for which a run that is over asks a task with a condition; None if none.

    It waits for a time like any other run.
    """
    lately = sum(at > now - HOUR for at in follower.asked_at)
    if follower.paused or follower.busy or follower.attempt or ended.state not in _TOOK_PLACE:
        return None
    if lately >= (follower.after.per_hour or PER_HOUR):
        return None
    condition = parse_condition(follower.after.when or "")
    why = what_holds(condition, ended.judgement, ended.figures, ended.raised)
    if why is None:
        return None
    return FollowingRun(
        id=run_id(TaskId(follower.task), ended.slot, 1),
        task=follower.task,
        slot=ended.slot,
        attempt=1,
        state=RunState.WAITING,
        reason=asked_by_run(ended.id, ended.task, why),
    )


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
    if after.when is None:
        return _IN_WORDS[after.outcome]
    return f"at most {after.per_hour or PER_HOUR} runs an hour with {after.when}"


def find_cycle(task: UUID, chain: Sequence[UUID]) -> list[UUID] | None:
    """Return the path on which a task would follow itself, from itself to itself; None if none.

    ``chain`` is the task that it is to follow, the one that this one follows, and so on.
    """
    if task not in chain:
        return None
    return [task, *chain[: list(chain).index(task)], task]
