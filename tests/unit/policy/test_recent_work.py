"""Shares by recent work: standings, choices for one instant, and turns over a long time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.policy.share.recent_work import (
    RecentWorkSelector,
    WorkItem,
    choose,
    recent_of,
    sorted_by_standing,
    standings,
)
from lead.policy.view import Charge
from node.model import times
from tests.golden.originals.decay import decayed
from tests.golden.originals.round_robin_simulation import SimulatedSeats, turns_taken

NAMES = ("a", "b", "c", "d")
amounts = st.floats(0, 1000).map(lambda it: round(it, 3))
shares_of_all = st.fixed_dictionaries({name: st.integers(1, 9) for name in NAMES})
recents = st.fixed_dictionaries(dict.fromkeys(NAMES, amounts))


def test_no_usage_stands_highest() -> None:
    """Less work per share stands higher, and a campaign without a share stands lowest."""
    result = standings({"a": 3, "b": 1, "z": 0}, {"a": 1, "b": 1, "c": 2, "z": 0})
    assert result == {"a": -3.0, "b": -1.0, "c": 0.0, "z": -1000.0}
    assert sorted_by_standing(result) == ["c", "b", "a", "z"]


def test_ties_are_broken_by_name() -> None:
    """While no work was done, all are equal and names decide."""
    assert sorted_by_standing(standings({}, {"b": 1, "a": 5})) == ["a", "b"]


@given(
    st.lists(
        st.tuples(st.integers(0, 5 * times.DAY), st.integers(1, times.DAY), st.integers(1, 9)),
        max_size=8,
    )
)
def test_the_ledger_agrees_with_decaying_step_by_step(
    charges: list[tuple[int, int, int]],
) -> None:
    """Reading all charges at once equals decaying from each change to the next."""
    now = 6 * times.DAY
    ledger = [Charge("a", at, at + length, seats * length) for at, length, seats in charges]
    instants = sorted({0, now, *(it.start for it in ledger), *(it.end for it in ledger)})
    recent = 0.0
    for start, end in pairwise(instants):
        rate = sum(it.amount / (it.end - it.start) for it in ledger if it.start <= start < it.end)
        recent = decayed(recent, rate, end - start)
    assert recent_of(ledger, now).get("a", 0.0) == pytest.approx(recent, abs=1e-9)


def test_future_charges_do_not_count() -> None:
    """Only the past part of a charge is recent work."""
    whole = Charge("a", 0, 2 * times.HOUR, 2 * times.HOUR)
    half = Charge("a", 0, times.HOUR, times.HOUR)
    assert recent_of([whole], times.HOUR) == pytest.approx(recent_of([half], times.HOUR))
    assert recent_of([Charge("a", 10, 20, 10)], 5) == {}


@given(
    st.dictionaries(st.sampled_from(NAMES), st.lists(st.integers(1, 3), max_size=6)),
    recents,
    shares_of_all,
    st.integers(1, 8),
)
def test_each_choice_has_the_highest_standing(
    needs: dict[str, list[int]], recent: dict[str, float], shares: dict[str, int], seats: int
) -> None:
    """The heap makes the choices that sorting anew before each choice would."""
    waiting = {
        name: [WorkItem(f"{name}{at}", name, 1, need) for at, need in enumerate(some)]
        for name, some in needs.items()
    }
    turns, used, expected = RecentWorkSelector(recent, shares, seats), 0.0, []
    queues = {name: list(some) for name, some in waiting.items() if some}
    while queues and used < seats:
        name = min(queues, key=lambda it: (-turns.standing(it), it))
        work = queues[name].pop(0)
        if not queues[name]:
            del queues[name]
        expected.append(work)
        turns.record_choice(work)
        used += work.seats
    assert choose(waiting, RecentWorkSelector(recent, shares, seats), seats) == expected


@settings(max_examples=25)
@given(shares_of_all, st.integers(1, 3))
def test_turns_follow_the_shares(shares: dict[str, int], seats: int) -> None:
    """Over six hundred slices each campaign gets its share, within two percent of all."""
    rounds = 600
    served = turns_taken(SimulatedSeats(seats, shares, {}, half_life=10 * times.DAY), rounds)
    total = sum(shares.values())
    for name, share in shares.items():
        got = sum(names.count(name) for names in served) / (rounds * seats)
        assert got == pytest.approx(share / total, abs=0.02)
