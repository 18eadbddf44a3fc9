"""The worked cases of sharing engines among sessions, answered by the product's functions."""

from __future__ import annotations

import pytest

from tests.golden.expectations import answered, cases, differences

CASES = cases("gridserver")

DERIVED = {
    # Levels 9, 5, and 1 count once, 15 in all: 60 for two, 33.3 for one, 6.7 for five. Each on
    # its own they weigh 28: 32.1, 17.9, and 3.6.
    "GS-05": {
        "aggregated": {"h1": 30, "h2": 30, "m": 34, "l1": 2, "l2": 2, "l3": 2, "l4": 2, "l5": 2},
        "plain": {"h1": 33, "h2": 33, "m": 18, "l1": 4, "l2": 4, "l3": 4, "l4": 4, "l5": 4},
    },
    # X wants 2 of its 5; of the other 8, Y could have 4.8 and wants 4.
    "GS-09": {"ideal": {"X": 2, "Y": 4, "Z": 4}},
    # 2 + 0/30 = 1 + 30/30.
    "GS-13": {"victims": ["e2"]},
    # While b is idle, the remaining 30 are split 20 : 50: 8.6 and 21.4, rounded up to 9 and 22, of
    # which c finds 21. b takes its 30 back from c, 21 above, and a, 9 above. Without preemption
    # all engines stay held, and b finds none until something ends.
    "GS-16": {
        "steps": [
            {"total": {"a": 29, "b": 0, "c": 71}},
            {"total": {"a": 20, "b": 30, "c": 50}},
            {"total": {"a": 29, "b": 0, "c": 71}},
        ]
    },
    # 34 of 40 are promised; 6 · 10/34 = 1.8, 6 · 20/34 = 3.5, 6 · 4/34 = 0.7; c finds none left.
    "GS-20": {
        "targets": {"a": 10, "b": 20, "c": 4},
        "remainder": 6,
        "remainder_numbers": {"a": 2, "b": 4, "c": 1},
        "total": {"a": 12, "b": 24, "c": 4},
    },
    # 6 : 4 : 4.
    "GS-21": {"share": {"S6": 6 / 14, "S4a": 4 / 14, "S4b": 4 / 14}, "tolerance": 0.0002},
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
        assert answered({**case, "expect": {"ideal": -1}}) == answered(case)


def test_a_case_may_use_other_terms() -> None:
    """Weights by level, free engines by name, and an urgent session are understood as well."""
    case = {
        "system": "gridserver",
        "id": "-",
        "policy": "gridserver-urgent",
        "given": {
            "engines": 8,
            "levels": {"U": "urgent", "A": 2, "B": 1},
            "weights": {"1": 1, "2": 3, "10": 0},
            "waiting": {"U": 2, "A": 9, "B": 9},
            "usage": {"A": 40, "B": 10},
            "free": ["e1", "e2", "e3", "e4"],
        },
        "answer_shape": {"order": ["string"], "assigned": {}},
    }
    # U takes 2 of the 8. Of the other 6 A should hold 4.5 and B 1.5; B has used 10 per weight, A
    # 13.3, so B is served first, up to 2, and there is nothing left for A.
    assert answered(case) == {"order": ["U", "B", "A"], "assigned": {"U": 2, "A": 0, "B": 2}}
