"""The long-run shares of sharing by starts, from the rule alone."""

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
@pytest.mark.nightly
def test_starts_stay_near_the_prices(mix: dict[str, tuple[int, int]], room: int) -> None:
    """All room is used up to the demand, and nobody loses more than the highest price buys."""
    # By that much the priorities of those who pause can differ. Mostly it is part of a start.
    weights = {name: weight for name, (weight, _) in mix.items()}
    wanted = {name: count for name, (_, count) in mix.items()}
    starts = long_run_starts(_rules(weights), room, wanted)
    by_price = divide(room, weights, wanted).exact_shares()
    assert sum(starts.values()) == min(room, sum(wanted.values()))
    for name, count in starts.items():
        assert count <= wanted[name]
        assert by_price[name] - count <= Fraction(weights[name], min(weights.values()))


@pytest.mark.parametrize("room", [7, 19, 36])
def test_where_all_want_more_it_is_by_price(room: int) -> None:
    """Campaigns that always contend start exactly by price, however few starts an hour has."""
    weights = {"a": 1, "b": 2, "c": 3, "d": 5, "e": 8}
    starts = long_run_starts(_rules(weights), room, dict.fromkeys(weights, room))
    assert starts == {name: Fraction(room * weight, 19) for name, weight in weights.items()}


def test_who_wants_just_less_than_its_part_goes_short() -> None:
    """A campaign that wants just less than its share loses a part of a start per hour."""
    # Each wants 11 of 36 starts: by price, d would get all 11.
    weights = {"a": 1, "b": 2, "c": 3, "d": 5, "e": 8}
    starts = long_run_starts(_rules(weights), 36, dict.fromkeys(weights, 11))
    assert starts["e"] == 11
    assert Fraction(21, 2) < starts["d"] < 11
    assert starts["a"] * 6 == starts["b"] * 3 == starts["c"] * 2
