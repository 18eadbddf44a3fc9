"""Time that several campaigns want, over HTTP: a burst of some minutes is divided by weight."""

from __future__ import annotations

import re

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json
from tests.acceptance.seeds.scene import Scene

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("scene", "tidy"),
]


async def _burst(scene: Scene, campaign: str) -> list[Json]:
    """Ask for twelve runs of a minute within four minutes, in which twelve have room."""
    return [await scene.pooled(minutes=1, slip=3, campaign=campaign) for _ in range(12)]


async def test_who_comes_later_is_given_its_part(scene: Scene) -> None:
    """The first has all twelve places, and gives nine back to one of three times its weight."""
    await scene.policies("campaign-default")
    light = await scene.campaign("light")
    first = await _burst(scene, light)
    assert await scene.given(12, first) == [12]
    heavy = await scene.campaign("heavy", weight=3)
    later = await _burst(scene, heavy)
    await scene.lead.until(
        f"/v1/campaigns/{heavy}/why",
        lambda found: [it["had"] for it in found["items"]] == [540],
    )
    assert await scene.given(12, first, later) == [3, 9]
    [why] = (await scene.lead.get(f"/v1/campaigns/{heavy}/why"))["items"]
    assert (why["depth"], why["weight"], why["behind"] <= 60) == (0, 3, True), why
    [other] = why["others"]
    assert (other["campaign"], abs(other["had"] - other["due"]) <= 60) == (light, True), why
    shown = await parley(scene.lead, "campaign", "why", light, "-o", "table")
    assert re.search(rf"{heavy} \d+ of \d+", shown.out), shown
