"""Each reason why a node takes no seat states facts that hold in the state it was made in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from uuid import UUID

from hypothesis import given as for_any
from hypothesis import strategies as st

from lead.model.reasons import given_to_seat, not_offered
from lead.planning.agenda import Slot
from lead.planning.pool_view import SeatCase
from lead.policy.view import CampaignView
from node.model import times
from node.model.classes import SchedulingClass
from node.model.reason import Reason
from node.model.reasons import no_time_free
from node.model.timeline import Booking
from node.model.wire.seats import SeatRequest
from tests.support.clocks import START
from tests.support.episodes import Host, case_of, run_episode

NAMES = ("n1", "n2", "n3", "n4", "n5")
SOON = 10 * times.SECOND
"""The time by which a run that is to begin at once may begin later."""
STEP = 5 * times.MINUTE
"""The grid on which bookings and slots begin and end, and so possible starts."""

Busy = Mapping[str, Collection[tuple[float, float]]]
"""By node, what is booked there, in steps."""

spans = st.tuples(st.integers(0, 23), st.integers(1, 6)).map(lambda it: (it[0], sum(it)))
busy_nodes = st.fixed_dictionaries({name: st.lists(spans, max_size=4) for name in NAMES})
sites = st.fixed_dictionaries({name: st.sampled_from("xyz") for name in NAMES})


def _host(name: str, busy: Collection[tuple[float, float]], site: str) -> Host:
    known = UUID(int=1), UUID(int=2), "idle", SchedulingClass.EXCLUSIVE, 9
    ranges = [(START + int(begin * STEP), START + int(end * STEP)) for begin, end in busy]
    bookings = [Booking(*known, *each, fixed=False) for each in ranges]
    return Host(name, bookings, facts={"site": site})


def _starts(slot: Slot, duration: int, names: Sequence[str], busy: Busy) -> set[int]:
    """Return the steps at which a run of this slot can start on all of these nodes."""
    steps = range((slot.start - START) // STEP, (slot.end - duration - START) // STEP + 1)
    length = duration // STEP
    return {
        step
        for step in steps
        if not any(a < step + length and step < b for name in names for a, b in busy[name])
    }


def _case(seats: int, hours: int, minutes: tuple[int, int], request: SeatRequest) -> SeatCase:
    """Return ``seats`` seats for runs of some ``minutes`` that may slip by some."""
    case = case_of("t", "ops", NAMES, seats, hours=hours)
    duration, slip = (each * times.MINUTE for each in minutes)
    pool_task = replace(case.pool_task, terms=replace(case.pool_task.terms, duration=duration))
    recurrence = replace(case.recurrence, slip=slip)
    return replace(case, pool_task=pool_task, recurrence=recurrence, request=request)


def _may_sit_together(names: Collection[str], site_of: Mapping[str, str], most: int) -> bool:
    return max(Counter(site_of[name] for name in names).values()) <= most


class _Facts:
    """The facts about a case, found by trying all starts and all sets of nodes.

    ``fixed`` are the nodes that take part in every run.
    """

    def __init__(
        self, case: SeatCase, busy: Busy, site_of: Mapping[str, str], fixed: Sequence[str]
    ) -> None:
        self.case, self.busy, self.site_of, self.fixed = case, busy, site_of, fixed
        self.most = case.request.spread.get("site", len(NAMES))

    def covered(self, *names: str, busy: Busy | None = None) -> int:
        """Return for how many slots these nodes have time at the same instant."""
        duration, all_names = self.case.pool_task.terms.duration, (*names, *self.fixed)
        known = self.busy if busy is None else busy
        return sum(bool(_starts(it, duration, all_names, known)) for it in self.case.windows)

    def could_sit(self, name: str) -> bool:
        """Return whether this node could be one of those that have time together."""
        others = [other for other in NAMES if other != name]
        return any(
            self.covered(name, *rest) and _may_sit_together((name, *rest), self.site_of, self.most)
            for rest in combinations(others, len(self.case.empty) - 1)
        )

    def after(self, taken: Mapping[str, Sequence[int]]) -> Busy:
        """Return what is busy beside the runs of these nodes, by their starts."""
        length, soon = self.case.pool_task.terms.duration, START + SOON
        runs = [
            ((at - START) / STEP, (at - START + length + SOON * (at < soon)) / STEP)
            for starts in taken.values()
            for at in starts
        ]
        return {**self.busy, **{name: [*self.busy[name], *runs] for name in self.fixed}}

    def check(self, name: str, why: Reason, taken: Mapping[str, Sequence[int]]) -> None:
        """Assert that a reason is true of this node, where others ``taken`` start so."""
        covered, slots = self.covered(name), len(self.case.slots)
        full = len(taken) == len(self.case.empty)
        match why.code:
            case "not-needed":
                assert full
                assert covered == slots
            case "free-for-some-slots":
                assert full
                assert 0 < covered < slots
            case "free-apart-from-others":
                assert self.case.request.together
                assert covered
                assert not self.could_sit(name)
            case "free-apart-from-seats":
                assert covered
                assert not self.covered(name, busy=self.after(taken))
            case "left-out-by-spread":
                assert covered
                beside = sum(self.site_of[other] == self.site_of[name] for other in taken)
                assert beside >= self.most
            case _:
                assert why.code in {"no-time-free", "no-time-in-window", "no-common-time"}, why
                assert not covered


@for_any(
    busy_nodes,
    sites,
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([(5, 0), (10, 20), (20, 10), (30, 25)]),
    st.sampled_from([True, False]),
    st.sampled_from([{}, {"site": 1}, {"site": 2}]),
    st.none() | st.lists(spans, max_size=4),
)
async def test_reasons_of_nodes_are_true(
    busy: Busy,
    site_of: Mapping[str, str],
    seats: int,
    hours: int,
    minutes: tuple[int, int],
    together: bool,  # noqa: FBT001 - hypothesis gives it by its place
    spread: Mapping[str, int],
    hub: Collection[tuple[int, int]] | None,
) -> None:
    """Time, spread, and simultaneity are as each node's reason says, and all have a reason."""
    request = SeatRequest(pool="europe", k=seats, together=together, spread=dict(spread))
    case = _case(seats, hours, minutes, request)
    hosts = [_host(name, busy[name], site_of[name]) for name in NAMES]
    fixed = None if hub is None else "hub"
    if hub is not None:
        hosts.append(_host("hub", hub, "hub"))
        busy = {**busy, "hub": hub}
    pool = {"policy_set": "pscheduler"}
    ruling = await run_episode(hosts, [CampaignView("ops")], [case], pool, fixed=fixed)
    [result] = ruling.results
    facts = _Facts(case, busy, site_of, [fixed] if fixed else [])
    names = set(result.taken.values())
    starts = {
        it.name: part.starts
        for part in result.parts
        for it in part.task.terms.participants
        if it.name in names
    }
    for name, why in result.reasons.items():
        facts.check(name, why, starts)
    if len(names) < len(case.empty):
        assert result.reasons.keys() | names >= set(NAMES)


def _lasting(name: str, minutes: int, *, after: int = 0) -> SeatCase:
    """Return one run on ``n1`` that may slip by ten minutes, some minutes after the start."""
    at, case = START + after * times.MINUTE, case_of(name, "ops", ["n1"])
    pool_task = replace(
        case.pool_task, terms=replace(case.pool_task.terms, duration=minutes * times.MINUTE)
    )
    return replace(case, pool_task=pool_task, slots=[at], begins=at)


async def test_a_node_whose_time_was_just_given_away_says_until_when() -> None:
    """A run that falls behind one of the same episode, booked nowhere yet, hears of its time."""
    cases = [_lasting("first", 40), _lasting("second", 26)]
    ruling = await run_episode(
        [Host("n1")], [CampaignView("ops")], cases, {"policy_set": "pscheduler"}
    )
    [seated, refused] = ruling.results
    assert dict(seated.taken) == {1: "n1"}
    given = given_to_seat(START, START + 40 * times.MINUTE + SOON)
    assert refused.reasons == {"n1": no_time_free(26 * times.MINUTE, given)}


async def test_a_node_that_is_not_asked_again_says_until_when_it_is_busy() -> None:
    """The time that an earlier answer leaves out is told, as far as it was asked for."""
    busy = _host("n1", [(8, 16)], "x")
    cases = [_lasting("first", 10), _lasting("second", 26, after=40)]
    ruling = await run_episode([busy], [CampaignView("ops")], cases, {"policy_set": "pscheduler"})
    [seated, refused] = ruling.results
    assert dict(seated.taken) == {1: "n1"}
    assert len(busy.asked) == 1
    start, end = (START + each * times.MINUTE for each in (40, 76))
    left_out = not_offered(10 * times.MINUTE, start, end)
    assert refused.reasons == {"n1": no_time_free(26 * times.MINUTE, left_out)}
