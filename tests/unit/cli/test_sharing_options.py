"""Options of campaigns and pools: how they are read, and what is refused before a node is asked."""

from __future__ import annotations

from typing import Any

import click
import pytest

from node.cli.attributes import assignment, predicate
from node.cli.campaigns import CLEARABLE, document_of, percent
from node.cli.pools import _overrides
from node.model.wire.campaigns import CampaignPatch

NOTHING: dict[str, Any] = {
    **dict.fromkeys((name.replace("-", "_") for name in CLEARABLE), None),
    "limits": (),
    "quotas": (),
    "file": None,
}


def test_what_is_not_given_is_not_sent() -> None:
    """Only what was said is in the document."""
    assert document_of(NOTHING) == {}
    assert document_of({**NOTHING, "preemptor": False}) == {"preemptor": False}


def test_every_clearable_field_is_one_of_a_patch() -> None:
    """What --clear offers can be given back."""
    assert {name.replace("-", "_") for name in CLEARABLE} <= set(CampaignPatch.model_fields)


@pytest.mark.parametrize(
    ("option", "written", "expected"),
    [
        ("weight", "2.5", 2.5),
        ("level", "7", 7),
        ("level", "urgent", "urgent"),
        ("target", "20", {"seats": 20}),
        ("target", "12.5%", {"share": 0.125}),
        ("fairshare", "25%", {"part": 0.25, "kind": "target"}),
        ("fairshare", "25%+", {"part": 0.25, "kind": "floor"}),
        ("fairshare", "25%-", {"part": 0.25, "kind": "ceiling"}),
    ],
)
def test_what_options_mean(option: str, written: str, expected: object) -> None:
    """Percents, levels and promises as people write them."""
    assert document_of({**NOTHING, option: written}) == {option: expected}


@pytest.mark.parametrize(
    ("written", "bounds"),
    [
        ("runs=5", {"soft": 5, "hard": 5}),
        ("runs=5,9", {"soft": 5, "hard": 9}),
        ("runs=,9", {"soft": None, "hard": 9}),
        ("runs=5,", {"soft": 5, "hard": None}),
    ],
)
def test_limits(written: str, bounds: object) -> None:
    """Soft and hard, or one for both."""
    assert document_of({**NOTHING, "limits": (written,)}) == {"limits": {"runs": bounds}}


@pytest.mark.parametrize(
    ("option", "written"),
    [
        ("weight", "much"),
        ("target", "x"),
        ("fairshare", "y%"),
        ("limits", ("runs",)),
        ("limits", ("runs=x",)),
        ("quotas", ("mbps",)),
        ("quotas", ("mbps=x",)),
        ("limits", ("runs=10", "runs=5")),
    ],
)
def test_what_cannot_be_read(option: str, written: Any) -> None:
    """It is said which option is wrong."""
    with pytest.raises(click.BadParameter):
        document_of({**NOTHING, option: written})


@pytest.mark.parametrize(
    ("written", "document"),
    [
        ([], {}),
        (["country=DE"], {"country": "DE"}),
        (["country=DE,FR", "n!=3"], {"country": ["DE", "FR"], "n": {"!=": 3}}),
        (["n>=1", "n<2.5"], {"n": {">=": 1, "<": 2.5}}),
        (["tool:ping=true", 'zip="7"'], {"tool:ping": True, "zip": "7"}),
        (['{"not": {"a": 1}}', "b=x y"], {"not": {"a": 1}, "b": "x y"}),
    ],
)
def test_conditions(written: list[str], document: object) -> None:
    """The short form of a predicate, with JSON for what it cannot say."""
    assert predicate(written) == document


@pytest.mark.parametrize("written", [["country"], ["a=1", "a>2"], ["a=1", "a=2"], ["{"], ["=3"]])
def test_what_is_no_condition(written: list[str]) -> None:
    """Two values for one attribute cannot both be meant."""
    with pytest.raises(click.BadParameter):
        predicate(written)


def test_assignments() -> None:
    """Values are JSON where they can be, and nothing is no value."""
    assert assignment("cpu_mbps=1000") == ("cpu_mbps", 1000)
    assert assignment("behind_nat=false") == ("behind_nat", False)
    assert assignment("site=[x]") == ("site", "[x]")
    for wrong in ("country", "country=", "=DE"):
        with pytest.raises(click.UsageError, match="KEY=VALUE"):
            assignment(wrong)


def test_overrides() -> None:
    """An axis of another set, and parameters."""
    written = ["order=next-run", "share.window=PT30M", "fill.depth=2", 'select.x={"a": 1}']
    expected = {
        "order": {"rule": "next-run"},
        "share": {"window": "PT30M"},
        "fill": {"depth": 2},
        "select": {"x": {"a": 1}},
    }
    assert _overrides(written) == expected
    for wrong in ("taste=x", "share", "share="):
        with pytest.raises(click.BadParameter, match="axes are"):
            _overrides([wrong])


def test_percents() -> None:
    """One digit at most behind the point, and nothing for nothing."""
    assert [percent(part) for part in (None, 0, 0.125, 1 / 3)] == ["", "0 %", "12.5 %", "33.3 %"]
