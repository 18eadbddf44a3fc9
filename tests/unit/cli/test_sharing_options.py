"""Parsing of the options of campaigns and pools, and refusals before a request."""

from __future__ import annotations

from typing import Any

import click
import pytest

from node.cli.campaigns import BOUNDS, CLEARABLE, document_of
from node.cli.output import percent
from node.cli.pools import _overrides
from node.cli.values import assignment, predicate
from node.model.wire.campaigns import CampaignPatch

NOTHING: dict[str, Any] = {
    **dict.fromkeys((name.replace("-", "_") for name in (*CLEARABLE, *BOUNDS)), None),
    "limits": (),
    "quotas": (),
    "file": None,
    "budget_until": None,
}
NOW = 0


def test_only_given_options_are_sent() -> None:
    """A document has only the options that were given."""
    assert document_of(NOTHING, NOW) == {}
    assert document_of({**NOTHING, "preemptor": False}, NOW) == {"preemptor": False}


def test_every_clearable_field_is_one_of_a_patch() -> None:
    """Every field that --clear offers is a field of a patch."""
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
def test_parsed_options(option: str, written: str, expected: object) -> None:
    """Percents, levels and targets are parsed as people write them."""
    assert document_of({**NOTHING, option: written}, NOW) == {option: expected}


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
    """A limit has a soft and a hard bound, or one number for both."""
    assert document_of({**NOTHING, "limits": (written,)}, NOW) == {"limits": {"runs": bounds}}


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
def test_invalid_options(option: str, written: Any) -> None:
    """A value that cannot be parsed is refused."""
    with pytest.raises(click.BadParameter):
        document_of({**NOTHING, option: written}, NOW)


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
    """Conditions are parsed in the short form, or as JSON for what it cannot express."""
    assert predicate(written) == document


@pytest.mark.parametrize("written", [["country"], ["a=1", "a>2"], ["a=1", "a=2"], ["{"], ["=3"]])
def test_invalid_conditions(written: list[str]) -> None:
    """A text that is not a condition, and two values for one attribute, are refused."""
    with pytest.raises(click.BadParameter):
        predicate(written)


def test_assignments() -> None:
    """A value is parsed as JSON if possible, and an empty value is refused."""
    assert assignment("cpu_mbps=1000") == ("cpu_mbps", 1000)
    assert assignment("behind_nat=false") == ("behind_nat", False)
    assert assignment("site=[x]") == ("site", "[x]")
    for wrong in ("country", "country=", "=DE"):
        with pytest.raises(click.UsageError, match="KEY=VALUE"):
            assignment(wrong)


def test_overrides() -> None:
    """Overrides are parsed into rules and parameters by axis."""
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
    """A percentage has at most one decimal, and ``None`` is printed as nothing."""
    assert [percent(part) for part in (None, 0, 0.125, 1 / 3)] == ["", "0 %", "12.5 %", "33.3 %"]
