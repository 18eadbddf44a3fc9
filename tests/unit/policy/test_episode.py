"""Episodes over due tasks, with every named set."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.policy.axes import fill, order, share
from lead.policy.episode import Episode
from lead.policy.placement_requests import AllocationRound, Ask, EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.verdict import Axis
from lead.policy.view import (
    URGENT,
    CampaignView,
    Candidate,
    Charge,
    LimitView,
    NodeView,
    PostedRun,
    QueueView,
    RememberedState,
    ReservationView,
    View,
)
from node.model import times
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, pools, view_of

HALF_AN_HOUR = 30 * times.MINUTE


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(COMPOSITIONS)), view=pools(), workers=st.sampled_from([0, 3, 100])
)
def test_every_candidate_is_accounted_for(name: str, view: View, workers: int) -> None:
    """Each due task is either placed, refused with reasons, or not reached."""
    view = replace(view, workers=workers)
    driver = Driver(view)
    outcome = driver.drive(COMPOSITIONS[name])
    placed = Counter(run.task for run in outcome.placed)
    assert set(placed.values()) <= {1}
    wanted = {candidate.task: candidate.k for candidate in view.candidates}
    full = {run.task for run in outcome.placed if len(run.nodes) == wanted[run.task]}
    assert not full & outcome.refused.keys()
    handled = placed.keys() | outcome.refused.keys()
    assert len(handled) + outcome.unreached == len(view.candidates)
    assert len(driver.asks) <= workers
    for refusals in outcome.refused.values():
        assert refusals
        for refusal in refusals:
            assert refusal.to_trace()["sentence"]
            assert not re.search(r"{\w", refusal.reason), "a value is missing"


@settings(max_examples=60)
@given(name=st.sampled_from(sorted(COMPOSITIONS)), view=pools())
def test_asked_nodes_are_suitable(name: str, view: View) -> None:
    """The nodes asked are up, match, suffice, and respect the spread."""
    driver = Driver(view)
    driver.drive(COMPOSITIONS[name])
    for ask in driver.asks:
        candidate = ask.candidate
        assert len(set(ask.nodes)) == len(ask.nodes) >= ask.least
        assert ask.least <= ask.wanted <= len(ask.nodes)
        assert set(ask.nodes) <= set(candidate.nodes)
        assert all(view.nodes[node].up for node in ask.nodes)
        assert view.campaigns[candidate.campaign].level
        if candidate.spread and not candidate.named:
            sites = Counter(view.nodes[node].attributes["site"] for node in ask.nodes)
            assert max(sites.values()) == 1


@settings(max_examples=60)
@given(name=st.sampled_from(sorted(COMPOSITIONS)), view=pools())
def test_an_episode_can_be_repeated(name: str, view: View) -> None:
    """The same view and seed give the same questions and the same state."""
    drivers = [Driver(view), Driver(view)]
    outcomes = [driver.drive(COMPOSITIONS[name]) for driver in drivers]
    assert drivers[0].asks == drivers[1].asks
    assert outcomes[0].state == outcomes[1].state


def _seats(outcome: EpisodeOutcome) -> Counter[str]:
    counts: Counter[str] = Counter()
    for run in outcome.placed:
        counts[run.campaign] += len(run.nodes)
    return counts


def _crowd(campaigns: list[CampaignView], nodes: dict[str, NodeView], each: int) -> list[Candidate]:
    """Return tasks of an hour, all due at once, at least twice as many as there is room for."""
    return [
        due(f"{campaign.name}-{number}", campaign.name, nodes, duration=times.HOUR, slip=0)
        for campaign in campaigns
        for number in range(each)
    ]


@pytest.mark.parametrize("name", ["gridserver-usage", "campaign-default"])
def test_scarce_seats_are_shared_by_weight(name: str) -> None:
    """If all campaigns want everything, each gets its part of the hour, and the rest is refused."""
    nodes = nodes_of(12)
    campaigns = [
        CampaignView("a", weight=1),
        CampaignView("b", weight=2),
        CampaignView("c", weight=3),
    ]
    outcome = Driver(view_of(nodes, campaigns, _crowd(campaigns, nodes, 12))).drive(
        COMPOSITIONS[name]
    )
    assert _seats(outcome) == {"a": 2, "b": 4, "c": 6}
    rules = {refusal.rule.name for refusals in outcome.refused.values() for refusal in refusals}
    assert rules == {"no-seats"}


def test_each_run_of_an_episode_counts_as_load_of_its_node() -> None:
    """Runs that could all follow each other on one node are spread over the idle ones."""
    nodes = nodes_of(6)
    tasks = [
        due(f"task-{number}", "a", nodes, duration=5 * times.MINUTE, slip=50 * times.MINUTE)
        for number in range(len(nodes))
    ]
    outcome = Driver(view_of(nodes, [CampaignView("a")], tasks)).drive(
        COMPOSITIONS["campaign-default"]
    )
    assert Counter(name for run in outcome.placed for name in run.nodes) == Counter(list(nodes))


def test_unused_ideals_go_to_others() -> None:
    """A campaign gets more than its ideal if the others want less than theirs."""
    nodes = nodes_of(12)
    campaigns = [CampaignView("a"), CampaignView("b")]
    crowd = _crowd(campaigns, nodes, 12)
    candidates = [it for it in crowd if it.campaign == "a" or it.task == "b-0"]
    outcome = Driver(view_of(nodes, campaigns, candidates)).drive(COMPOSITIONS["gridserver-usage"])
    assert _seats(outcome) == {"a": 11, "b": 1}


def test_splitting_a_campaign_gains_nothing() -> None:
    """Ten campaigns under one parent together get what one campaign beside it gets."""
    nodes = nodes_of(20)
    parts = [CampaignView(f"part{number}", parent="big") for number in range(10)]
    campaigns = [CampaignView("big"), CampaignView("small"), *parts]
    candidates = _crowd([CampaignView("small"), *parts], nodes, 20)
    outcome = Driver(view_of(nodes, campaigns, candidates)).drive(COMPOSITIONS["campaign-default"])
    seats = _seats(outcome)
    assert seats.pop("small") == 10
    assert set(seats.values()) == {1}


def test_the_campaign_with_less_usage_is_served_first() -> None:
    """The campaign with the most usage goes short if ideals are rounded up."""
    nodes = nodes_of(3)
    campaigns = [CampaignView("a", created_at=1), CampaignView("b", created_at=2)]
    ledger = [Charge("a", NOW - times.HOUR, NOW, times.HOUR)]
    view = view_of(nodes, campaigns, _crowd(campaigns, nodes, 3), ledger=ledger)
    assert _seats(Driver(view).drive(COMPOSITIONS["gridserver-usage"])) == {"a": 1, "b": 2}
    view = replace(view, ledger=[replace(ledger[0], campaign="b")])
    assert _seats(Driver(view).drive(COMPOSITIONS["gridserver-usage"])) == {"a": 2, "b": 1}


def test_a_newcomer_does_not_flood() -> None:
    """A new campaign begins as if it had used its share, and the state remembers that."""
    nodes = nodes_of(3)
    campaigns = [CampaignView("a", created_at=1), CampaignView("new", created_at=NOW)]
    half = 3 * times.DAY // 2
    ledger = [Charge("a", NOW - times.DAY, NOW, half - 1)]
    view = view_of(nodes, campaigns, _crowd(campaigns, nodes, 3), ledger=ledger)
    outcome = Driver(view).drive(COMPOSITIONS["gridserver-usage"])
    assert _seats(outcome) == {"a": 2, "new": 1}
    assert outcome.state.newcomers == {"new": Charge("new", NOW - times.DAY, NOW, half)}


def test_levels_are_served_in_order() -> None:
    """In serial mode the higher level gets all it wants before the lower one gets anything."""
    nodes = nodes_of(4)
    campaigns = [CampaignView("low", level=3, weight=9), CampaignView("high", level=6)]
    candidates = _crowd(campaigns, nodes, 3)
    for name in ("gridserver-serial-usage", "gridserver-serial-time"):
        outcome = Driver(view_of(nodes, campaigns, candidates)).drive(COMPOSITIONS[name])
        assert _seats(outcome) == {"high": 3, "low": 1}


def test_promised_seats_are_kept_and_lent() -> None:
    """A group gets what it was promised, and what an idle group leaves is lent to others."""
    nodes = nodes_of(12)
    campaigns = [CampaignView("a", target=6), CampaignView("b", target=2), CampaignView("stranger")]
    crowd = _crowd(campaigns, nodes, 12)
    outcome = Driver(view_of(nodes, campaigns, crowd)).drive(COMPOSITIONS["gridserver-sla"])
    # 4 seats remain: 6/8 and 2/8 of them.
    assert _seats(outcome) == {"a": 9, "b": 3}
    assert outcome.refused["stranger-0"][0].rule.name == "no-group"
    alone = [it for it in crowd if it.campaign == "b"]
    outcome = Driver(view_of(nodes, campaigns, alone)).drive(COMPOSITIONS["gridserver-sla"])
    assert _seats(outcome) == {"b": 12}


def test_each_run_of_a_term_is_a_start() -> None:
    """A campaign whose term has six runs has its next turn after six starts of another one."""
    nodes = nodes_of(20)
    campaigns = [CampaignView("a"), CampaignView("b")]
    runs = tuple(
        (NOW + number * times.HOUR, NOW + number * times.HOUR + 10 * times.MINUTE)
        for number in range(6)
    )
    terms = [due(f"a-{n}", "a", nodes, added_at=n, runs=runs) for n in range(2)]
    single = [due(f"b-{n}", "b", nodes, added_at=n) for n in range(8)]
    driver = Driver(view_of(nodes, campaigns, [*terms, *single]))
    driver.drive(COMPOSITIONS["fbsng-dynamic"])
    started = "".join(ask.candidate.campaign for ask in driver.asks)
    assert started in {"abbbbbbabb", "babbbbbbab"}


def test_starts_are_shared_by_price() -> None:
    """A campaign that pays seven per start beside one of three gets three of ten starts."""
    nodes = nodes_of(10)
    campaigns = [
        CampaignView("a", queue=QueueView(price=3)),
        CampaignView("b", queue=QueueView(price=7)),
    ]
    view = view_of(nodes, campaigns, _crowd(campaigns, nodes, 10))
    outcome = Driver(view).drive(COMPOSITIONS["fbsng-dynamic"])
    assert _seats(outcome) == {"a": 7, "b": 3}
    assert outcome.state.starts == 10
    priorities = {name: queue.priority for name, queue in outcome.state.queues.items()}
    assert priorities == {"a": 0, "b": 0}


def test_a_wide_task_is_passed_a_limited_number_of_times() -> None:
    """Tasks of a campaign wait once its wide task was passed as often as its gap allows."""
    nodes = nodes_of(4)
    campaigns = [CampaignView("a", queue=QueueView(passes=2))]
    wide = due("wide", "a", nodes, k=4, k_min=4, together=True, slip=0, added_at=-1)
    small = [due(f"small{n}", "a", nodes, slip=0, added_at=n) for n in range(3)]
    taken = PostedRun("x", "x", "a", ("n0",), NOW, NOW + times.MINUTE)
    view = view_of(nodes, campaigns, [wide, *small], runs=[taken])
    outcome = Driver(view).drive(COMPOSITIONS["fbsng-dynamic"])
    assert [run.task for run in outcome.placed] == ["small0", "small1"]
    assert outcome.state.passes == {"wide": 2}
    assert outcome.refused["small2"][0].rule.name == "passes"


@pytest.mark.parametrize(("awaited", "placed"), [(True, 2), (False, 3)])
def test_others_wait_while_a_node_is_away_for_a_while(*, awaited: bool, placed: int) -> None:
    """A wide task keeps what it is guaranteed while one of its nodes may answer again soon."""
    nodes = nodes_of(4)
    nodes["n0"] = replace(nodes["n0"], up=False, awaited=awaited)
    campaigns = [CampaignView("a", queue=QueueView(passes=2))]
    wide = due("wide", "a", nodes, k=4, k_min=4, together=True, slip=0, added_at=-1)
    small = [due(f"small{n}", "a", nodes, slip=0, added_at=n) for n in range(3)]
    outcome = Driver(view_of(nodes, campaigns, [wide, *small])).drive(COMPOSITIONS["fbsng-dynamic"])
    assert len(outcome.placed) == placed
    [why] = outcome.refused["wide"]
    assert why.rule.name == "too-few-nodes"
    assert ("small2" in outcome.refused) is awaited


def test_what_only_waited_is_tried_when_nothing_holds_it() -> None:
    """A task that waited for another one is not stuck itself: without that one it starts."""
    nodes = nodes_of(2)
    campaigns = [CampaignView("a", queue=QueueView(passes=0))]
    wide = due("wide", "a", nodes, k=2, k_min=2, together=True, slip=0, added_at=-1)
    small = due("small", "a", nodes, slip=0)
    taken = PostedRun("x", "x", "a", ("n0",), NOW, NOW + times.MINUTE)
    first = Driver(view_of(nodes, campaigns, [wide, small], runs=[taken]))
    before = first.drive(COMPOSITIONS["fbsng-dynamic"])
    assert before.state.held == ("small",)
    other = due("other", "a", nodes, slip=0, added_at=1)
    again = [replace(small, blocked=True), other]
    view = view_of(nodes, campaigns, again, runs=[taken], state=before.state)
    outcome = Driver(view).drive(COMPOSITIONS["fbsng-dynamic"])
    assert [run.task for run in outcome.placed] == ["small"]
    assert outcome.state.held == ()


def test_a_blocked_task_gets_a_slot() -> None:
    """Later tasks fill the time before the slot of a blocked task and never overlap it."""
    nodes = nodes_of(2)
    campaigns = [CampaignView("a")]
    until = NOW + HALF_AN_HOUR
    taken = PostedRun("x", "x", "a", ("n0",), NOW, until)
    wide = due("wide", "a", nodes, k=2, together=True, waits_since=NOW - times.HOUR)
    long = due("long", "a", {"n1": nodes["n1"]}, duration=40 * times.MINUTE, slip=0)
    short = due("short", "a", {"n1": nodes["n1"]}, duration=20 * times.MINUTE, slip=0)
    view = view_of(nodes, campaigns, [wide, long, short], runs=[taken])
    driver = Driver(view, has_time=lambda ask: ask.candidate.task != "wide")
    outcome = driver.drive(COMPOSITIONS["maui-backfill"])
    assert [(it.start, sorted(it.nodes)) for it in outcome.reservations] == [(until, ["n0", "n1"])]
    assert [run.task for run in outcome.placed] == ["short"]
    assert outcome.refused["long"][0].rule.name == "protected slot"
    assert outcome.state.passes == {"wide": 1}


def test_slots_are_avoided_within_the_slip() -> None:
    """A node whose time is kept for another task at once gets no seat of one that may wait."""
    nodes = nodes_of(1)
    wide = due("wide", "a", nodes, waits_since=NOW - times.HOUR)
    other = due("other", "a", nodes)
    driver = Driver(view_of(nodes, [CampaignView("a")], [wide, other]))
    driver.has_time = lambda ask: ask.candidate.task != "wide"
    outcome = driver.drive(
        replace(PolicyComposition(), order=order.Weighted(), fill=fill.Protected())
    )
    assert [it.span for it in driver.asks[1].avoid["n0"]] == [(NOW, NOW + 10 * times.MINUTE)]
    assert outcome.placed == []


def test_hard_limits_apply_in_the_last_round_only() -> None:
    """The first two rounds fill up to the soft limits, the third up to the hard ones."""
    nodes = nodes_of(8)
    campaigns = [CampaignView("a", limits={"runs": LimitView(1, 3)}), CampaignView("b")]
    view = view_of(nodes, campaigns, _crowd(campaigns, nodes, 4))
    driver = Driver(view)
    outcome = driver.drive(PolicyComposition())
    assert _seats(outcome) == {"a": 3, "b": 4}
    assert [
        ask.candidate.campaign for ask in driver.asks if ask.round is AllocationRound.THIRD
    ] == ["a"] * 2
    assert outcome.refused["a-3"][0].axis is Axis.THROTTLE


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(1, 4)), min_size=2),
    st.integers(1, 8),
    st.sampled_from(["campaign-default", "gridserver-usage", "maui-fifo", "boinc-wrr"]),
)
@pytest.mark.nightly
def test_no_soft_limit_is_exceeded_while_others_want_the_nodes(
    wanted: list[tuple[int, int, int]], size: int, name: str
) -> None:
    """A campaign exceeds its soft limit only if nobody is refused anything below its own."""
    nodes = nodes_of(size)
    limits = [(tasks, soft, soft + more) for tasks, soft, more in wanted]
    campaigns = [
        CampaignView(f"c{number}", limits={"runs": LimitView(soft, hard)})
        for number, (_, soft, hard) in enumerate(limits)
    ]
    crowd = [
        candidate
        for campaign, (tasks, *_) in zip(campaigns, limits, strict=True)
        for candidate in _crowd([campaign], nodes, tasks)
    ]
    outcome = Driver(view_of(nodes, campaigns, crowd)).drive(COMPOSITIONS[name])
    held = _seats(outcome)
    above = {
        f"c{number}"
        for number, (_, soft, _) in enumerate(limits)
        if held.get(f"c{number}", 0) > soft
    }
    below = {
        f"c{number}"
        for number, (tasks, soft, _) in enumerate(limits)
        if held.get(f"c{number}", 0) < min(tasks, soft)
    }
    assert not above or not below


@given(
    held=st.integers(1, 6),
    soft=st.integers(0, 7),
    most=st.integers(0, 7),
    k=st.integers(1, 7),
    k_min=st.integers(1, 7),
    of_seats=st.booleans(),
)
def test_a_limit_leaves_as_many_nodes_as_it_permits(
    held: int, soft: int, most: int, k: int, k_min: int, *, of_seats: bool
) -> None:
    """A task has as many nodes as its campaign may have, and none if these are too few for it."""
    nodes = nodes_of(14)
    limits = {} if of_seats else {"runs": LimitView(min(soft, most), most)}
    ops = CampaignView("ops", seats_max=most if of_seats else None, limits=limits)
    there = [
        PostedRun(f"r{number}", f"r{number}", "ops", (f"n{number}",), NOW, NOW + times.HOUR)
        for number in range(held)
    ]
    wanted = due("t", "ops", nodes, k=k, k_min=min(k, k_min), duration=times.HOUR, slip=0)
    view = replace(view_of(nodes, [ops], [wanted]), runs=there)
    outcome = Driver(view).drive(PolicyComposition())
    permitted = min(k, max(0, most - held))
    taken = [len(run.nodes) for run in outcome.placed]
    assert taken == ([permitted] if permitted >= wanted.least else [])
    refused = outcome.refused.get("t", ())
    assert bool(refused) == (permitted < k)
    assert all(refusal.axis is Axis.THROTTLE for refusal in refused)


def test_named_participants_need_no_share() -> None:
    """A task with named participants is charged to its campaign, but not limited by its share."""
    nodes = nodes_of(2)
    campaigns = [CampaignView("a"), CampaignView("b")]
    crowd = _crowd(campaigns, nodes, 2)
    named = replace(crowd[0], task="named", nodes=("n1", "n0"), named=True)
    view = view_of(nodes, campaigns, [named, *crowd])
    driver = Driver(view)
    outcome = driver.drive(replace(COMPOSITIONS["gridserver-usage"], order=order.NextRun()))
    assert driver.asks[0].nodes == ("n1", "n0")
    assert _seats(outcome) == {"a": 2}


def test_a_node_that_refuses_is_not_asked_again() -> None:
    """A node that refuses a campaign is not asked by it for a while; one without time is."""
    nodes = nodes_of(2)
    view = view_of(nodes, [CampaignView("a"), CampaignView("b")], [due("t", "a", nodes, spare=1)])
    outcome = Driver(view, has_time=lambda _: False).drive(COMPOSITIONS["boinc-backoff"])
    assert outcome.state.backoffs == {}
    outcome = Driver(view, refusing=frozenset(nodes)).drive(COMPOSITIONS["boinc-backoff"])
    assert outcome.state.backoffs.keys() == {("a", name, "exclusive") for name in nodes}
    after = replace(
        view, state=outcome.state, candidates=[due("t", "a", nodes), due("u", "b", nodes)]
    )
    outcome = Driver(after).drive(COMPOSITIONS["boinc-backoff"])
    assert [run.task for run in outcome.placed] == ["u"]
    assert [refusal.rule.name for refusal in outcome.refused["t"]] == ["backoff", "backoff"]
    later = replace(after, now=NOW + times.HOUR, candidates=[due("t", "a", nodes, slip=times.DAY)])
    outcome = Driver(later).drive(COMPOSITIONS["boinc-backoff"])
    assert [run.task for run in outcome.placed] == ["t"]
    assert len(outcome.state.backoffs) == 1


def test_a_blacklisted_node_serves_other_campaigns() -> None:
    """With blacklisting, a node whose run failed gets no more runs of that campaign only."""
    nodes = nodes_of(1)
    view = view_of(
        nodes,
        [CampaignView("a"), CampaignView("b")],
        [due("t", "a", nodes), due("u", "b", nodes)],
        state=RememberedState(failures={("n0", "a"): 1}),
    )
    outcome = Driver(view).drive(COMPOSITIONS["gridserver-blacklist"])
    assert [run.task for run in outcome.placed] == ["u"]
    figures = {"node": "n0", "failures": 1, "campaign": "a", "most": 1}
    assert outcome.refused["t"][0].reason.figures == figures


def test_an_ask_names_the_nodes_that_are_left_out() -> None:
    """Nodes that must not be asked are named with the reasons."""
    nodes = nodes_of(3)
    view = view_of(
        nodes,
        [CampaignView("a")],
        [due("t", "a", nodes, k=3, k_min=1)],
        state=RememberedState(failures={("n1", "a"): 1}),
    )
    driver = Driver(view)
    driver.drive(COMPOSITIONS["gridserver-blacklist"])
    [ask] = driver.asks
    assert set(ask.nodes) == {"n0", "n2"}
    assert {name: it.rule.name for name, it in ask.left_out.items()} == {"n1": "blacklisted"}


def test_nodes_tied_to_campaigns() -> None:
    """A node tied to campaigns serves these and their descendants; other nodes serve all."""
    nodes = nodes_of(3)
    nodes["n0"] = replace(nodes["n0"], attributes={"campaigns": "top,other"})
    campaigns = [CampaignView("top"), CampaignView("below", parent="top"), CampaignView("far")]
    candidates = [due(name, name, nodes, k=3, k_min=1) for name in ("below", "far")]
    driver = Driver(view_of(nodes, campaigns, candidates))
    driver.drive(COMPOSITIONS["fbsng-partition"])
    assert {ask.candidate.task: set(ask.nodes) for ask in driver.asks} == {
        "below": {"n0", "n1", "n2"},
        "far": {"n1", "n2"},
    }


def test_a_task_without_time_is_deferred() -> None:
    """With a deferral rule, a task that found no time is deferred until a stated time."""
    nodes = nodes_of(1)
    view = view_of(nodes, [CampaignView("a")], [due("t", "a", nodes)])
    outcome = Driver(view, has_time=lambda _: False).drive(COMPOSITIONS["maui-defer"])
    outcome = Driver(replace(view, state=outcome.state)).drive(COMPOSITIONS["maui-defer"])
    [refusal] = outcome.refused["t"]
    assert (refusal.axis, refusal.until) == (Axis.FEASIBLE, NOW + times.HOUR)


def test_the_usual_node_comes_first() -> None:
    """The node that measured a series before is asked first, and is worth waiting for."""
    nodes = nodes_of(4)
    asked = due("t", "a", nodes, series="www")
    view = view_of(nodes, [CampaignView("a")], [asked])
    state = RememberedState(measured={("a", "n2", "www"): NOW - 5})
    driver = Driver(replace(view, state=state))
    outcome = driver.drive(COMPOSITIONS["gridserver-usage"])
    [ask] = driver.asks
    assert (ask.nodes, ask.usual) == (("n2",), frozenset({"n2"}))
    assert outcome.state.measured == {("a", "n2", "www"): NOW}


def test_a_node_that_knows_the_target_comes_first_unless_it_is_busy() -> None:
    """Its measurements of another task to the same target count, but nobody waits for it."""
    nodes = nodes_of(4)
    asked = due("t", "a", nodes, series="t", target="www", slip=20 * times.MINUTE)
    state = RememberedState(measured={("a", "n2", "www"): NOW - 5, ("b", "n3", "www"): NOW})
    view = replace(view_of(nodes, [CampaignView("a")], [asked]), state=state)
    driver = Driver(view)
    driver.drive(COMPOSITIONS["gridserver-usage"])
    assert (driver.asks[0].nodes, driver.asks[0].usual) == (("n2",), frozenset())
    busy = PostedRun("r", "x", "b", ("n2",), NOW, NOW + times.MINUTE)
    driver = Driver(replace(view, runs=[busy]))
    driver.drive(COMPOSITIONS["gridserver-usage"])
    assert driver.asks[0].nodes[0] != "n2"


def _displacing(view: View, name: str) -> tuple[Ask, EpisodeOutcome]:
    driver = Driver(view, has_time=lambda _: False)
    outcome = driver.drive(COMPOSITIONS[name])
    [ask] = driver.asks
    return ask, outcome


def test_urgent_campaigns_displace_within_their_budget() -> None:
    """Urgent campaigns displace the lowest levels first, up to a part of the pool's own nodes."""
    nodes = nodes_of(20)
    campaigns = [
        CampaignView("u", level=URGENT),
        CampaignView("low", level=2),
        CampaignView("high", level=7),
    ]
    runs = [
        PostedRun(
            f"{name}{n}", f"{name}{n}", name, (f"n{n}",), NOW + 60, NOW + times.DAY, priority=4
        )
        for n, name in enumerate(["high", "low", "low"])
    ]
    runs.append(replace(runs[1], run="busy", running=True))
    runs.append(PostedRun("own", "own", "u", ("x1", "x2"), NOW + 60, NOW + times.DAY))
    full = {name: nodes[name] for name in ("n0", "n1", "n2")}
    asked = due("t", "u", full, k=3, waits_since=NOW - times.MINUTE)
    ask, _ = _displacing(view_of(nodes, campaigns, [asked], runs=runs), "gridserver-urgent")
    assert ask.displacing is not None
    assert ask.displacing.most == 2
    assert ask.displacing.priority == 5
    assert set(ask.displacing.runs or ()) <= {"low1", "low2", "high0"}


def test_urgent_campaigns_wait_before_they_displace() -> None:
    """An urgent run that has not waited long enough displaces nothing, and is told why."""
    nodes = nodes_of(20)
    view = view_of(
        nodes, [CampaignView("u", level=URGENT)], [due("t", "u", nodes, waits_since=NOW)]
    )
    ask, outcome = _displacing(view, "gridserver-urgent")
    assert ask.displacing is None
    assert [refusal.rule.name for refusal in outcome.refused["t"]] == ["no-time", "preempt-delay"]


def test_flags_decide_displacement() -> None:
    """A preemptor displaces preemptees of lower priority; any other campaign is refused."""
    nodes = nodes_of(1)
    campaigns = [
        CampaignView("p", preemptor=True),
        CampaignView("v", preemptee=True),
        CampaignView("x"),
    ]
    runs = [
        PostedRun(name, name, name, ("n0",), NOW + 60, NOW + times.HOUR, priority=1)
        for name in ("v", "x")
    ]
    view = view_of(nodes, campaigns, [due("t", "p", nodes, priority=2)], runs=runs)
    ask, _ = _displacing(view, "maui-preempt")
    assert ask.displacing is not None
    assert ask.displacing.runs == ("v",)
    ask, outcome = _displacing(replace(view, candidates=[due("t", "x", nodes)]), "maui-preempt")
    assert ask.displacing is None
    assert outcome.refused["t"][1].rule.name == "no preemptor"


def test_lent_seats_are_taken_back() -> None:
    """A group below its promise displaces what another group posted beyond its own."""
    nodes = nodes_of(2)
    campaigns = [CampaignView("a", target=1), CampaignView("b", target=1)]
    runs = [
        PostedRun(name, name, "a", (name,), NOW, NOW + times.HOUR, priority=9) for name in nodes
    ]
    ledger = [Charge("a", NOW, NOW + times.HOUR, 2 * times.HOUR)]
    asked = due("t", "b", nodes, duration=times.HOUR, slip=0)
    view = view_of(nodes, campaigns, [asked], runs=runs, ledger=ledger)
    ask, _ = _displacing(view, "gridserver-sla-preempt")
    assert ask.displacing is not None
    assert (ask.displacing.priority, ask.displacing.most) == (10, 1)
    assert set(ask.displacing.runs or ()) == {ask.nodes[0]}
    nothing, _ = _displacing(view, "gridserver-sla")
    assert nothing.displacing is None


def test_open_runs_count_as_placed() -> None:
    """Seats of open runs are not given to others until the runs are refused."""
    nodes = nodes_of(2)
    campaigns = [CampaignView("a"), CampaignView("b", level=0)]
    view = view_of(nodes, campaigns, _crowd(campaigns, nodes, 4))
    episode = Episode(view, COMPOSITIONS["gridserver-usage"], random.Random(1))
    first, second = episode.next_ask(), episode.next_ask()
    assert first is not None
    assert second is not None
    assert episode.next_ask() is None
    episode.record_refusal(first)
    assert len(episode.outcome().refused) == 7


def test_reserved_time_is_not_shared() -> None:
    """An hour in which nodes are reserved for others has fewer seats to share."""
    nodes = nodes_of(6)
    campaigns = [CampaignView("a"), CampaignView("b")]
    kept = ReservationView("demo", ("n0", "n1"), NOW, NOW + times.HOUR, frozenset({"x"}))
    view = view_of(nodes, campaigns, _crowd(campaigns, nodes, 6), reservations=[kept])
    policy = replace(COMPOSITIONS["gridserver-usage"], share=share.ByUsage())
    assert _seats(Driver(view).drive(policy)) == {"a": 2, "b": 2}
