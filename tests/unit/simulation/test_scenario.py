"""The document that describes a world."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from lead.simulation.faults import draw_faults
from lead.simulation.scenario import Scenario, built_in, named, parsed
from lead.simulation.world import task_arrivals
from node.model.errors import InvalidDocument, MalformedRequest, NotFound
from node.model.times import DAY, HOUR


def test_those_that_come_with_the_program_are_sound() -> None:
    """Each has a title and something to do."""
    found = built_in()
    assert {"contention", "faults", "mesh", "pools", "shares", "small"} <= set(found)
    assert all(scenario.title and scenario.tasks for scenario in found.values())


def test_a_file_may_be_toml_or_json(tmp_path: Path) -> None:
    """The same scenario, written in either."""
    toml, text = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text('days = 2\n[nodes]\ncount = 3\nhorizon = "PT6H"\n')
    text.write_text(json.dumps({"days": 2, "nodes": {"count": 3, "horizon": "PT6H"}}))
    assert named(str(toml)) == named(str(text))
    assert named(str(toml)).nodes.horizon == 6 * HOUR
    assert named(str(toml)).duration == 2 * DAY


def test_an_unknown_name_is_told_the_known_ones() -> None:
    """Whoever mistypes reads what there is."""
    with pytest.raises(
        NotFound, match="contention, faults, mesh, pools, shares, small, fleet; a file ends in"
    ):
        named("mehs")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Its name and the reason are said."""
    with pytest.raises(NotFound, match="cannot be read: No such file"):
        named(str(tmp_path / "none.toml"))


def test_a_broken_file_says_where() -> None:
    """What the parser found is passed on."""
    with pytest.raises(MalformedRequest, match="not TOML: Invalid value"):
        parsed("days = ", ".toml")


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
    """Each fault has a pointer to its field."""
    with pytest.raises(InvalidDocument) as caught:
        parsed(text, ".toml")
    assert caught.value.faults[0].pointer == pointer


def test_a_mesh_has_every_pair_once() -> None:
    """Each pair has one task, and every node leads its share of them."""
    asked = task_arrivals(Scenario.model_validate({"nodes": {"count": 10}, "tasks": [{}]}))
    pairs = {tuple(wish.document.test.spec["participants"]) for wish in asked}
    assert len(asked) == len(pairs) == 45
    leads = [wish.lead for wish in asked]
    assert all(3 <= leads.count(node) <= 6 for node in range(10))


def test_groups_without_names_are_told_apart() -> None:
    """Two groups are two users' wishes, not the same wish made twice."""
    asked = task_arrivals(Scenario.model_validate({"nodes": {"count": 3}, "tasks": [{}, {}]}))
    assert len({wish.key for wish in asked}) == 6


def test_a_seed_draws_the_same_world() -> None:
    """Wishes and faults depend on the seed and on nothing else; another seed is another world."""
    faults = named("faults")
    again = named("faults")
    other = faults.model_copy(update={"seed": 2})
    assert task_arrivals(faults) == task_arrivals(again) != task_arrivals(other)
    assert (
        draw_faults(faults, Random(1))
        == draw_faults(again, Random(1))
        != draw_faults(faults, Random(2))
    )


def test_pool_tasks_are_asked_of_the_lead_of_their_pool() -> None:
    """Who names no nodes asks where the pool is planned: at n1 unless the pool says otherwise."""
    match = {"name": {"exists": True}}
    pools = [{"name": "a", "match": match}, {"name": "b", "match": match, "lead": "n3"}]
    tasks = [{"participants": {"pool": name, "k": 2}, "count": 2} for name in "ab"]
    asked = task_arrivals(Scenario.model_validate({"pools": pools, "tasks": tasks}))
    assert [wish.lead for wish in asked] == [0, 0, 2, 2]
    assert all("participants" not in wish.document.test.spec for wish in asked)
    assert [wish.document.seats and wish.document.seats.k for wish in asked] == [2] * 4
