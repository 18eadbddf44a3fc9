"""Following a run from its plan to its result, and what its end means for the exit code."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.cli.intervals import STREAMED, tell_new
from node.cli.references import short
from node.cli.times import clock_time, duration_in_words, local
from node.model import times
from node.model.errors import NotFound, RefusedByParticipant
from node.model.taskstate import TaskState

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.model.wire.runs import Run
    from node.model.wire.tasks import Task

PENDING = ("waiting", "held", "scheduled", "set-aside")
"""States of a run that has not begun."""

OPEN = (*PENDING, "running", "merging")
"""States of a run that has not come to its end."""

NO_RESULT = 1
NO_TIME = 4
_VERDICTS = {"finished": 0, "displaced": NO_TIME, "unplaced": NO_TIME}
_LONG_STATES = frozenset({"waiting", "running", "merging"})
_LONGEST_WAIT_S = 20
_SUCCESSOR_QUESTIONS = 20
_TICK_S = 0.5
_PAUSE_S = 0.1
"""Between two questions, so that a node that does not wait is not flooded."""


def verdict(run: Run) -> int:
    """The exit code that a run's end stands for."""
    return _VERDICTS.get(run.state, NO_RESULT)


def situation(run: Run, now: int) -> str:
    """Where a run is, in one line."""
    on = ", ".join(run.participants)
    if run.state == "waiting":
        return f"{run.test}: no time yet, {run.reason or 'still being tried'}"
    if run.state == "running":
        left = run.ends_at - now
        return f"{run.test} running on {on}" + (
            f", {duration_in_words(left)} left" if left > 0 else ""
        )
    if run.state == "merging":
        return f"{run.test}: waiting for the parts of the other participants"
    if run.state in OPEN:
        when = f"planned for {clock_time(run.starts_at)} on {on}"
        left = run.starts_at - now
        return f"{run.test} {when}, " + (
            f"starts in {duration_in_words(left)}" if left > 0 else "starting"
        )
    return f"{run.test} {run.state}" + (f": {run.reason}" if run.reason else "")


@dataclass
class _Watched:
    run: Run
    clock_offset: int
    """The node's clock minus ours, for a countdown that is right on any screen."""
    told: int | None = None
    """The last interval of it that was shown, of a run that gives a result for each."""


async def follow_run(session: Session, run: Run) -> Run:
    """The run when it is over; a displaced one is followed to the place it gets next."""
    session.followed = session.followed or f"run {short(run.id)}"
    while True:
        run = await _until_over(session, run)
        if run.state != "displaced":
            return run
        successor = await _successor(session, run)
        if successor is None:
            return run
        session.progress.note(f"displaced: {run.reason}; placed again as {short(successor.id)}")
        run = successor


async def follow_task(session: Session, task: Task) -> Run:
    """The task's next run, or its last one if none will come, when it is over.

    :raises RefusedByParticipant: a participant will not take part, so there will be no run.
    :raises NotFound: the task ended without a run.
    """
    session.followed = f"task {short(task.id)}"
    session.progress.status(f"{task.test.type}: asking the participants for a time", "planning")
    task = await session.client.until_planned(task.id)
    if task.state == TaskState.ACTIVE and not task.planned:
        far = f"its first run is planned from {local(task.plan_at)} on, when it comes closer"
        session.progress.status(f"{task.test.type}: {far}", "far")
    run = await session.client.until_run(task.id, OPEN)
    if run is None:
        run = await _last_run(session, task)
    return await follow_run(session, run)


async def _last_run(session: Session, task: Task) -> Run:
    newest = await session.client.runs(task=task.id, limit=1)
    if newest.items:
        return newest.items[0]
    task = await session.client.task(task.id)
    reason = task.reason or "it has no reason on record"
    if task.state == TaskState.REFUSED:
        raise RefusedByParticipant(reason)
    msg = f"task {short(task.id)} is {task.state} and has no run: {reason}"
    raise NotFound(msg)


async def _successor(session: Session, run: Run) -> Run | None:
    """The next attempt of the same slot, which the lead makes while the slot's window lasts."""
    for _ in range(_SUCCESSOR_QUESTIONS):
        found = await session.client.runs(
            task=run.task, states=OPEN, starts=run.slot, oldest_first=True
        )
        for other in found.items:
            if other.slot == run.slot and other.attempt > run.attempt:
                return other
        await session.clock.sleep(_TICK_S)
    return None


async def _until_over(session: Session, run: Run) -> Run:
    if run.state not in OPEN:
        return await session.client.run(run.id)
    offset = (await session.client.clock()).now - session.clock.now()
    watched = _Watched(run, offset)
    async with _shown(session, watched):
        while watched.run.state in OPEN:
            wait_s = _patience(watched.run, session.clock.now() + offset)
            if watched.run.scheduling_class == STREAMED and watched.run.state in _LONG_STATES:
                watched.told = await tell_new(session, run, watched.told, wait_s)
                wait_s = 0
            watched.run = await session.client.run(run.id, wait_s=wait_s)
            _show(session, watched)
            if watched.run.state in OPEN:
                await session.clock.sleep(_PAUSE_S)
        if watched.told is not None:
            await tell_new(session, run, watched.told, 0)
    return watched.run


def _patience(run: Run, now: int) -> int:
    """How long to wait for the end before asking again, so that the start is not overlooked."""
    if run.state in _LONG_STATES:
        return _LONGEST_WAIT_S
    to_start = math.ceil((run.starts_at - now) / times.SECOND)
    return max(1, min(to_start, _LONGEST_WAIT_S))


@asynccontextmanager
async def _shown(session: Session, watched: _Watched) -> AsyncIterator[None]:
    """Keep the status line counting on a terminal; elsewhere say what is new."""
    _show(session, watched)
    ticking = asyncio.create_task(_tick(session, watched)) if session.progress.terminal else None
    try:
        yield
    finally:
        if ticking is not None:
            ticking.cancel()
        session.progress.clear()


async def _tick(session: Session, watched: _Watched) -> None:
    while True:
        _show(session, watched)
        await session.clock.sleep(_TICK_S)


def _show(session: Session, watched: _Watched) -> None:
    run = watched.run
    text = f"{situation(run, session.clock.now() + watched.clock_offset)}  (run {short(run.id)})"
    session.progress.status(text, f"{run.state} {run.reason} {run.starts_at}")
