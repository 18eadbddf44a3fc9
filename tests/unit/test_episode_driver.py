"""One episode of a pool: its policies are those of the pool, with its overrides."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from lead.model import PoolTask
from lead.planning.pool_view import SeatCase
from lead.policy.view import URGENT, CampaignView
from lead.pool.assignment import EpisodeRuling, SeatTaskPlan, search_account_of
from node.model import times
from node.model.classes import SchedulingClass
from node.model.timeline import Booking
from node.model.wire.seats import SeatRequest
from tests.support.clocks import START
from tests.support.episodes import Host, booked, case_of, given, hold

NAMES = ["n1", "n2"]
NEXT_RUN = {"policy_set": "pscheduler"}


async def test_the_overrides_of_a_pool_change_what_its_episode_does() -> None:
    """A campaign over its most seats gets none; where the pool says that this is no limit, all."""
    campaigns = [CampaignView("ops", seats_max=0)]
    cases = [case_of("a", "ops", NAMES, 2)]
    hosts = [Host(name) for name in NAMES]
    strict = await hold(hosts, campaigns, cases, {"policy_set": "gridserver-usage"})
    [result] = strict.results
    assert (given(strict), [no.axis for no in result.verdicts]) == ({"ops": set()}, ["throttle"])
    overrides = {"throttle": {"seats": False}}
    pool = {"policy_set": "gridserver-usage", "overrides": overrides}
    assert given(await hold(hosts, campaigns, cases, pool)) == {"ops": {"n1", "n2"}}


def _parts(ruling: EpisodeRuling) -> list[SeatTaskPlan]:
    return [part for result in ruling.results for part in result.parts]


async def test_only_runs_that_the_policy_names_give_way() -> None:
    """A preemptor's seat names the preemptee's run it needs, and has a priority just above it."""
    campaigns = [
        CampaignView("hot", preemptor=True),
        CampaignView("bulk", preemptee=True),
        CampaignView("ops"),
    ]
    runs = [booked("r1", "bulk", ["n1"], priority=2), booked("r2", "ops", ["n2"])]
    case = case_of("a", "hot", NAMES, 2, priority=3)
    ruling = await hold(
        [Host(name) for name in NAMES], campaigns, [case], {"policy_set": "maui-preempt"}, runs
    )
    assert given(ruling) == {"hot": {"n1"}}
    [part] = _parts(ruling)
    assert (part.yielding, part.task.terms.priority) == ([UUID(runs[0].run)], 3)
    [result] = ruling.results
    assert result.heard["n2"].startswith("no PT10M free")


async def test_people_are_not_told_what_policies_call_a_term() -> None:
    """The sentence of a verdict begins like one of the task that it is stored with."""
    runs = [booked("r1", "ops", ["n1"])]
    pool = {"policy_set": "fbsng-dynamic"}
    ruling = await hold(
        [Host("n1")], [CampaignView("ops")], [case_of("a", "ops", ["n1"])], pool, runs
    )
    [result] = ruling.results
    said = search_account_of(ruling, result).why_not()
    few = "it found time on too few of the 1 nodes asked; at least 1 are needed"
    assert said.startswith(f"{few}; n1: no PT")


def _spread(held: dict[int, str]) -> SeatCase:
    """Four seats, one for each site, of which three suffice; these are held."""
    names = [name for name in ("a", "b", "c", "d") if name not in held.values()]
    case = case_of("t", "ops", names, 4)
    return replace(
        case,
        request=SeatRequest(pool="europe", k=4, min_k=3, spread={"site": 1}),
        empty=[number for number in range(1, 5) if number not in held],
        sitting=held,
        held=len(held),
    )


@pytest.mark.parametrize("held", [{}, {1: "a", 2: "b", 3: "c"}], ids=["at first", "tried again"])
async def test_a_seat_that_the_spread_leaves_empty_says_so(held: dict[int, str]) -> None:
    """All the seats are counted, and the true cause comes first; d had time, and is like a."""
    sites = {"a": "x", "b": "y", "c": "z", "d": "x"}
    hosts = [Host(name, facts={"site": site}) for name, site in sites.items()]
    ruling = await hold(hosts, [CampaignView("ops")], [_spread(held)], {"policy_set": "pscheduler"})
    [result] = ruling.results
    said = search_account_of(ruling, result).sentence()
    assert said.startswith("3 of 4 seats, ")
    spread = "the spread (at most 1 for each site) leaves 3 nodes, but 4 are needed"
    assert f"1 is empty: {spread}; d: others with its site are taken" in said
    assert "found time on too few" not in said


async def test_who_is_down_is_named_where_seats_are_missing() -> None:
    """That a node of the pool does not answer is said by its name, once policies miss it."""
    hosts = [Host("n1", unreachable_since=START)]
    ruling = await hold(hosts, [CampaignView("ops")], [case_of("a", "ops", ["n1"])], NEXT_RUN)
    [result] = ruling.results
    said = search_account_of(ruling, result).why_not()
    assert said.startswith("0 of the 1 matching nodes are up, at least 1 are needed; ")
    assert said.endswith("n1: has not answered")


async def test_where_nobody_is_left_it_is_said_why() -> None:
    """All others have a seat, or cannot: this is no matter of who is up."""
    case = replace(case_of("a", "ops", []), unable={"b": "takes part in it already"})
    ruling = await hold([Host("b")], [CampaignView("ops")], [case], NEXT_RUN)
    [result] = ruling.results
    assert search_account_of(ruling, result).why_not() == (
        "no other node of the pool can take part; 1 more are needed; b: takes part in it already"
    )


async def test_no_more_gives_way_than_the_budget_allows() -> None:
    """Of three urgent seats on ten full nodes one displaces a run, with the priority it needs."""
    names = [f"n{number}" for number in range(10)]
    campaigns = [CampaignView("outage", level=URGENT), CampaignView("ops")]
    runs = [booked(name, "ops", [name], priority=7) for name in names]
    case = case_of("a", "outage", names, 3, created_at=START - times.MINUTE)
    hosts = [Host(name) for name in names]
    ruling = await hold(hosts, campaigns, [case], {"policy_set": "gridserver-urgent"}, runs)
    [part] = _parts(ruling)
    assert part.yielding is not None
    assert (len(part.yielding), part.task.terms.priority) == (1, 8)
    [result] = ruling.results
    said = (
        "1 run would have to give way to it; "
        "that is allowed for 1 of its seats at most, and 1 have it"
    )
    assert list(result.heard.values()).count(said) == 2


@pytest.mark.parametrize(
    ("policy_set", "nodes"), [("fbsng-dynamic", set()), ("pscheduler", {"n1"})]
)
async def test_nothing_or_whatever_is_lower_gives_way(policy_set: str, nodes: set[str]) -> None:
    """Where policies name no runs, what is lower gives way as to any task; or nothing does."""
    campaigns = [CampaignView("ops"), CampaignView("bulk")]
    runs = [booked("r1", "bulk", ["n1"])]
    host = Host("n1")
    case = case_of("a", "ops", ["n1"], priority=1)
    ruling = await hold([host], campaigns, [case], {"policy_set": policy_set}, runs)
    assert given(ruling) == {"ops": nodes}
    assert [request.yielding for request in host.asked] == [None] * len(nodes)
    assert [part.yielding for part in _parts(ruling)] == ([None] if nodes else [])


async def test_a_case_that_comes_to_nothing_leaves_time_for_the_next() -> None:
    """Two of the three nodes that one wants at least have time: the other one has it instead."""
    names, ten = ["n1", "n2", "n3"], 10 * times.MINUTE
    runs = [booked("r3", "ops", ["n3"], end=START + 3 * ten)]
    runs += [
        booked(f"r{name}", "ops", [name], start=START + ten, end=START + 3 * ten)
        for name in names[:2]
    ]
    three = replace(
        case_of("a", "ops", names, 3, created_at=START - times.HOUR),
        request=SeatRequest(pool="europe", k=3, min_k=3),
    )
    two = case_of("b", "ops", names, 2)
    hosts = [Host(name) for name in names]
    ruling = await hold(
        hosts, [CampaignView("ops")], [three, two], {"policy_set": "pscheduler"}, runs
    )
    assert [dict(it.taken) for it in ruling.results] == [{}, {1: "n1", 2: "n2"}]


async def test_seats_that_are_given_have_their_time() -> None:
    """One after the other, beside what was promised before; what begins at once may begin late."""
    coming = [booked("r1", "ops", ["n1"], start=START, end=START + 10 * times.MINUTE)]
    after = START + 10 * times.MINUTE + 10 * times.SECOND
    cases = [case_of(name, "ops", ["n1"]) for name in ("a", "b")]
    cases = [
        replace(case, recurrence=replace(case.recurrence, slip=11 * times.MINUTE)) for case in cases
    ]
    host, pool = Host("n1"), {"policy_set": "pscheduler"}
    ruling = await hold([host], [CampaignView("ops")], cases, pool, coming=coming)
    assert [part.starts for part in _parts(ruling)] == [[after]]
    ruling = await hold([host], [CampaignView("ops")], cases, pool)
    assert [part.starts for part in _parts(ruling)] == [[START], [after]]


def _slipping_at_random(whole: PoolTask) -> PoolTask:
    schedule = whole.terms.schedule.model_copy(update={"slip_random": True})
    return replace(whole, terms=replace(whole.terms, schedule=schedule))


async def test_where_the_slip_is_random_what_is_promised_is_drawn() -> None:
    """Not the earliest start, nor the same for all; and the same again in the same state."""
    cases = [case_of(f"t{number}", "ops", ["n1"]) for number in range(2)]
    drawn = [replace(case, whole=_slipping_at_random(case.whole)) for case in cases]
    pool = {"policy_set": "pscheduler"}
    both = [await hold([Host("n1")], [CampaignView("ops")], [case], pool) for case in drawn]
    starts = [part.starts[0] for ruling in both for part in _parts(ruling)]
    assert len({START, *starts}) == 3
    assert all(start <= START + 10 * times.MINUTE for start in starts)
    again = await hold([Host("n1")], [CampaignView("ops")], drawn[:1], pool)
    assert [part.starts for part in _parts(again)] == [starts[:1]]


async def test_of_a_full_pool_nobody_is_asked_in_vain() -> None:
    """Ten terms want time that runs of this lead have, ten more what runs of others have."""
    names = [f"n{number}" for number in range(1, 7)]
    own = [booked(f"r{name}", "ops", [name]) for name in names[:3]]
    hosts = [Host(name) for name in names]
    run = UUID(int=1), UUID(int=2), "idle", SchedulingClass.EXCLUSIVE, 9
    for host in hosts[3:]:
        host.bookings.append(Booking(*run, START, START + 20 * times.MINUTE, fixed=False))
    cases = [
        case_of(f"{half}{number}", "ops", half)
        for half in (names[:3], names[3:])
        for number in range(10)
    ]
    ruling = await hold(
        hosts, [CampaignView("ops")], cases, {"policy_set": "campaign-default"}, own
    )
    assert given(ruling) == {"ops": set()}
    assert [len(host.asked) for host in hosts] == [0, 0, 0, 1, 1, 1]
    said = [why for result in ruling.results for why in result.heard.values()]
    assert len(said) == 60
    assert all(why.startswith("no PT10M free") for why in said)
