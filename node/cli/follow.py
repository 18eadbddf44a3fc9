"""Follow a run from its plan to its result, and derive the exit code from its end."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.cli.giving_up import Followed
from node.cli.intervals import STREAMED, note_new
from node.cli.output import readable_text
from node.cli.references import short
from node.cli.times import clock_time, duration_in_words, local_time_text
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
"""States of a run that has not ended."""

_LONG_STATES = frozenset({"waiting", "running", "merging"})
_LONGEST_WAIT_S = 20
_SUCCESSOR_QUESTIONS = 20
_TICK_S = 0.5
_PAUSE_S = 0.1
"""Pause between two requests, so that a node that answers at once is not flooded."""


def status_line(run: Run, now: int) -> str:
    """Return the state of an open run in one line, with the time left."""
    if run.state == "waiting":
        return f"{run.headline}: no time yet, {readable_text(run.reason or 'still being tried')}"
    if run.state == "running":
        left = run.ends_at - now
        return f"{run.headline}: running" + (
            f", {duration_in_words(left)} left" if left > 0 else ""
        )
    if run.state == "merging":
        return f"{run.headline}: waiting for the parts of the other participants"
    if run.state in OPEN:
        left = run.starts_at - now
        return f"{run.headline}: planned for {clock_time(run.starts_at)}, " + (
            f"starts in {duration_in_words(left)}" if left > 0 else "starting"
        )
    return f"{run.headline}: {run.state}" + (f": {readable_text(run.reason)}" if run.reason else "")


@dataclass
class _Watched:
    run: Run
    clock_offset: int
    """The node's clock minus ours, in microseconds, so that the countdown is right on any host."""
    last_interval: int | None = None
    """The number of the last interval that was printed, for a run with intervals."""


async def follow_run(session: Session, run: Run) -> Run:
    """Wait until a run is over and return it; follow a displaced run to its next attempt."""
    session.followed = session.followed or Followed("run", run.id)
    while True:
        run = await _await_end(session, run)
        if run.state != "displaced":
            return run
        successor = await _find_successor(session, run)
        if successor is None:
            return run
        why = readable_text(run.reason)
        session.progress.note(f"displaced: {why}; placed again as {short(successor.id)}")
        run = successor


async def follow_task(session: Session, task: Task) -> Run:
    """Wait until the task's next run is over and return it, or its last run if none will come.

    :raises RefusedByParticipant: a participant refused the task, so there will be no run.
    :raises NotFound: the task ended without a run.
    """
    session.followed = Followed("task", task.id)
    session.progress.status(f"{task.headline}: asking the participants for a time", "planning")
    task = await session.client.until_planned(task.id)
    if task.state == TaskState.ACTIVE and not task.planned:
        plan_at = local_time_text(task.plan_at)
        later = f"its first run will be planned from {plan_at} on, closer to its start"
        session.progress.status(f"{task.headline}: {later}", "far")
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
    raise NotFound(f"task {short(task.id)} is {task.state} and has no run: {reason}")


async def _find_successor(session: Session, run: Run) -> Run | None:
    """Return the next attempt of a displaced run's slot; None if its lead makes none in time."""
    for _ in range(_SUCCESSOR_QUESTIONS):
        page = await session.client.runs(
            task=run.task, states=OPEN, starts=run.slot, oldest_first=True
        )
        for other in page.items:
            if other.slot == run.slot and other.attempt > run.attempt:
                return other
        await session.clock.sleep(_TICK_S)
    return None


async def _await_end(session: Session, run: Run) -> Run:
    if run.state not in OPEN:
        return await session.client.run(run.id)
    offset = (await session.client.clock()).now - session.clock.now()
    watched = _Watched(run, offset)
    async with _status_display(session, watched):
        while watched.run.state in OPEN:
            wait_s = _seconds_to_wait(watched.run, session.clock.now() + offset)
            if watched.run.scheduling_class == STREAMED and watched.run.state in _LONG_STATES:
                last = await note_new(session, run, watched.last_interval, wait_s)
                watched.last_interval, wait_s = last, 0
            watched.run = await session.client.run(run.id, wait_s=wait_s)
            _update_status(session, watched)
            if watched.run.state in OPEN:
                await session.clock.sleep(_PAUSE_S)
        if watched.last_interval is not None:
            await note_new(session, run, watched.last_interval, 0)
    return watched.run


def _seconds_to_wait(run: Run, now: int) -> int:
    """Return how long the next question may wait (s): until the start of the run at the latest."""
    if run.state in _LONG_STATES:
        return _LONGEST_WAIT_S
    to_start = math.ceil((run.starts_at - now) / times.SECOND)
    return max(1, min(to_start, _LONGEST_WAIT_S))


@asynccontextmanager
async def _status_display(session: Session, watched: _Watched) -> AsyncIterator[None]:
    """Show the status line meanwhile: twice a second on a terminal, elsewhere at each change."""
    _update_status(session, watched)
    from asyncio import create_task  # slow to load, which lists do not need

    ticking = (
        create_task(_update_status_forever(session, watched)) if session.progress.terminal else None
    )
    try:
        yield
    finally:
        if ticking is not None:
            ticking.cancel()
        session.progress.clear()


async def _update_status_forever(session: Session, watched: _Watched) -> None:
    while True:
        _update_status(session, watched)
        await session.clock.sleep(_TICK_S)


def _update_status(session: Session, watched: _Watched) -> None:
    run = watched.run
    text = f"{status_line(run, session.clock.now() + watched.clock_offset)}  (run {short(run.id)})"
    session.progress.status(text, f"{run.state} {run.reason} {run.starts_at}")
