"""Worlds whose databases, processes, and clocks suffer what those of real nodes suffer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lead.simulation.scenario import Scenario, named_scenario
from lead.simulation.world import simulate
from node.model import times
from tests.soak.seeds import BRIEF, HARD


def troubled(faults: dict[str, float], name: str = BRIEF) -> Scenario:
    """Return a world, whose nodes look into their tables every ten seconds."""
    document: dict[str, Any] = named_scenario(name).model_dump(by_alias=True)
    nodes = document["nodes"] | {"poll": "PT10S"}
    return Scenario.model_validate(
        document | {"nodes": nodes, "faults": document["faults"] | faults}
    )


@pytest.mark.timeout(180)
@pytest.mark.nightly
def test_troubles_break_no_promise() -> None:
    """Leads and APIs die, databases are away, clocks are days wrong; a seed is the same again."""
    faults = {"outages": 200, "clock_jumps": 40, "late_notices": 0.1, "lost_notices": 0.05}
    short = {"days": 0.003, "settle": 8 * times.MINUTE}
    world = troubled(faults, HARD).model_copy(update=short)
    report = simulate(world)
    assert report.violations == ()
    assert report.delivered > 0
    assert report.faults.keys() >= {"crash", "outage", "clock jump"}
    assert report == simulate(world)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "faults",
    [
        {"conflicts": 0.2},
        {"late_notices": 0.3},
        {"lost_notices": 0.1},
        {"outages": 120},
        {"clock_jumps": 40},
    ],
    ids=str,
)
@pytest.mark.nightly
def test_each_trouble_breaks_no_promise(faults: dict[str, float]) -> None:
    """Nodes bear it, and it changes their world."""
    report = simulate(troubled(faults))
    assert report.violations == ()
    assert report.delivered > 5
    assert report != simulate(troubled({}))


@pytest.mark.nightly
def test_processes_of_one_node_share_its_work(tmp_path: Path) -> None:
    """With several leads and APIs everything is delivered, and by another course of events."""
    world = tmp_path / "world.toml"
    world.write_text(
        'days = 0.01\nsettle = "PT10M"\n'
        '[[tasks]]\nbetween = "mesh"\nlength = "PT10S"\nevery = "PT5M"\nslip = "PT2M"\n'
        '[nodes]\ncount = 2\nhorizon = "PT30M"\n'
    )
    alone = named_scenario(str(world))
    nodes = alone.nodes.model_copy(update={"leads": 3, "apis": 2})
    together = alone.model_copy(update={"nodes": nodes})
    one, other = simulate(alone), simulate(together)
    for report in (one, other):
        assert report.violations == ()
        assert report.delivered == report.promised > 1
    assert one.promised == other.promised
