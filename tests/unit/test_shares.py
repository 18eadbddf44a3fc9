"""The shares that weights promise, and the sums along the campaigns' ancestors."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from node.sharing.usage import Member, promised_shares, with_descendants

MEMBERS = st.lists(
    st.tuples(
        st.integers(0, 8), st.integers(0, 5), st.booleans(), st.booleans(), st.sampled_from([0, 1])
    ),
    max_size=9,
).map(
    lambda rows: [
        Member(
            number,
            None if parent >= number else parent,
            Fraction(weight),
            urgent=urgent and not number % 3,
            suspended=suspended and not number % 4,
            wants=bool(wants),
        )
        for number, (parent, weight, urgent, suspended, wants) in enumerate(rows)
    ]
)


def test_weights_are_parts_of_the_parents() -> None:
    """Weights of 3 and 1 give three quarters and one, and children split the parent's part."""
    members = [
        Member(1, None, Fraction(3)),
        Member(2, None, Fraction(1)),
        Member(3, 1, Fraction(1), wants=True),
        Member(4, 1, Fraction(2), wants=True),
    ]
    result = promised_shares(members)
    assert result == {1: Fraction(3, 4), 2: Fraction(1, 4), 3: Fraction(1, 4), 4: Fraction(1, 2)}


def test_idle_campaigns_leave_their_parts() -> None:
    """Campaigns without tasks, suspended ones, and urgent ones have no part."""
    members = [
        Member(1, None, Fraction(1)),
        Member(2, None, Fraction(1), wants=False),
        Member(3, None, Fraction(1), suspended=True),
        Member(4, None, Fraction(9), urgent=True),
    ]
    assert promised_shares(members) == {1: Fraction(1), 2: Fraction(0), 3: Fraction(0), 4: None}


@given(MEMBERS)
def test_children_divide_their_parents_part(members: list[Member]) -> None:
    """Parts of children never exceed the parent's, and fill it unless there is no weight."""
    parts = promised_shares(members)
    for parent in (None, *(member.id for member in members)):
        whole = Fraction(1) if parent is None else parts[parent]
        below = [member for member in members if member.parent == parent]
        given_out = sum((parts[child.id] or Fraction(0) for child in below), Fraction(0))
        assert given_out in {Fraction(0), whole or Fraction(0)}


@given(MEMBERS, st.dictionaries(st.integers(0, 8), st.integers(-5, 100)))
def test_sums_hold_everything_below(members: list[Member], used: dict[int, int]) -> None:
    """The sum over the topmost campaigns and their descendants is the sum over all."""
    used = {campaign: amount for campaign, amount in used.items() if campaign < len(members)}
    sums = with_descendants(members, used)
    top = [member.id for member in members if member.parent is None]
    assert sum(sums[campaign] for campaign in top) == sum(used.values())
