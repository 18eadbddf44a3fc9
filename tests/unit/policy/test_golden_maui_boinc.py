"""The worked cases of Maui and BOINC, answered by the product's functions."""

from __future__ import annotations

import pytest

from tests.golden.expectations import answered, cases, differences

CASES = cases("maui") | cases("boinc")
DERIVED = {
    # SERV = 2*min(30, 45) + 10*(1 + 45/15) = 100, CRED = 100, and 1*100 + 2*100; then with SERV 80.
    "MA-05": {"priority_a": 300, "priority_b": 280},
    # Two of U are within the soft limit; the rest goes to the next of U. Then u3 waits for the hard
    # limit, but v1 takes the rest before that.
    "MA-08": {
        "items": [
            {"soft": ["u1", "u2"], "hard": ["u3", "u4"]},
            {"soft": ["u1", "u2", "v1"], "hard": []},
        ]
    },
    # Windows: four nodes for 3,600, then n8 forever. F fits only the second. Most processors: D
    # with three, then G on the last, n8. Longest: G and H, then F. D and G are worth 12,600.
    "MA-11": {
        "started": [["E", "G", "F"], ["D", "G"], ["G", "H", "F"], ["D", "G"]],
        "placement_firstfit": {"E": ["n5", "n6"], "G": ["n7"], "F": ["n8"]},
    },
    # B is to start when A's limit ends. A ends at 1, but C, backfilled, runs until 2.
    "MA-13": {
        "at_0": {"started": ["C"], "reserved": {"B": 3}},
        "after_event": {"reserved": {"B": 2}},
        "starts": {"C": 0, "B": 2},
        "B_without_backfill": 1,
    },
    # Each failed start defers it by an hour; the 25th, a day after the first, is one too many.
    "MA-16": {
        "attempt_times_first": [0, 3600, 7200],
        "deferrals_before_hold": 24,
        "state_after": "batch hold",
        "hold_at": 86400,
    },
    # 40 % of 1,000 is 400: 350 and 50 are exactly that, 350 and 51 are more.
    "MA-19": {"allowed": [True, False]},
    # Idle: 6 on one of two in 0-10. Then one of four in 0-4, two in 4-6, all in 6-10.
    "BO-03": {
        "items": [
            {"shortfall": 6, "saturated": 4, "idle_now": 0},
            {"shortfall": 24, "saturated": 0, "idle_now": 1},
        ]
    },
    # B3 and A4 by deadline; each raised its project by as much, so A, by name, and then B.
    "BO-07": {"run": ["B3", "A4", "A1", "B1"]},
    # A choice adds 1/96: it decides between two equals, but four do not reach from 0.3 to 0.7.
    "BO-08": {"items": [["A", "B", "A", "B"], ["B", "B", "B", "B"]]},
    # -1 - 20/40, -1.2 - 0, -1.1 - 2/40.
    "BO-10": {"adjusted": {"A": -1.5, "B": -1.2, "C": -1.15}, "ask": "C"},
    # An empty reply to a question of its own: ten minutes. In flight: no longer; given: cleared.
    "BO-12": {
        "after_1": {"P/cpu": 600, "P/gpu": 600, "Q/cpu": 0},
        "after_2": {"P/cpu": 600, "P/gpu": 0, "Q/cpu": 0},
    },
    # 3 are idle; 8 * 0.5 - 1; 8 * 0.25 - 4 is negative.
    "BO-16": {"instances_asked": [3, 3, 0]},
}


@pytest.mark.parametrize("name", sorted(CASES.keys() - DERIVED.keys()))
def test_the_product_answers_as_expected(name: str) -> None:
    """Each case with an expectation gets exactly that answer."""
    assert list(differences(answered(CASES[name]), CASES[name]["expect"])) == []


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_the_product_answers_as_derived(name: str) -> None:
    """Each case that gives only the shape of its answer gets the answer derived by hand."""
    assert list(differences(answered(CASES[name]), DERIVED[name])) == []


def test_the_expectation_is_never_read() -> None:
    """A case with a wrong expectation gets the same answer."""
    for case in CASES.values():
        assert answered({**case, "expect": {"start": -1}}) == answered(case)
