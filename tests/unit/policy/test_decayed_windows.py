"""Fairshare over windows: parts of what was delivered, and caps on them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.policy.share.decayed_windows import (
    DecayWindows,
    amounts_by_window,
    decayed_sum,
    delta,
    deltas,
    relative_delta,
    usage,
    usages,
)
from lead.policy.throttle.delivered_cap import find_amount_refusal, find_part_refusal
from lead.policy.view import Charge, FairshareKind, FairshareView

WINDOWS = DecayWindows(interval=10, depth=4, decay=Fraction(1, 2))
HALF = Fraction(1, 2)
charges = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 90), st.integers(1, 35), st.integers(1, 9)),
    max_size=8,
).map(lambda some: [Charge(c, at, at + n, n * seats) for c, at, n, seats in some])


@given(charges, st.integers(0, 130))
def test_windows_agree_with_counting_every_instant(ledger: list[Charge], now: int) -> None:
    """Charges over several windows are split by time, and their future part does not count."""
    own, delivered = amounts_by_window(ledger, now, WINDOWS)
    for name, amounts in own.items():
        expected = [0] * WINDOWS.depth
        for at in range(now):
            back = now // WINDOWS.interval - at // WINDOWS.interval
            if back < WINDOWS.depth:
                expected[back] += sum(
                    it.amount // (it.end - it.start)
                    for it in ledger
                    if it.campaign == name and it.start <= at < it.end
                )
        assert amounts == expected
    assert delivered == [sum(some) for some in zip(*own.values(), strict=True)] or not own


@given(charges, st.integers(0, 130))
def test_usages_add_up_to_what_was_delivered(ledger: list[Charge], now: int) -> None:
    """The parts of all campaigns add up to one, or to zero if nothing was delivered."""
    assert sum(usages(ledger, now, WINDOWS).values()) in {0, 1}


@given(st.lists(st.integers(0, 99), max_size=6), st.fractions(0, 1))
def test_a_decayed_sum_is_the_polynomial(amounts: list[int], decay: Fraction) -> None:
    """Each window counts ``decay`` times as much as the one after it."""
    assert decayed_sum(amounts, decay) == sum(
        (amount * decay**age for age, amount in enumerate(amounts)), Fraction(0)
    )


def test_old_usage_weighs_less() -> None:
    """Two campaigns with equal amounts differ if the usage of one is older."""
    assert usage([0, 8], [8, 8], HALF) == Fraction(1, 3)
    assert usage([8, 0], [8, 8], HALF) == Fraction(2, 3)


@pytest.mark.parametrize(
    ("kind", "below", "above"),
    [
        (FairshareKind.TARGET, 10, -10),
        (FairshareKind.FLOOR, 10, 0),
        (FairshareKind.CEILING, 0, -10),
    ],
)
@pytest.mark.mostly_nightly
def test_floors_only_raise_and_ceilings_only_lower(
    kind: FairshareKind, below: int, above: int
) -> None:
    """The delta is in percent, and the kind determines which sign counts."""
    share = FairshareView(Fraction(4, 10), kind)
    assert delta(Fraction(3, 10), share) == below
    assert delta(Fraction(5, 10), share) == above
    assert relative_delta(Fraction(3, 10), share) == Fraction(below, 40)


def test_an_uncharged_campaign_used_nothing() -> None:
    """A newcomer lacks its whole share, and a campaign without a fairshare has no delta."""
    result = deltas({"new": FairshareView(HALF), "free": None}, {"free": HALF})
    assert result == {"new": 50, "free": 0}
    assert relative_delta(HALF, None) == 0


def test_a_cap_counts_the_run_itself() -> None:
    """Usage up to the cap is allowed, and anything beyond it is refused with figures."""
    part, total = Fraction(2, 5), Fraction(1000)
    assert find_part_refusal("ops", Fraction(350), Fraction(50), total, part) is None
    refusal = find_part_refusal("ops", Fraction(350), Fraction(51), total, part)
    assert refusal is not None
    figures = {"campaign": "ops", "part": Fraction(401, 1000), "cap": part}
    assert refusal.reason.figures == figures
    assert find_part_refusal("ops", Fraction(0), Fraction(51), Fraction(0), part) is None
    assert find_amount_refusal("ops", Fraction(350), Fraction(50), Fraction(400)) is None
    assert find_amount_refusal("ops", Fraction(350), Fraction(51), Fraction(400)) is not None
