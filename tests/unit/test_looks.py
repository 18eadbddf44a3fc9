"""The nodes at which a node looks in a round."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest

from node.model import times
from node.model.looks import ROUND, ROUND_MAX, SELDOM, in_this_round


def rounds(count: int, partners: set[str], number: int) -> dict[str, list[int]]:
    """Return, by node, the times of its looks in so many rounds."""
    names = [f"n{place}" for place in range(count)]
    looked_at = dict.fromkeys(names, -SELDOM)
    looks: defaultdict[str, list[int]] = defaultdict(list)
    rng = random.Random(count)
    for each in range(number):
        now = each * ROUND + rng.randrange(times.SECOND)
        chosen = in_this_round(names, str, partners, looked_at, now)
        assert len(set(chosen)) == len(chosen) <= max(ROUND_MAX, 0)
        for name in chosen:
            looks[name].append(now)
        looked_at |= dict.fromkeys(chosen, now)
    assert set(looks) <= set(names)
    return looks


def longest(instants: list[int]) -> float:
    """Return the longest time between two looks, in rounds."""
    return max(after - before for before, after in pairwise(instants)) / ROUND


@pytest.mark.parametrize("count", [0, 1, ROUND_MAX])
def test_a_small_fleet_is_looked_at_as_a_whole(count: int) -> None:
    """Each round has all nodes of a fleet that fits into it."""
    looks = rounds(count, set(), 5)
    assert [len(instants) for instants in looks.values()] == [5] * count


def test_partners_are_looked_at_each_round_and_others_seldom() -> None:
    """A partner is looked at in each round, another node each ten minutes."""
    partners = {f"n{place}" for place in range(100, 110)}
    looks = rounds(300, partners, 200)
    assert max(longest(looks[name]) for name in partners) < 2.1
    others = {name: it for name, it in looks.items() if name not in partners}
    assert len(others) == 290
    assert {len(instants) for instants in others.values()} <= {4, 5, 6}
    assert max(longest(it) for it in others.values()) <= SELDOM / ROUND + 2


def test_whoever_measures_with_many_looks_at_each_in_turn() -> None:
    """With more partners than a round has room for, each has its turn, and so do the others."""
    partners = {f"n{place}" for place in range(300)}
    looks = rounds(1000, partners, 1000)
    assert len(looks) == 1000
    in_turn = [longest(looks[name]) for name in partners]
    assert max(in_turn) <= 2 * 300 / ROUND_MAX
    assert min(len(looks[name]) for name in set(looks) - partners) >= 2


def test_a_new_partner_is_among_the_first() -> None:
    """A node that was just added is due, and if tasks are shared with it, before all others."""
    looked_at = {f"n{place}": 0 for place in range(100)} | {"new": ROUND - SELDOM}
    names = list(looked_at)
    assert in_this_round(names, str, set(), looked_at, ROUND) == ["new"]
    assert in_this_round(names, str, set(names), looked_at, ROUND)[0] == "new"
