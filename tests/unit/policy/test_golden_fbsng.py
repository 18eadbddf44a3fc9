"""The worked cases of queues with dynamic priorities, answered by the product's functions."""

from __future__ import annotations

import pytest

from tests.golden.expectations import answered, cases, differences

CASES = cases("fbsng")
BOUNDS = "FB-01"

DERIVED = {
    # All gain 1, A pays 3 and B 7, then both are shifted so that the lower one is at 0.
    "FB-02": {
        "picks": list("ABAABAABAA"),
        "priorities_after": [
            {"A": a, "B": b}
            for a, b in (
                *((0, 3), (4, 0), (1, 0), (0, 2), (5, 0)),
                *((2, 0), (0, 1), (6, 0), (3, 0), (0, 0)),
            )
        ],
    },
    "FB-04": {"share": {"A": 0.5, "B": 0.3, "C": 0.2}, "tolerance": 0.001},
    # The gap of 5 becomes 6 and 7; 6, 7, 8 and 9; 8 and 11.
    "FB-06": {"background_starts_before_hold": [2, 4, 2]},
    # H gains what it pays; B climbs by one with each start, up to its ceiling.
    "FB-08": {"picks": ["H"] * 14, "final_priorities": {"H": 5, "B": 4}},
    "FB-11": {"lights_per_bulk": [2, 5, 8]},
    # 1, 2, and 4 are served at 5, 7 at 10, 13 at 15.
    "FB-14": {"passes": [0, 5, 10, 15]},
    # Passed by l1 and l2, b is 2 above l3 and blocks it; w is not ready and keeps its 0.
    "FB-16": {"picks": ["l1", "l2", None], "priority": {"w": 0, "b": 2}},
}


@pytest.mark.parametrize("name", sorted(CASES.keys() - DERIVED.keys() - {BOUNDS}))
def test_the_product_answers_as_expected(name: str) -> None:
    """Each case with an expectation gets exactly that answer."""
    assert list(differences(answered(CASES[name]), CASES[name]["expect"])) == []


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_the_product_answers_as_derived(name: str) -> None:
    """Each case that gives only the shape of its answer gets the answer derived by hand."""
    assert list(differences(answered(CASES[name]), DERIVED[name])) == []


def test_shares_hold_in_any_ten_starts() -> None:
    """Prices of 3 and 7 give seven and three of any ten consecutive starts, within one."""
    picks, expected = answered(CASES[BOUNDS]), dict(CASES[BOUNDS]["expect"])
    bounds = expected.pop("any_10_consecutive")
    for name, (least, most) in picks.pop("any_10_consecutive").items():
        assert bounds[name][0] <= least <= most <= bounds[name][1]
    assert list(differences(picks, expected)) == []


@pytest.mark.nightly
def test_the_expectation_is_never_read() -> None:
    """A case with a wrong expectation gets the same answer."""
    for case in CASES.values():
        assert answered({**case, "expect": {"picks": -1}}) == answered(case)
