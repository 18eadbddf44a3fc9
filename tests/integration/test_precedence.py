"""Tasks of a higher level have the time before others that are planned in the same look."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from lead.exchange import workers
from node.model import times
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.tasks import TaskDocument
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import ON_ONE_LOOP, Call, Site, World

pytestmark = ON_ONE_LOOP

AT = times.format_instant(START + times.HOUR)
LEVELS = {"low": 2, "high": 8}


async def _post(site: Site, campaign: str, *nodes: str) -> UUID:
    """Create a task of a campaign that wants the same ten minutes of these nodes."""
    spec = {"duration": "PT10M", "class": "exclusive", "participants": list(nodes)}
    document = {
        "test": {"type": "idle", "spec": spec},
        "schedule": {"start": AT, "slip": "PT0S"},
        "campaign": campaign,
    }
    task, _ = await site.node.admission.create(TaskDocument.model_validate(document), None)
    site.clock.advance(times.SECOND)
    return task


async def _campaigns(site: Site) -> None:
    for name, level in LEVELS.items():
        document = CampaignDocument.model_validate({"name": name, "level": level})
        await site.node.campaigns.create(document)


@pytest.mark.parametrize("nodes", [("a",), ("b",), ("a", "b")])
@pytest.mark.parametrize("order", [("low", "high"), ("high", "low")])
@pytest.mark.mostly_nightly
async def test_the_higher_level_has_the_time(
    world: World, nodes: tuple[str, ...], order: tuple[str, str]
) -> None:
    """The task of the higher level has an instant that two want, whichever was posted first."""
    a, _ = await world.two()
    await _campaigns(a)
    tasks = {campaign: await _post(a, campaign, *nodes) for campaign in order}
    await a.plan()
    await world.settle()
    rows = await a.rows("SELECT task_id FROM run WHERE state = 'booked'")
    assert [row[0] for row in rows] == [tasks["high"]]


async def test_a_level_comes_first_when_time_is_freed(world: World) -> None:
    """Time that a cancelled run leaves goes to the highest level among those that wait for it."""
    a, _ = await world.two()
    await _campaigns(a)
    first = await _post(a, "low", "a")
    await a.plan()
    await _post(a, "low", "a", "b")
    high = await _post(a, "high", "a")
    await a.plan()
    await a.node.termination.cancel_task(first)
    await world.pass_time(10 * times.SECOND)
    rows = await a.rows("SELECT task_id FROM run WHERE state = 'booked'")
    assert [row[0] for row in rows] == [high]


async def test_a_slow_node_of_a_higher_level_holds_up_nobody_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is planned although one of a higher level on the same node waits for an answer."""
    monkeypatch.setattr(workers, "_PRECEDENCE_S", 0.05)
    a, b = await world.two()
    await _campaigns(a)
    high, low = await _post(a, "high", "a", "b"), await _post(a, "low", "a")
    low_is_held = asyncio.Event()

    async def slow(call: Call, phase: str) -> None:
        if (call[1], call[2], phase) == (b.name, "propose", "asked"):
            await low_is_held.wait()
        elif (call[2], phase) == ("hold", "answered"):
            low_is_held.set()

    world.watch = slow
    async with asyncio.timeout(PATIENCE_S):
        await a.plan()
    rows = await a.rows("SELECT task_id FROM run WHERE state = 'booked'")
    assert [row[0] for row in rows] == [low] != [high]
