"""The assignment of a term's seats to nodes in an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from lead.model.reasons import not_needed
from lead.planning.seat_selection import (
    SeatSearchAccount,
    SpreadLimit,
    TimeFound,
    assign_seat_numbers,
    choose_simultaneous,
    rank_by_time,
)
from node.model import times
from node.model.reasons import no_time_free, told
from tests.support.clocks import START

NAMES = [f"n{number}" for number in range(8)]
ANYWHERE = SpreadLimit({}, {name: {} for name in NAMES})
SITES = st.fixed_dictionaries(
    {name: st.fixed_dictionaries({}, optional={"site": st.integers(0, 3)}) for name in NAMES}
)
SLOTS = 4
COVERED = st.fixed_dictionaries({name: st.integers(0, SLOTS) for name in NAMES})
ORDERS = st.permutations(NAMES)


@given(ORDERS, COVERED, SITES, st.integers(1, 2), st.sets(st.sampled_from(NAMES)), st.data())
def test_seats_go_to_nodes_with_time_within_the_spread(
    order: list[str],
    covered: dict[str, int],
    sites: dict[str, dict[str, int]],
    alike: int,
    usual: set[str],
    data: st.DataObject,
) -> None:
    """Chosen nodes have time, respect the spread, and are as many as possible."""
    wanted = data.draw(st.integers(1, 8))
    spread = SpreadLimit({"site": alike}, sites)
    found = {name: TimeFound(slots) for name, slots in covered.items()}
    taken = spread.kept(rank_by_time(order, found, SLOTS, usual), (), wanted)
    assert len(set(taken)) == len(taken) <= wanted
    assert all(covered[node] for node in taken)
    assert _keeps(taken, sites, alike)
    able = [node for node in NAMES if covered[node]]
    most = max(
        size
        for size in range(len(able) + 1)
        for chosen in combinations(able, size)
        if _keeps(chosen, sites, alike)
    )
    assert len(taken) == min(wanted, most)


def test_a_node_that_was_just_renamed_is_not_crowded() -> None:
    """A node whose new name the episode does not know yet shares no attribute with others."""
    spread = SpreadLimit({"site": 1}, {"a": {"site": 1}, "b": {"site": 1}})
    assert spread.crowded_attribute("b", ["a"]) == "site"
    assert spread.crowded_attribute("west", ["a", "b"]) is None
    assert spread.crowded_attribute("b", ["west"]) is None


def _keeps(nodes: object, sites: dict[str, dict[str, int]], alike: int) -> bool:
    assert isinstance(nodes, list | tuple)
    counts = Counter(sites[node]["site"] for node in nodes if "site" in sites[node])
    return all(count <= alike for count in counts.values())


def test_a_node_with_time_for_all_comes_before_one_with_time_for_some() -> None:
    """Time precedes the policy's order, but a usual node may lack some time."""
    found = {"n0": TimeFound(3), "n1": TimeFound(4), "n2": TimeFound(2), "n3": TimeFound(0)}
    order = ["n0", "n1", "n2", "n3"]
    assert rank_by_time(order, found, 4, ()) == ["n1", "n0", "n2"]
    assert rank_by_time(order, found, 4, {"n2"}) == ["n1", "n2", "n0"]
    assert rank_by_time(order[::-1], found, 4, {"n2"}) == ["n2", "n1", "n0"]
    assert rank_by_time(order, found, 4, {"n3"}) == ["n1", "n0", "n2"]


def test_whoever_can_begin_earlier_comes_first() -> None:
    """Displacing nobody precedes an early start; usual nodes are waited for."""
    found = {
        "n0": TimeFound(1, late=60),
        "n1": TimeFound(1, displacing=1),
        "n2": TimeFound(1, 0, 5),
    }
    assert rank_by_time(["n0", "n1", "n2"], found, 1, ()) == ["n2", "n0", "n1"]
    assert rank_by_time(["n0", "n1", "n2"], found, 1, {"n0"}) == ["n0", "n2", "n1"]


def test_present_seat_holders_count_for_the_spread() -> None:
    """One per site applies to all seats of the term, not only to those given now."""
    spread = SpreadLimit({"site": 1}, {"n0": {"site": 1}, "n1": {"site": 1}, "n2": {"site": 2}})
    assert spread.kept(["n1", "n2"], ["n0"], 2) == ["n2"]


@given(
    ORDERS,
    st.one_of(
        st.fixed_dictionaries({name: st.sets(st.integers(0, SLOTS - 1)) for name in NAMES}),
        st.fixed_dictionaries(
            {name: st.integers(0, SLOTS - 1).map(lambda at: {at}) for name in NAMES}
        ),
    ),
    st.integers(1, 5),
)
def test_simultaneous_nodes_share_a_slot_or_none_is_chosen(
    order: list[str], free: dict[str, set[int]], wanted: int
) -> None:
    """All wanted nodes are chosen with common time; none only if no such nodes exist."""

    def common(nodes: Sequence[str]) -> TimeFound:
        return TimeFound(len(set(range(SLOTS)).intersection(*(free[node] for node in nodes))))

    def starts() -> list[dict[str, list[tuple[int, int]]]]:
        return [
            {node: [(at, at)] if at in free[node] else [] for node in order} for at in range(SLOTS)
        ]

    taken = choose_simultaneous(order, common, SLOTS, wanted, ANYWHERE, starts)
    possible = any(sum(at in free[node] for node in order) >= wanted for at in range(SLOTS))
    assert len(taken) == (wanted if possible else 0)
    if taken:
        assert common(taken).slots >= 1
    if sum(len(slots) == SLOTS for slots in free.values()) >= wanted:
        assert common(taken).slots == SLOTS


@given(
    st.lists(st.sampled_from(NAMES), unique=True),
    st.dictionaries(st.integers(1, 8), st.sampled_from(NAMES)),
    st.sets(st.integers(1, 8)),
)
def test_a_node_that_stays_keeps_its_seat_number(
    nodes: list[str], before: dict[int, str], empty: set[int]
) -> None:
    """Each node has one empty seat while there are any, its previous one where it had one."""
    seats = assign_seat_numbers(nodes, sorted(empty), before)
    assert len(seats) == min(len(nodes), len(empty)) == len(set(seats.values()))
    assert set(seats) <= empty
    for number, node in seats.items():
        owned = [n for n in sorted(empty) if before.get(n) == node]
        assert node in nodes
        assert not owned or number in owned


def test_the_sentence_lists_holders_and_reasons() -> None:
    """Reasons of policies precede those of nodes, and lists are shortened."""
    taken = {1: "a", 2: "b"}
    refused = {f"n{number}": no_time_free(10 * times.SECOND) for number in range(7)}
    slots = [START, START + times.HOUR]
    when = f"{times.to_the_second(START)} to {times.to_the_second(START + times.HOUR)}"
    assert SeatSearchAccount("p", "set", slots, 2, taken).summary() == f"2 of 2 seats, {when}: a, b"
    assert SeatSearchAccount("p", "set", slots, 3, taken, refused).summary() == (
        f"2 of 3 seats, {when}: a, b; 1 is empty: n0: no 10 s free; n1: no 10 s free; "
        "n2: no 10 s free; n3: no 10 s free; n4: no 10 s free and 2 more"
    )
    verdict = {"sentence": told("ops would hold 21 seats, of at most 20")}
    sentence = SeatSearchAccount(
        "p", "set", slots[:1], 1, {}, {"n0": not_needed()}, [verdict]
    ).summary()
    assert sentence == (
        f"0 of 1 seat, {times.to_the_second(START)}; ops would hold 21 seats, of at most 20; "
        "n0: was not needed"
    )
    held = SeatSearchAccount("p", "set", slots, 1, {}, {"n0": not_needed()}, held=3).summary()
    assert held == f"3 of 4 seats, {when}; 1 is empty: n0: was not needed"
    assert (
        SeatSearchAccount("p", "set", slots, 1, {}).why_not()
        == "pool p has no other node for the seat"
    )
    given = [SeatSearchAccount("p", "s", slots, 2, seats) for seats in ({}, {1: "a"}, taken)]
    assert [it.outcome for it in given] == ["not seated", "partly seated", "seated"]
    assert given[1].trace() == {
        "pool": "p",
        "policies": "s",
        "slots": [START, START + times.HOUR, 2],
        "seats": {"1": "a"},
        "refusals": {},
        "verdicts": [],
        "yielding": [],
    }
