"""The trials that ``make fleets`` plays with ten seeds, with one seed and a small fleet."""

from __future__ import annotations

import pytest

from lead.simulation.fleet.report import FleetCheck
from tests.fleets.__main__ import table
from tests.fleets.seeds import PROMISES, Worst, margin, played, plays, worst

FEW = {"shares": ["shares"], "guarantees": ["seats", "gaps"], "deadlines": ["deadlines"]}
"""By promise, the trials that take less than a second."""


@pytest.mark.parametrize(
    "promise",
    [pytest.param(it, marks=[] if it == "shares" else pytest.mark.nightly) for it in PROMISES],
)
@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_a_promise_is_kept_in_the_long_run(promise: str) -> None:
    """Shares, guarantees, and deadlines are within their bounds, for one set of each trial."""
    listed = [it for it in plays([promise], [1], 200, 4) if it.trial in FEW[promise]]
    first = {it.trial: it for it in reversed(listed)}
    found = worst(played(list(first.values()), jobs=1))
    assert {it.check.trial for it in found} == set(FEW[promise])
    assert [it.check.sentence for it in found if not it.check.holds] == []


def _check(found: float, least: float | None, most: float | None, who: str = "a") -> FleetCheck:
    return FleetCheck(
        trial="t", policy="p", who=who, unit="runs", promised=1, least=least, most=most, found=found
    )


def test_the_seed_closest_to_its_bound_is_shown() -> None:
    """The table has the worst of all seeds for each party, with its bounds."""
    one, two = plays(["deadlines"], [1, 2], 200, 4)[::3]
    outcomes = [
        (one, [_check(5, 1, 10), _check(0, None, 0, "b")]),
        (two, [_check(9, 1, 10), _check(1, None, 0, "b")]),
    ]
    found = worst(outcomes)
    assert found == [Worst(outcomes[1][1][0], 2), Worst(outcomes[1][1][1], 2)]
    assert margin(found[1].check) < 0
    assert list(table(found))[2:] == [
        "| t | `p` | a | 9 runs | ≥ 1, ≤ 10 | 2 |",
        "| t | `p` | b | 1 runs | ≤ 0 | 2 |",
    ]
