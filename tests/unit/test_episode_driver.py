"""One episode of a pool, with the policies and overrides of the pool."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from lead.model.reasons import too_much_to_displace
from lead.model.records import PoolTask
from lead.planning.policy_state import decode_state
from lead.planning.pool_view import SeatCase
from lead.policy.view import URGENT, CampaignView
from lead.pool.assignment import EpisodeRuling, SeatTaskPlan, search_account_of
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import NotAllowed
from node.model.reasons import silent, takes_part_already
from node.model.timeline import Booking
from node.model.wire.participants import Proposal, ProposalRequest
from node.model.wire.seats import SeatRequest
from tests.support.clocks import START
from tests.support.episodes import Host, booked, case_of, given, run_episode

NAMES = ["n1", "n2"]
NEXT_RUN = {"policy_set": "pscheduler"}


async def test_a_pools_overrides_change_its_episode() -> None:
    """A pool whose set displaces runs does not if it overrides that rule."""
    campaigns = [CampaignView("hot", preemptor=True), CampaignView("bulk", preemptee=True)]
    runs = [booked("r1", "bulk", ["n1"], priority=2)]
    cases = [case_of("a", "hot", ["n1"], priority=3)]
    pool = {"policy_set": "maui-preempt"}
    usual = given(await run_episode([Host("n1")], campaigns, cases, pool, runs))
    never = {**pool, "overrides": {"preempt": {"rule": "never"}}}
    changed = given(await run_episode([Host("n1")], campaigns, cases, never, runs))
    assert (usual, changed) == ({"hot": {"n1"}}, {"hot": set()})


def _parts(ruling: EpisodeRuling) -> list[SeatTaskPlan]:
    return [part for result in ruling.results for part in result.parts]


async def test_only_runs_that_the_policy_names_are_displaced() -> None:
    """A preemptor's seat names the preemptee's run it needs, and has a priority just above it."""
    campaigns = [
        CampaignView("hot", preemptor=True),
        CampaignView("bulk", preemptee=True),
        CampaignView("ops"),
    ]
    runs = [booked("r1", "bulk", ["n1"], priority=2), booked("r2", "ops", ["n2"])]
    case = case_of("a", "hot", NAMES, 2, priority=3)
    ruling = await run_episode(
        [Host(name) for name in NAMES], campaigns, [case], {"policy_set": "maui-preempt"}, runs
    )
    assert given(ruling) == {"hot": {"n1"}}
    [part] = _parts(ruling)
    assert (part.yielding, part.task.terms.priority) == ([UUID(runs[0].run)], 3)
    [result] = ruling.results
    assert result.reasons["n2"].startswith("no 10 min free")


class _Refusing(Host):
    """A node that refuses every question."""

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Refuse the question."""
        raise NotAllowed(f"no {request.test} here")


async def test_only_a_node_that_refuses_is_left_alone() -> None:
    """A node is not asked for a while after it refused; one that was busy may be asked at once."""
    occupied = Booking(
        *(uuid4(), uuid4(), "idle", SchedulingClass.EXCLUSIVE, 0),
        *(START, START + times.HOUR, False),
    )
    hosts = [Host("busy", bookings=[occupied]), _Refusing("refusing")]
    case = case_of("a", "ops", [host.name for host in hosts])
    ruling = await run_episode(
        hosts, [CampaignView("ops")], [case], {"policy_set": "boinc-backoff"}
    )
    assert given(ruling) == {"ops": set()}
    paused = decode_state(ruling.remembered.state).backoffs
    assert paused.keys() == {("ops", "refusing", "exclusive")}


async def test_the_sentence_does_not_show_internal_names() -> None:
    """The sentence of a verdict starts with a reference to the task that it is stored with."""
    runs = [booked("r1", "ops", ["n1"])]
    pool = {"policy_set": "fbsng-dynamic"}
    ruling = await run_episode(
        [Host("n1")], [CampaignView("ops")], [case_of("a", "ops", ["n1"])], pool, runs
    )
    [result] = ruling.results
    sentence = search_account_of(ruling, result).why_not()
    few = "it found time on too few of the 1 node asked; at least 1 are needed"
    assert sentence.startswith(f"{few}; n1: no 10 min free")


def _spread(held: dict[int, str]) -> SeatCase:
    """Return a case of four seats on distinct sites: three suffice, ``held`` are taken."""
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
async def test_a_seat_left_empty_by_the_spread_is_explained(held: dict[int, str]) -> None:
    """The decisive cause comes first: of a and d, which share a site, the other one has time."""
    sites = {"a": "x", "b": "y", "c": "z", "d": "x"}
    hosts = [Host(name, facts={"site": site}) for name, site in sites.items()]
    ruling = await run_episode(
        hosts, [CampaignView("ops")], [_spread(held)], {"policy_set": "pscheduler"}
    )
    [result] = ruling.results
    sentence = search_account_of(ruling, result).summary()
    assert sentence.startswith("3 of 4 seats, ")
    spread = "the spread (at most 1 for each site) leaves 3 of 4 nodes that may be asked"
    [left] = {"a", "d"} - {*held.values(), *result.taken.values()}
    why = f"{spread}, but 4 are needed; {left}: others with its site are taken"
    assert f"1 is empty: {why}" in sentence
    assert "found time on too few" not in sentence


async def test_an_unreachable_node_is_named_if_seats_are_missing() -> None:
    """The reason names the node of the pool that does not answer."""
    hosts = [Host("n1", unreachable_since=START)]
    ruling = await run_episode(
        hosts, [CampaignView("ops")], [case_of("a", "ops", ["n1"])], NEXT_RUN
    )
    [result] = ruling.results
    sentence = search_account_of(ruling, result).why_not()
    assert sentence.startswith("0 of the 1 matching nodes are up, at least 1 are needed; ")
    assert sentence.endswith(silent(START, None).at("n1"))


async def test_an_exhausted_pool_is_explained() -> None:
    """The reason is that all other nodes have a seat or cannot have one."""
    case = replace(case_of("a", "ops", []), unable={"b": takes_part_already()})
    ruling = await run_episode([Host("b")], [CampaignView("ops")], [case], NEXT_RUN)
    [result] = ruling.results
    assert search_account_of(ruling, result).why_not() == (
        "no other node of the pool can take part; 1 more are needed; b: takes part in it already"
    )


async def test_displacement_stays_within_the_budget() -> None:
    """One of three urgent seats on ten full nodes displaces a run, with the priority it needs."""
    names = [f"n{number}" for number in range(10)]
    campaigns = [CampaignView("outage", level=URGENT), CampaignView("ops")]
    runs = [booked(name, "ops", [name], priority=7) for name in names]
    case = case_of("a", "outage", names, 3, created_at=START - times.MINUTE)
    hosts = [Host(name) for name in names]
    ruling = await run_episode(hosts, campaigns, [case], {"policy_set": "gridserver-urgent"}, runs)
    [part] = _parts(ruling)
    assert part.yielding is not None
    assert (len(part.yielding), part.task.terms.priority) == (1, 8)
    [result] = ruling.results
    assert list(result.reasons.values()).count(too_much_to_displace(1, 1, 1)) == len(names) - 1


@pytest.mark.parametrize(
    ("policy_set", "nodes"), [("fbsng-dynamic", set()), ("pscheduler", {"n1"})]
)
async def test_without_named_runs_lower_priority_or_nothing_is_displaced(
    policy_set: str, nodes: set[str]
) -> None:
    """Lower priorities are displaced as by any task, unless the policy displaces nothing."""
    campaigns = [CampaignView("ops"), CampaignView("bulk")]
    runs = [booked("r1", "bulk", ["n1"])]
    host = Host("n1")
    case = case_of("a", "ops", ["n1"], priority=1)
    ruling = await run_episode([host], campaigns, [case], {"policy_set": policy_set}, runs)
    assert given(ruling) == {"ops": nodes}
    assert [request.yielding for request in host.asked] == [None] * len(nodes)
    assert [part.yielding for part in _parts(ruling)] == ([None] if nodes else [])


async def test_an_unsuccessful_case_leaves_its_time_to_the_next() -> None:
    """The next case gets the two nodes with time if the first one needs at least three."""
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
    ruling = await run_episode(
        hosts, [CampaignView("ops")], [three, two], {"policy_set": "pscheduler"}, runs
    )
    assert [sorted(it.taken.values()) for it in ruling.results] == [[], ["n1", "n2"]]


async def test_assigned_seats_occupy_their_time() -> None:
    """Seats of one episode follow each other, after earlier promises."""
    coming = [booked("r1", "ops", ["n1"], start=START, end=START + 10 * times.MINUTE)]
    after = START + 10 * times.MINUTE + 10 * times.SECOND
    cases = [case_of(name, "ops", ["n1"]) for name in ("a", "b")]
    cases = [
        replace(case, recurrence=replace(case.recurrence, slip=11 * times.MINUTE)) for case in cases
    ]
    host, pool = Host("n1"), {"policy_set": "pscheduler"}
    ruling = await run_episode([host], [CampaignView("ops")], cases, pool, coming=coming)
    assert [part.starts for part in _parts(ruling)] == [[after]]
    ruling = await run_episode([host], [CampaignView("ops")], cases, pool)
    assert [part.starts for part in _parts(ruling)] == [[START], [after]]


def _slipping_at_random(pool_task: PoolTask) -> PoolTask:
    schedule = pool_task.terms.schedule.model_copy(update={"slip_random": True})
    return replace(pool_task, terms=replace(pool_task.terms, schedule=schedule))


async def test_a_random_slip_draws_the_promised_start() -> None:
    """The start is neither the earliest nor the same for all, but the same for the same state."""
    cases = [case_of(f"t{number}", "ops", ["n1"]) for number in range(2)]
    drawn = [replace(case, pool_task=_slipping_at_random(case.pool_task)) for case in cases]
    pool = {"policy_set": "pscheduler"}
    both = [await run_episode([Host("n1")], [CampaignView("ops")], [case], pool) for case in drawn]
    starts = [part.starts[0] for ruling in both for part in _parts(ruling)]
    assert len({START, *starts}) == 3
    assert all(start <= START + 10 * times.MINUTE for start in starts)
    again = await run_episode([Host("n1")], [CampaignView("ops")], drawn[:1], pool)
    assert [part.starts for part in _parts(again)] == [starts[:1]]


async def test_a_full_pool_is_not_asked_in_vain() -> None:
    """Nodes full of this lead's runs are not asked, and others only once for ten terms."""
    names = [f"n{number}" for number in range(1, 7)]
    own_runs = [booked(f"r{name}", "ops", [name]) for name in names[:3]]
    hosts = [Host(name) for name in names]
    run = UUID(int=1), UUID(int=2), "idle", SchedulingClass.EXCLUSIVE, 9
    for host in hosts[3:]:
        host.bookings.append(Booking(*run, START, START + 20 * times.MINUTE, fixed=False))
    cases = [
        case_of(f"{half}{number}", "ops", half)
        for half in (names[:3], names[3:])
        for number in range(10)
    ]
    ruling = await run_episode(
        hosts, [CampaignView("ops")], cases, {"policy_set": "campaign-default"}, own_runs
    )
    assert given(ruling) == {"ops": set()}
    assert [len(host.asked) for host in hosts] == [0, 0, 0, 1, 1, 1]
    reasons = [why for result in ruling.results for why in result.reasons.values()]
    assert len(reasons) == 60
    assert all(why.startswith("no 10 min free") for why in reasons)
