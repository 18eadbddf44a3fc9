"""Cases of the worked cases' form with answers derived by hand: edges, ties, limits."""

from __future__ import annotations

import pytest

from tests.golden.expectations import answered, cases, differences

CASES = cases("variants")


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_product_answers_as_derived(name: str) -> None:
    """Each variant gets the answer that the rules imply, with the reason in ``why``."""
    assert list(differences(answered(CASES[name]), CASES[name]["expect"])) == []
