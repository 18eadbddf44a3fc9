"""A task's participants and the hosts in its spec, for every test."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from node.plugins import registry
from node.plugins.participation import first_fault
from tests.unit.plugins.parts import spec

PAIRS = ["latency", "throughput"]


@pytest.mark.parametrize("name", PAIRS)
def test_participants_fill_a_pair(name: str) -> None:
    """The first of a task's participants is the source, the second the dest."""
    test = registry.tests()[name]
    filled = test.with_participants(test.spec_model(), ["a", "b"])
    assert test.participants(filled) == ("a", "b")
    assert test.hosts(filled) == ("a", "b")


@pytest.mark.parametrize("name", [*PAIRS, "rtt"])
def test_the_lead_is_the_source_by_default(name: str) -> None:
    """Without a source the lead itself takes part, and only dest is named."""
    test = registry.tests()[name]
    task_spec = test.with_participants(spec(name), [])
    assert test.participants(task_spec)[0] is None
    assert test.hosts(task_spec) == ("b.example",)


@pytest.mark.parametrize("name", PAIRS)
def test_matching_participants_may_be_repeated(name: str) -> None:
    """Participants that the spec names as well are accepted."""
    test = registry.tests()[name]
    task_spec = spec(name, source="a.example")
    assert test.with_participants(task_spec, ["a.example", "b.example"]) == task_spec


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a"], r"takes two participants \(source, dest\), not 1"),
        (["a", "b.example", "c"], r"takes two participants \(source, dest\), not 3"),
        (["a", "c"], "the task's participants say dest c, its spec says b.example"),
        (["b.example", "b.example"], "source and dest are the same host, b.example"),
    ],
)
def test_conflicts_are_told(name: str, names: list[str], sentence: str) -> None:
    """Too few, too many, other or repeated participants are refused, and the reason says which."""
    test = registry.tests()[name]
    with pytest.raises(ValueError, match=sentence):
        test.with_participants(spec(name), names)


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_needs_its_second(name: str) -> None:
    """A spec without a dest, in it or in participants, is refused."""
    test = registry.tests()[name]
    with pytest.raises(ValueError, match=f"{name} needs dest"):
        test.with_participants(test.spec_model(), [])


def test_rtt_takes_one_participant() -> None:
    """The one participant of rtt is its source; a second is one too many."""
    test = registry.tests()["rtt"]
    assert test.participants(test.with_participants(spec("rtt"), ["a"])) == ("a",)
    assert test.hosts(test.with_participants(spec("rtt"), ["a"])) == ("a", "b.example")
    with pytest.raises(ValueError, match=r"rtt takes one participant \(source\), not 2"):
        test.with_participants(spec("rtt"), ["a", "b"])


def test_idle_takes_any_number() -> None:
    """Idle takes the participants of the task or its spec, or else the lead alone."""
    test = registry.tests()["idle"]
    assert test.participants(spec("idle")) == (None,)
    assert test.participants(test.with_participants(spec("idle"), ["a", "b"])) == ("a", "b")
    named = spec("idle", participants=["a", "b"])
    assert test.hosts(test.with_participants(named, ["a", "b"])) == ("a", "b")
    assert test.with_participants(named, []) == named


def test_idle_refuses_two_lists() -> None:
    """Two different lists of participants are a conflict, and so is a repeated name."""
    test = registry.tests()["idle"]
    with pytest.raises(ValueError, match="participants of the task and of its spec differ"):
        test.with_participants(spec("idle", participants=["a"]), ["b"])
    with pytest.raises(ValueError, match="a host is named twice"):
        test.with_participants(spec("idle"), ["b", "b"])


def test_a_name_that_is_none_is_refused() -> None:
    """A name that a spec would refuse is refused among the participants, with the field's name."""
    with pytest.raises(ValueError, match="dest: not a host name"):
        registry.tests()["latency"].with_participants(
            registry.tests()["latency"].spec_model(), ["a", "-b"]
        )


def test_a_fault_is_told_by_its_place_in_the_document() -> None:
    """The kinds between which a field may choose are no part of the place."""
    http = registry.tests()["http"].spec_model
    with pytest.raises(ValidationError) as refused:
        http.model_validate({"url": "http://a/", "headers": {"X-Key": "a\nb"}})
    assert first_fault(refused.value).startswith("headers.X-Key: ")
