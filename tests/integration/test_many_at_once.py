"""Many runs that are due at the same instant."""

from __future__ import annotations

from dataclasses import replace
from typing import cast
from uuid import uuid4

import pytest

from node.execution import process
from node.execution.launcher import PREPARATION_TIME
from node.execution.observer import PartObservation
from node.execution.process import Confinement, Needs
from node.execution.staggering import STAGGER_INTERVAL
from node.model import times
from node.model.late_runs import START_LATENESS_MAX
from node.model.runstate import RunState
from node.runtime.clock import LatchedEvent
from node.store import runs
from node.store.runs import DueRun
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Site, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


class NoObservation:
    """An observation that does nothing."""

    def begin(self) -> None:
        """Do nothing."""


async def _due(world: World) -> tuple[Site, DueRun]:
    site = await world.site("a")
    await book_everywhere(introduction([site]), site, [site], [HOUR])
    async with site.database.connection() as connection:
        [due] = await runs.due_runs(connection, 0, HOUR + 1)
    return site, due


async def test_they_are_prepared_one_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are prepared one after the other, the last of them in time for the start."""
    site, due = await _due(world)
    launcher, instants = site.node.launcher, list[int]()

    async def until(instant: int, _: LatchedEvent) -> bool:
        instants.append(instant)
        return False

    monkeypatch.setattr(launcher, "_wait_until", until)
    for _ in range(2):
        instants.clear()
        for _ in range(20):
            launcher._launch(replace(due, id=uuid4()), [])
        for task in list(launcher._tasks.values()):
            await task
        await world.settle()
        last = (HOUR - PREPARATION_TIME) // STAGGER_INTERVAL * STAGGER_INTERVAL
        assert instants == [last - place * STAGGER_INTERVAL for place in range(20)]


async def test_who_was_prepared_too_late_does_not_begin(world: World) -> None:
    """A run that was prepared too late is missed, and its program is not released."""
    site, _ = await _due(world)
    launcher, observation = site.node.launcher, cast("PartObservation", NoObservation())
    confinement = Confinement(site.node.tool_runner, Needs(60.0))
    for late, state in ((times.SECOND, None), (START_LATENESS_MAX + 1, RunState.MISSED)):
        running = await process.start(["echo", "begun"], confinement=confinement, held=True)
        try:
            world.clock.move_to(HOUR + late)
            outcome = await launcher._release(running, HOUR, observation, LatchedEvent())
            assert (outcome and outcome.state) == state
        finally:
            if state is not None:
                await running.end(0)
        assert (await running.wait()).stdout == (b"" if state else b"begun\n")
