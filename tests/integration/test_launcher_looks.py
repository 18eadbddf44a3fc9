"""When a launcher looks, what it finds then, and what it does before it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.execution import process
from node.execution.launcher import LAUNCH_HORIZON, Launcher
from node.execution.process import RunningProcess
from node.model import times
from node.model.errors import DatabaseUnavailable
from node.model.late_runs import LOST_RUN_TIMEOUT
from node.store import bookings, runs
from node.store.database import Notice
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
SOON = HOUR + 15 * times.SECOND
RUN = str(uuid4())


@asynccontextmanager
async def _looking(launcher: Launcher) -> AsyncIterator[asyncio.Task[None]]:
    """Let a launcher look as in a service; stop it afterwards."""
    running = asyncio.create_task(launcher.run())
    try:
        yield running
    finally:
        running.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("notice", "looks"),
    [
        (Notice("exchange", RUN, ("committed",)), True),
        (Notice("changed", RUN, ()), True),
        (Notice("wake", "", ()), True),
        (Notice("task", RUN, ("cancelled",)), True),
        (Notice("task", RUN, ("refused",)), True),
        (Notice("task", RUN, ("finished",)), False),
        (Notice("run", RUN, ("task", "running")), False),
        (Notice("node", "", ()), False),
    ],
)
async def test_a_launcher_looks_when_something_changed(
    world: World, monkeypatch: pytest.MonkeyPatch, notice: Notice, looks: bool  # noqa: FBT001
) -> None:
    """It looks at once after what may bring or end a run, also if it is heard during a look."""
    launcher = (await world.site("a")).node.launcher
    turns, waits = 0, list[bool]()

    async def look() -> float:
        nonlocal turns
        turns += 1
        if turns == 1:
            launcher.heard(notice)
        return 5.0

    async def wait(_: float) -> bool:
        waits.append(launcher._woken.is_set)
        await asyncio.Event().wait()
        return True
