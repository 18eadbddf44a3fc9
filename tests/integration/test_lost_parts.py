"""No run stays in progress: one that cannot be stored, merged or watched fails with a reason."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.execution.launcher import LaunchOutcome
from node.model import times
from node.model.late_runs import LOST_RUN_TIMEOUT
from node.model.reasons import track_lost
from node.store import runs
from node.store.runs import DueRun, KeptPart
from tests.support.clocks import START
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def _started(world: World) -> tuple[Site, Site, UUID, DueRun]:
    """Start a run of a and b, led by a, on both; return it with b's part."""
    a, b = await world.site("a"), await world.site("b")
    [run] = await book_everywhere(introduction([a, b]), a, [a, b], [HOUR])
    async with b.database.connection() as connection:
        [due] = await runs.due_runs(connection, 0, HOUR + 1)
    world.clock.move_to(HOUR)
    for site in (a, b):
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
    return a, b, run, due


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (LaunchOutcome(None, "a complaint \x00" * 500, HOUR), "a complaint"),
        (LaunchOutcome({"slept": "\x00"}, None, HOUR), "its result could not be kept"),
        (LaunchOutcome({"slept_ms": 1 << 70}, None, HOUR), "its result could not be kept"),
    ],
)
@pytest.mark.mostly_nightly
async def test_a_part_that_cannot_be_kept_fails_the_run(
    world: World, outcome: LaunchOutcome, reason: str
) -> None:
    """A part that Postgres or a message cannot hold fails the run at the lead, too."""
    a, b, run, due = await _started(world)
    world.clock.move_to(HOUR + DURATION)
    await b.node.launcher._keep(due, outcome)
    assert await b.state(run) == "failed"
    [part] = await b.rows("SELECT * FROM part")
    assert (part["participant"], part["name"], part["started_at"]) == (1, "b", HOUR)
    await a.node.collector.keep_own(run, KeptPart(0, "a", {"slept_ms": 1.0}, None, HOUR, HOUR))
    await world.settle()
    assert await a.state(run) == "failed"
    assert (await a.reason(run) or "").startswith(f"b: {reason}")


async def test_a_run_nobody_executes_any_more_is_marked(world: World) -> None:
    """A run that is still running long after its end fails."""
    _, b, run, _ = await _started(world)
    world.clock.move_to(HOUR + DURATION + LOST_RUN_TIMEOUT)
    await b.node.launcher.run_once()
    assert await b.state(run) == "running"
    world.clock.advance(1)
    await b.node.launcher.run_once()
    assert await b.state(run) == "failed"
    assert await b.reason(run) == track_lost()


async def test_a_plugin_that_stumbles_fails_only_its_own_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge that raises an error fails its run, and housekeeping continues."""
    a, _, run, _ = await _started(world)
    await a.node.collector.keep_own(run, KeptPart(0, "a", {"slept_ms": 1.0}, None, HOUR, HOUR))

    def stumble(*_: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(a.node.capabilities.tests["idle"], "merge", stumble)
    world.clock.move_to(HOUR + DURATION + times.MINUTE)
    await a.tend()
    assert await a.state(run) == "failed"
    assert "ZeroDivisionError" in (await a.reason(run) or "")
