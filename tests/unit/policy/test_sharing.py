"""Seats by weight and usage, by creation, by level, and by promise."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from lead.policy.axes.share import ByUsage
from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound
from lead.policy.preempt import groups, score
from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.share import aggregation, creation, levels, promised, urgent, usage
from lead.policy.view import BUCKET, URGENT, CampaignView, Charge, LimitView
from tests.golden.originals.named_seats import NamedSeats
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

NAMES = "abcdef"


@st.composite
def stakes_of(draw: st.DrawFn) -> list[CampaignStake]:
    """Draw campaigns that hold something, want more, and may be limited."""
    return [
        CampaignStake(
            name,
            weight=draw(st.integers(1, 9)),
            level=draw(st.integers(1, URGENT)),
            allocated=draw(st.integers(0, 5)),
            waiting=draw(st.none() | st.integers(0, 20)),
            most=draw(st.none() | st.integers(0, 12)),
            usage=draw(st.integers(0, 1000)),
            created_at=draw(st.integers(0, 3)),
        )
        for name in NAMES[: draw(st.integers(1, len(NAMES)))]
    ]


def _by_hand(order: list[CampaignStake], ideal: dict[str, int], free: int) -> dict[str, int]:
    """Hand out the ideals in order, then the rest in turn, a seat at a time."""
    given_ = {stake.name: 0 for stake in order}

    def may_add(stake: CampaignStake) -> bool:
        more = given_[stake.name] + 1
        waits = stake.waiting is None or more <= stake.waiting
        return waits and (stake.most is None or stake.allocated + more <= stake.most)

    for stake in order:
        while free and may_add(stake) and stake.allocated + given_[stake.name] < ideal[stake.name]:
            given_[stake.name] += 1
            free -= 1
    while free and any(may_add(stake) for stake in order):
        for stake in order:
            if free and may_add(stake):
                given_[stake.name] += 1
                free -= 1
    return given_


@given(stakes_of(), st.integers(0, 60))
def test_seats_are_handed_out_one_by_one(stakes: list[CampaignStake], free: int) -> None:
    """Each campaign adds what handing out single seats by hand gives, in serving order."""
    order = usage.serving_order(stakes)
    ideal = usage.ideals(free + sum(stake.allocated for stake in stakes), stakes)
    allotted = usage.allot(order, ideal, FreeSeats(free))
    assert [name for name, _ in allotted] == [stake.name for stake in order]
    assert dict(allotted) == _by_hand(order, ideal, free)


@given(stakes_of(), st.integers(0, 60))
def test_no_policy_leaves_a_wanted_seat(stakes: list[CampaignStake], free: int) -> None:
    """However seats are shared, no usable one stays free, and none is invented."""

    def inner(seats: int, level: list[CampaignStake], left: FreeSeats) -> list[tuple[str, int]]:
        return usage.allot(usage.serving_order(level), usage.ideals(seats, level), left)

    seats = FreeSeats(free)
    first, others = urgent.serve(stakes, seats)
    shared = urgent.left_to_share(free + sum(it.allocated for it in stakes), stakes, first)
    for allotted in (
        [*first, *inner(shared, others, seats)],
        levels.allot(stakes, FreeSeats(free), inner),
        creation.allot(stakes, FreeSeats(free)),
    ):
        added = dict(allotted)
        wanted = [stake.addable for stake in stakes]
        known = [each for each in wanted if each is not None]
        most = free if None in wanted else min(free, sum(known))
        assert sum(added.values()) == most
        assert all(stake.addable is None or added[stake.name] <= stake.addable for stake in stakes)


@given(stakes_of(), st.integers(0, 60))
def test_higher_levels_are_satisfied_first(stakes: list[CampaignStake], free: int) -> None:
    """A level gets something only when no higher level could add any more."""
    allotted = dict(
        levels.allot(stakes, FreeSeats(free), lambda _, some, left: creation.allot(some, left))
    )
    for stake in stakes:
        if allotted[stake.name]:
            above = [it for it in stakes if it.level > stake.level]
            assert all(allotted[it.name] == it.addable for it in above)


@given(
    st.integers(0, 120),
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 30), min_size=1),
    st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers(0, 60)),
)
def test_promises_are_kept_when_they_can_be(
    seats: int, promises: dict[str, int], demand: dict[str, int | None]
) -> None:
    """With enough seats each group has its target or demand, and no wanted seat is free."""
    order = sorted(promises)
    settled = promised.settlement_of(seats, promises, demand, order)
    wants = {name: demand.get(name) for name in order}
    need = {
        name: promises[name] if (want := wants[name]) is None else min(promises[name], want)
        for name in order
    }
    assert settled.enough == (sum(need.values()) <= seats)
    if settled.enough:
        assert all(settled.total[name] >= need[name] for name in order)
    known = [each for each in wants.values() if each is not None]
    most = seats if None in wants.values() else min(seats, sum(known))
    assert sum(settled.total.values()) == most
    assert all(each is None or settled.total[name] <= each for name, each in wants.items())


def test_groups_take_turns_inside() -> None:
    """A group's seats go one by one to its campaigns, the least used first."""
    order = [CampaignStake("x", waiting=1), CampaignStake("y"), CampaignStake("z", waiting=9)]
    assert promised.allot_within_group(order, FreeSeats(6)) == [("x", 1), ("y", 3), ("z", 2)]


def test_named_seats_go_to_those_who_may_use_them() -> None:
    """Named seats go to campaigns that may use them, in the order of their names."""
    seats = NamedSeats.of(["e3", "e1", "e2"], {"x": frozenset({"e1", "e9"})})
    assert (seats.take("x", 5), seats.take("y", 1), seats.names) == (1, 1, ["e3"])
    assert (seats.take("y", None), seats.free) == (1, 0)


def test_usage_slides_out_of_the_window() -> None:
    """Only usage within the window counts, running runs up to now, newcomers as if they had run."""
    ledger = [Charge("a", 0, 100, 100), Charge("a", 90, 130, 80), Charge("b", 0, 10, 10)]
    assert usage.usage_within(ledger, 100, 50) == {"a": 50 + 20}
    begun = usage.newcomer_charge("n", Fraction(5, 2), 100, 50)
    assert begun.amount == 125
    assert usage.usage_within([begun], 120, 50) == {"n": 75}


def test_inherited_parts_follow_the_tree() -> None:
    """A parent's part is split among active children, with its own tasks as one more child."""
    parents = {"p": None, "a": "p", "b": "p", "c": "b", "idle": "p", "q": None}
    weights = {"p": 5, "a": 1, "b": 2, "c": 7, "idle": 9, "q": 1}
    assert aggregation.top_and_part(["a", "c", "q"], parents, weights) == {
        "a": ("p", Fraction(1, 3)),
        "c": ("p", Fraction(2, 3)),
        "q": ("q", 1),
    }
    assert aggregation.top_and_part(["p", "a"], parents, weights)["p"] == ("p", Fraction(1, 2))


@given(
    st.integers(0, 40),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 20), min_size=1),
    st.integers(0, 10),
)
def test_only_what_was_lent_is_taken_back(short: int, held: dict[str, int], target: int) -> None:
    """No group falls below its target, and those left alone are no further above it."""
    targets = dict.fromkeys(held, target)
    taken = groups.seats_to_return(short, held, targets)
    remaining = {name: held[name] - taken.get(name, 0) for name in held}
    lent = sum(max(0, count - target) for count in held.values())
    assert sum(taken.values()) == min(short, lent)
    assert all(remaining[name] >= target for name in taken)
    furthest = max(remaining.values())
    assert all(remaining[name] >= furthest - 1 for name in taken) or sum(taken.values()) == 0


@given(
    st.lists(st.tuples(st.integers(0, URGENT), st.integers(0, 10**6)), max_size=8),
    st.integers(0, 8),
)
def test_no_urgent_run_is_a_victim(running: list[tuple[int, int]], most: int) -> None:
    """Victims have the lowest scores, are never urgent, and are no more than wanted."""
    occupants = [score.Occupant(f"r{n}", *it) for n, it in enumerate(running)]
    victims = score.victims(occupants, 1000, most)
    kept = [it for it in occupants if it not in victims and it.level < URGENT]
    assert all(victim.level < URGENT for victim in victims)
    assert len(victims) == min(most, len(victims) + len(kept))
    if victims and kept:
        worst = max(score.score(it, 1000) for it in victims)
        assert worst <= min(score.score(it, 1000) for it in kept)


def test_urgent_campaigns_need_no_free_seat() -> None:
    """In a full hour, urgent candidates are asked for, and no others are."""
    nodes = nodes_of(2)
    campaigns = [CampaignView("ops"), CampaignView("outage", level=URGENT)]
    candidates = [due(name, name, nodes) for name in ("ops", "outage")]
    full = [Charge("ops", NOW, NOW + BUCKET, 2 * BUCKET)]
    sharing = ByUsage().for_episode(Board(view_of(nodes, campaigns, candidates, ledger=full)))
    for turn in AllocationRound:
        refusals = {each.task: sharing.find_refusal(each, turn) for each in candidates}
        assert [task for task, refusal in refusals.items() if refusal is None] == ["outage"]


def test_the_second_round_survives_the_last_worker() -> None:
    """Candidates over a soft limit when the workers ran out count as unreached, like later ones."""
    nodes = nodes_of(6)
    campaigns = [CampaignView("a", limits={"runs": LimitView(3, None)}), CampaignView("b")]
    crowd = [due(f"{it.name}{n}", it.name, nodes, slip=0) for it in campaigns for n in range(6)]
    view = view_of(nodes, campaigns, crowd, workers=4)
    outcome = Driver(view, has_time=lambda ask: ask.candidate.campaign == "a").drive(
        COMPOSITIONS["maui-throttle"]
    )
    assert [run.task for run in outcome.placed] == ["a0", "a1", "a2"]
    assert list(outcome.refused) == ["b0"]
    assert outcome.unreached == 8
