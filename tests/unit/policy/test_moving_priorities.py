"""Shares by starts, gaps between queues and tasks, pacing, quotas, placement, blacklists."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lead.policy.feasible import blacklist
from lead.policy.gaps import GapEntry, first_success
from lead.policy.order import pacing, queues
from lead.policy.select import attributes, placement
from lead.policy.share import start_counts
from lead.policy.throttle import quota
from lead.policy.view import Exact, QueueView
from tests.golden.originals.affinity_wait import starts_at
from tests.golden.originals.failure_record import cleared, failed
from tests.golden.originals.named_placement import as_named

PRICES = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def _starts(rules: dict[str, QueueView], count: int) -> dict[str, int]:
    """Return how often each starts while all contend and all fit."""
    priorities: dict[str, Exact] = start_counts.initial_priorities(rules.items())
    started = dict.fromkeys(rules, -1)
    counts = dict.fromkeys(rules, 0)
    for number in range(count):
        contenders = [
            queues.Contender(name, priorities[name], rule.gap, started[name])
            for name, rule in rules.items()
        ]
        entry = queues.next_campaign(contenders, lambda _: True).entry
        assert entry is not None
        priorities |= start_counts.priorities_after_start(entry.name, priorities, rules)
        started[entry.name] = number
        counts[entry.name] += 1
    return counts


def _frequencies(rules: dict[str, QueueView]) -> dict[str, Fraction]:
    """Return the part of all starts that each gets while all contend and all fit.

    Exact where floors are equal, gaps and ceilings are far above the prices, and no part comes out
    negative.
    """
    inverse = {name: Fraction(1) / rule.price for name, rule in rules.items()}
    total = sum(inverse.values(), Fraction(0))
    gained = sum((rules[name].gain * each for name, each in inverse.items()), Fraction(0))
    constant = (1 - gained) / total
    return {name: (constant + rules[name].gain) * each for name, each in inverse.items()}


@given(PRICES, st.integers(1, 4))
def test_start_frequencies_solve_the_equation(prices: list[int], gain: int) -> None:
    """The counts follow the solution of ``f · price - gain = const``, whatever the prices."""
    rules = {
        str(n): QueueView(gap=10**9, ceiling=10**9, price=price, gain=gain)
        for n, price in enumerate(prices)
    }
    frequencies = _frequencies(rules)
    assert sum(frequencies.values()) == 1
    count = 400
    for name, result in _starts(rules, count).items():
        assert abs(result - float(frequencies[name]) * count) <= 2 * len(prices)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9), st.booleans()), max_size=7)
)
def test_only_a_gap_blocks(wanted: list[tuple[int, int | None, bool]]) -> None:
    """A blocked entry is at least a gap below a stuck one, and a tried entry is below none."""
    listed = sorted(wanted, key=lambda it: -it[0])
    entries = [GapEntry(str(n), priority, gap) for n, (priority, gap, _) in enumerate(listed)]
    fits = {str(n) for n, (_, _, fit) in enumerate(listed) if fit}
    tried = first_success(entries, lambda name: name if name in fits else None)
    reached = [*tried.stuck, *([tried.entry] if tried.entry else [])]
    assert [entry.name for entry in (*reached, *tried.held)] == [
        str(n) for n in range(len(reached) + len(tried.held))
    ]

    def holds(high: GapEntry, low: GapEntry) -> bool:
        return high.gap is not None and low.priority <= high.priority - high.gap

    for number, entry in enumerate(reached):
        assert not any(holds(high, entry) for high in tried.stuck[:number])
    assert all(any(holds(high, low) for high in tried.stuck) for low in tried.held)
    assert {entry.name for entry in tried.stuck}.isdisjoint(fits)


def test_a_blocked_queue_names_the_stuck_one() -> None:
    """The reason names the stuck queue, both priorities, and the gap."""
    contenders = [queues.Contender("high", 9, 5), queues.Contender("low", Fraction(7, 2), 1)]
    refusal = queues.reasons_to_wait(queues.next_campaign(contenders, lambda _: None))["low"]
    figures = {"campaign": "low", "priority": Fraction(7, 2), "stuck": "high", "high": 9, "gap": 5}
    assert refusal.reason.figures == figures


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 9))
def test_every_event_is_served_and_episodes_are_spaced(events: list[int], apart: int) -> None:
    """Episodes begin the given time apart, and each event is served no later than that."""
    begun: list[int] = []
    for event in sorted(events):
        if not begun or event > begun[-1]:
            begun.append(pacing.next_episode_at(event, begun[-1] if begun else None, apart))
    assert all(later - earlier >= apart for earlier, later in pairwise(begun))
    assert all(any(event <= at <= event + apart for at in begun) for event in events)


ROOMS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 4), min_size=1)


@given(ROOMS, st.integers(1, 12))
def test_placements_fit_or_are_refused(free: dict[str, int], count: int) -> None:
    """Every layout places all or nothing, and never more on a node than it has room for."""
    ways = {
        placement.round_robin: sum(free.values()),
        placement.pack: sum(free.values()),
        placement.spread: sum(1 for room in free.values() if room),
    }
    for lay, most in ways.items():
        placed = lay(free, count)
        assert (placed is None) == (count > most)
        if placed is not None:
            assert sum(placed.values()) == count
            assert all(placed[name] <= room for name, room in free.items())


def test_layouts_differ_as_documented() -> None:
    """Round robin evens out, packing uses the fewest nodes, and names are used as listed."""
    free = {"a": 2, "b": 4, "c": 2}
    assert placement.round_robin(free, 5) == {"a": 2, "b": 2, "c": 1}
    assert placement.pack(free, 5) == {"a": 1, "b": 4, "c": 0}
    assert as_named(free, ["c", "c"]) == {"a": 0, "b": 0, "c": 2}
    assert as_named(free, ["c", "c", "c"]) is None


def test_all_wanted_attributes_are_required() -> None:
    """A node is eligible if it has all wanted attributes, whatever else it has."""
    nodes = {"x": ["a", "b"], "y": ["b"], "z": []}
    assert attributes.nodes_with(nodes, ["a", "b"]) == ["x"]
    assert attributes.nodes_with(nodes, []) == ["x", "y", "z"]


def test_what_the_pool_has_left_is_not_exceeded() -> None:
    """All use and the request are at most the capacity; an unknown one is no limit."""
    refusal = quota.find_capacity_refusal("a", {"mbps": 5}, {"mbps": (9, 12)})
    assert refusal is not None
    figures = {"campaign": "a", "resource": "mbps", "used": 9, "wanted": 5, "capacity": 12}
    assert refusal.reason.figures == figures
    assert quota.find_capacity_refusal("a", {"mbps": 3, "other": 9}, {"mbps": (9, 12)}) is None


def test_failures_are_counted_and_cleared() -> None:
    """A node is excluded for one campaign after the maximum of failures, until that is cleared."""
    failures = failed({}, "n", "a")
    assert blacklist.find_blacklist_refusal(failures, "n", "a", 2) is None
    failures = failed(failures, "n", "a")
    assert blacklist.find_blacklist_refusal(failures, "n", "a", 2) is not None
    assert blacklist.find_blacklist_refusal(failures, "n", "b", 2) is None
    assert blacklist.find_blacklist_refusal(cleared(failures, "n", "a"), "n", "a", 2) is None


FREE_AT = st.none() | st.integers(0, 20)


@given(st.integers(0, 9), FREE_AT, FREE_AT, st.none() | st.integers(0, 9))
def test_waiting_for_the_usual_node_has_an_end(
    submitted: int, affine: int | None, other: int | None, wait: int | None
) -> None:
    """Another node is taken only after the wait and before the usual one."""
    result = starts_at(submitted, affine, other, wait)
    if affine is None and other is None:
        assert result is None
    elif result is None:
        assert affine is None
        assert wait is None
    else:
        usual, at = result
        free = affine if usual else other
        assert free is not None
        first = max(submitted, free)
        assert at == (first if usual else max(first, submitted + (wait or 0)))
        assert usual or affine is None or at < max(submitted, affine)
