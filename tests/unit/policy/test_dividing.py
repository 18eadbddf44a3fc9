"""Division by weight, limited by demand."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from lead.policy.division import divide
from lead.policy.seats import CampaignStake
from lead.policy.share import aggregation, usage

WEIGHTS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.fractions(min_value=Fraction(1, 10), max_value=9, max_denominator=10),
    min_size=1,
)
DEMANDS = st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 60))


def _poured(
    amount: int, weights: dict[str, Fraction], demand: dict[str, int | None]
) -> dict[str, Fraction]:
    """Divide by raising the level of all until the next one is full, repeatedly."""
    shares = dict.fromkeys(weights, Fraction(0))
    rest = Fraction(amount)
    while True:
        open_ = [n for n in weights if (most := demand.get(n)) is None or shares[n] < most]
        total = sum((weights[name] for name in open_), Fraction(0))
        if not open_ or not rest:
            return shares
        rise = rest / total
        for name in open_:
            if (most := demand.get(name)) is not None:
                rise = min(rise, (most - shares[name]) / weights[name])
        for name in open_:
            shares[name] += rise * weights[name]
        rest -= rise * total


@given(st.integers(0, 200), WEIGHTS, DEMANDS)
def test_division_equals_water_filling(
    amount: int, weights: dict[str, Fraction], demand: dict[str, int | None]
) -> None:
    """Every exact share equals the level reached by pouring the water in slowly."""
    assert divide(amount, weights, demand).exact_shares() == _poured(amount, weights, demand)


@given(st.integers(0, 200), WEIGHTS, DEMANDS)
def test_the_shares_add_up(
    amount: int, weights: dict[str, Fraction], demand: dict[str, int | None]
) -> None:
    """The shares add up to the whole amount, or to all demand if that is less."""
    wanted = [demand.get(name) for name in weights]
    limited = [most for most in wanted if most is not None]
    most = amount if len(limited) < len(wanted) else min(amount, sum(limited))
    assert sum(divide(amount, weights, demand).exact_shares().values()) == most


@given(st.integers(1, 200), WEIGHTS, DEMANDS, st.sampled_from([1, 7]))
def test_rounding_goes_up_by_less_than_a_unit(
    amount: int, weights: dict[str, Fraction], demand: dict[str, int | None], unit: int
) -> None:
    """A rounded share exceeds the exact one by less than a unit, and is 0 only without demand."""
    division = divide(amount, weights, demand)
    exact, rounded = division.exact_shares(), division.rounded_shares(unit)
    assert all(0 <= rounded[name] - exact[name] < unit for name in weights)
    assert all(rounded[name] or demand.get(name) == 0 for name in weights)


def test_float_errors_add_no_seat() -> None:
    """Weights of 0.1 and 0.2 divide 300 into exactly 100 and 200."""
    weights = {"a": Fraction("0.1"), "b": Fraction("0.2")}
    assert divide(300, weights, {}).rounded_shares() == {"a": 100, "b": 200}


def test_a_weight_of_zero_gets_nothing() -> None:
    """A weight of zero gives no share, whatever the demand."""
    assert divide(10, {"a": 0, "b": 1}, {"a": 5}).rounded_shares() == {"a": 0, "b": 10}
    assert divide(10, {"a": 0}, {"a": 50}).rounded_shares() == {"a": 0}


GROUPS = st.lists(st.lists(st.integers(0, 30) | st.none(), min_size=1, max_size=4), min_size=1)


@given(st.integers(1, 100), GROUPS)
def test_splitting_a_campaign_gains_nothing(seats: int, waiting: list[list[int | None]]) -> None:
    """The members of a group together get what one campaign with all their work would get."""
    stakes = [
        [CampaignStake(f"{number}.{place}", 1, waiting=most) for place, most in enumerate(group)]
        for number, group in enumerate(waiting)
    ]
    groups = [
        aggregation.WeightGroup(str(number), number + 1, frozenset(stake.name for stake in some))
        for number, some in enumerate(stakes)
    ]
    apart = aggregation.ideals(seats, [stake for some in stakes for stake in some], groups)
    whole = usage.ideals(
        seats,
        [
            CampaignStake(
                str(number), number + 1, waiting=None if None in some else sum(filter(None, some))
            )
            for number, some in enumerate(waiting)
        ],
    )
    for number, some in enumerate(stakes):
        together = sum(apart[stake.name] for stake in some)
        assert whole[str(number)] <= together < whole[str(number)] + len(some)


def test_members_entitlements_add_up_to_the_group() -> None:
    """A group's weight is split among its active members."""
    stakes = [
        CampaignStake("a", 1),
        CampaignStake("b", 3),
        CampaignStake("idle", 9, waiting=0),
        CampaignStake("c", 2),
    ]
    groups = [
        aggregation.WeightGroup("x", 8, frozenset({"a", "b", "idle"})),
        aggregation.WeightGroup("y", Fraction(1, 2), frozenset({"c"})),
    ]
    assert aggregation.entitlements(stakes, groups) == {"a": 2, "b": 6, "c": Fraction(1, 2)}
