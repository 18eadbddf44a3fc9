"""What shares by starts come to in the long run, from the rule alone."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.policy.division import divide
from lead.policy.view import QueueView
from lead.simulation.fleet.starts import long_run_starts

MIXES = st.dictionaries(
    st.sampled_from("abcde"), st.tuples(st.integers(1, 8), st.integers(1, 60)), min_size=2
)


def _rules(weights: dict[str, int]) -> dict[str, QueueView]:
    most = max(weights.values())
    return {name: QueueView(price=Fraction(most, weight)) for name, weight in weights.items()}


@settings(max_examples=60, deadline=None)
@given(mix=MIXES, room=st.integers(6, 40))
def test_starts_stay_near_the_prices(mix: dict[str, tuple[int, int]], room: int) -> None:
    """All room is used, nobody has more than it wants; by price it is but for a start an hour."""
    weights = {name: weight for name, (weight, _) in mix.items()}
    wanted = {name: count for name, (_, count) in mix.items()}
    found = long_run_starts(_rules(weights), room, wanted)
    by_price = divide(room, weights, wanted).exact()
    assert sum(found.values()) == min(room, sum(wanted.values()))
    for name, count in found.items():
        assert count <= wanted[name]
        assert abs(count - by_price[name]) < 1


@pytest.mark.parametrize("room", [7, 19, 36])
def test_where_all_want_more_it_is_by_price(room: int) -> None:
    """Nothing is lost between those who always contend, however few starts an hour has."""
    weights = {"a": 1, "b": 2, "c": 3, "d": 5, "e": 8}
    found = long_run_starts(_rules(weights), room, dict.fromkeys(weights, room))
    assert found == {name: Fraction(room * weight, 19) for name, weight in weights.items()}


def test_who_wants_just_less_than_its_part_goes_short() -> None:
    """Of 36 starts, 11 are wanted by each: d could have them by its price, and has a few less."""
    weights = {"a": 1, "b": 2, "c": 3, "d": 5, "e": 8}
    found = long_run_starts(_rules(weights), 36, dict.fromkeys(weights, 11))
    assert found["e"] == 11
    assert Fraction(21, 2) < found["d"] < 11
    assert found["a"] * 6 == found["b"] * 3 == found["c"] * 2
