"""The document that describes a simulated world."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from lead.simulation.faults import draw_faults
from lead.simulation.scenario import Scenario, built_in, named_scenario, parsed_scenario
from lead.simulation.world import task_arrivals
from node.model.errors import InvalidDocument, MalformedRequest, NotFound
from node.model.times import DAY, HOUR


def test_the_built_in_scenarios_are_valid() -> None:
    """Each built-in scenario is valid and has a title and tasks."""
    scenarios = built_in()
    assert {"absence", "contention", "faults", "leads", "mesh", "pools", "shares", "small"} <= set(
        scenarios
    )
    assert all(scenario.title and scenario.tasks for scenario in scenarios.values())


def test_a_file_may_be_toml_or_json(tmp_path: Path) -> None:
    """A scenario in TOML equals the same one in JSON."""
    toml, text = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text('days = 2\n[nodes]\ncount = 3\nhorizon = "PT6H"\n')
    text.write_text(json.dumps({"days": 2, "nodes": {"count": 3, "horizon": "PT6H"}}))
    assert named_scenario(str(toml)) == named_scenario(str(text))
    assert named_scenario(str(toml)).nodes.horizon == 6 * HOUR
    assert named_scenario(str(toml)).duration == 2 * DAY


def test_the_error_for_an_unknown_name_lists_the_known_ones() -> None:
    """The error for an unknown name lists the built-in scenarios."""
    names = "absence, contention, faults, leads, mesh, pools, shares, small, fleet, pool"
    with pytest.raises(NotFound, match=f"use one of {names}, or a .toml or .json file"):
        named_scenario("mehs")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The error for a missing file names it and the reason."""
    with pytest.raises(NotFound, match="cannot be read: No such file"):
        named_scenario(str(tmp_path / "none.toml"))


def test_a_broken_file_says_where() -> None:
    """The error for an invalid file contains the parser's message."""
    with pytest.raises(MalformedRequest, match="not TOML: Invalid value"):
        parsed_scenario("days = ", ".toml")


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("day = 1", "/day"),
        ("[nodes]\ncount = 0", "/nodes/count"),
        ("[network]\nloss = 2", "/network/loss"),
        ('[network]\ndelay = ["PT1S", "PT0.1S"]', "/network"),
        ('[[tasks]]\nclass = "loud"', "/tasks/0/class"),
        ('[[tasks]]\nlength = "PT1H"\nevery = "PT1M"', "/tasks/0"),
        ('[[tasks]]\nbetween = "random"\nsize = 9', ""),
        ('[[tasks]]\nparticipants = { pool = "all", k = 0 }', "/tasks/0/participants/k"),
        ('[[tasks]]\nparticipants = { pool = "all", k = 2 }', ""),
        ('[[pools]]\nname = "all"\nmatch = { site = "a" }\nlead = "n9"', ""),
    ],
)
def test_a_wrong_field_is_named(text: str, pointer: str) -> None:
    """A validation error points to the field."""
    with pytest.raises(InvalidDocument) as caught:
        parsed_scenario(text, ".toml")
    assert caught.value.faults[0].pointer == pointer


def test_a_mesh_has_every_pair_once() -> None:
    """A mesh has one task for each pair, and every node leads its share of them."""
    arrivals = task_arrivals(Scenario.model_validate({"nodes": {"count": 10}, "tasks": [{}]}))
    pairs = {tuple(arrival.document.test.spec["participants"]) for arrival in arrivals}
    assert len(arrivals) == len(pairs) == 45
    leads = [arrival.lead for arrival in arrivals]
    assert all(3 <= leads.count(node) <= 6 for node in range(10))


def test_groups_without_names_are_distinct() -> None:
    """Two equal groups create separate tasks."""
    arrivals = task_arrivals(Scenario.model_validate({"nodes": {"count": 3}, "tasks": [{}, {}]}))
    assert len({arrival.key for arrival in arrivals}) == 6


@pytest.mark.nightly
def test_a_seed_draws_the_same_world() -> None:
    """Task creations and faults depend on the seed alone."""
    faults = named_scenario("faults")
    again = named_scenario("faults")
    other = faults.model_copy(update={"seed": 2})
    assert task_arrivals(faults) == task_arrivals(again) != task_arrivals(other)
    assert (
        draw_faults(faults, Random(1))
        == draw_faults(again, Random(1))
        != draw_faults(faults, Random(2))
    )


def test_pool_tasks_are_asked_of_the_lead_of_their_pool() -> None:
    """A pool task is created at the lead of its pool, which is n1 by default."""
    match = {"name": {"exists": True}}
    pools = [{"name": "a", "match": match}, {"name": "b", "match": match, "lead": "n3"}]
    tasks = [{"participants": {"pool": name, "k": 2}, "count": 2} for name in "ab"]
    arrivals = task_arrivals(Scenario.model_validate({"pools": pools, "tasks": tasks}))
    assert [arrival.lead for arrival in arrivals] == [0, 0, 2, 2]
    assert all("participants" not in arrival.document.test.spec for arrival in arrivals)
    assert [arrival.document.seats and arrival.document.seats.k for arrival in arrivals] == [2] * 4
