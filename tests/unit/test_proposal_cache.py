"""Cached knowledge of nodes, compared with what they would answer."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.placement import Offer
from lead.planning.proposal_cache import ProposalCache
from lead.policy.view import PostedRun
from node.model import times
from node.model.classes import SchedulingClass
from node.model.reservations import (
    AccessList,
    Applicant,
    ReservationSpan,
    inadmissible_spans,
    is_particular,
)
from node.model.spans import Span, at_least, clip, normalise
from node.model.timeline import Booking, TimelineQuestion, answer_question
from node.model.wire.participants import Proposal, ProposalRequest
from tests.support.clocks import START
from tests.support.episodes import case_of

NOW, LATEST = 5, 45
TASKS = [UUID(int=100 + number) for number in range(2)]
RUNS = [UUID(int=number) for number in range(6)]
SPANS = st.tuples(st.integers(0, 40), st.integers(3, 12)).map(lambda it: (it[0], sum(it)))
KINDS = st.sampled_from([SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL])
BOOKINGS = st.lists(st.tuples(SPANS, KINDS, st.integers(0, 2), st.booleans()), max_size=5).map(
    lambda drawn: [
        Booking(RUNS[number], RUNS[number], "", kind, priority, *span, fixed)
        for number, (span, kind, priority, fixed) in enumerate(drawn)
    ]
)
ACCESSES = st.sampled_from(
    [
        *(
            AccessList(),
            AccessList(tasks=frozenset(TASKS[:1])),
            AccessList(campaigns=frozenset({"ops"})),
        ),
        *(AccessList(tests=frozenset({"idle"})), AccessList(priority=2)),
        AccessList(classes=frozenset({SchedulingClass.NORMAL})),
    ]
)
RESERVED = st.lists(st.tuples(SPANS, ACCESSES), max_size=2).map(
    lambda drawn: [
        ReservationSpan(UUID(int=number), "demo", "x", "y", access, *span)
        for number, (span, access) in enumerate(drawn)
    ]
)
REQUESTS = st.builds(
    lambda windows, duration, **more: ProposalRequest(
        lease_epoch=1,
        duration=duration,
        windows=tuple(sorted(windows)),
        **more,
    ),
    windows=st.lists(SPANS, min_size=1, max_size=3, unique=True),
    duration=st.integers(1, 3),
    task=st.sampled_from(TASKS),
    scheduling_class=KINDS,
    priority=st.integers(0, 2),
    yielding=st.none() | st.just(()) | st.just((RUNS[0], RUNS[1])),
    test=st.sampled_from(["idle", "rtt"]),
    campaign=st.sampled_from(["ops", "bulk"]),
)


def told(
    request: ProposalRequest, bookings: Sequence[Booking], reserved: list[ReservationSpan]
) -> Proposal:
    """Return what a node with these bookings and reservations answers."""
    applicant = Applicant(
        task=request.task,
        lead="a",
        own=True,
        campaign=request.campaign,
        test=request.test,
        scheduling_class=request.scheduling_class,
        priority=request.priority,
    )
    question = TimelineQuestion(
        windows=request.windows,
        scheduling_class=request.scheduling_class,
        duration=request.duration,
        priority=request.priority,
        earliest=NOW,
        latest=LATEST,
        closed=inadmissible_spans(applicant, reserved),
        yielding=None if request.yielding is None else frozenset(request.yielding),
    )
    result = answer_question(question, bookings)
    return Proposal(
        now=NOW,
        horizon=LATEST,
        free=tuple(result.free),
        free_displacing=tuple(result.free_displacing),
        particular=any(is_particular(each.access) for each in reserved),
    )


def fitting(spans: Sequence[Span], request: ProposalRequest) -> list[list[Span]]:
    """Return, by window, where a run has time."""
    free = normalise(spans)
    return [at_least(clip(free, *window), request.duration) for window in request.windows]


def both(proposal: Proposal, request: ProposalRequest) -> list[list[list[Span]]]:
    """Return the ranges of both passes."""
    displacing = proposal.free if proposal.free_displacing is None else proposal.free_displacing
    return [fitting(spans, request) for spans in (proposal.free, displacing)]


@given(BOOKINGS, RESERVED, st.lists(REQUESTS, min_size=2, max_size=4))
def test_a_cached_answer_equals_the_nodes_answer(
    bookings: list[Booking], reserved: list[ReservationSpan], requests: list[ProposalRequest]
) -> None:
    """An answer from the cache equals a real one, whoever asked what before."""
    known = ProposalCache({}, [], (NOW, LATEST))
    for request in requests:
        whole = told(request, bookings, reserved)
        result = known.answer("n1", request)
        if result is not None:
            assert both(result, request) == both(whole, request)
        known.record("n1", request, told(known.widened_question(request), bookings, reserved))
        again = known.answer("n1", request)
        assert again is not None
        assert both(again, request) == both(whole, request)


@given(BOOKINGS, st.sets(st.integers(0, 5)), REQUESTS)
def test_a_node_has_no_more_time_than_its_leads_runs_leave(
    bookings: list[Booking], own: set[int], request: ProposalRequest
) -> None:
    """A node that is skipped would have refused, whatever else is booked there."""
    runs = [
        PostedRun(str(it.run), "t", "c", ("n1",), it.starts_at, it.ends_at,
                  it.scheduling_class, it.priority, it.fixed)
        for number, it in enumerate(bookings)
        if number in own
    ]  # fmt: skip
    most = ProposalCache({run.run: run for run in runs}, [], (NOW, LATEST)).at_most("n1", request)
    real = told(request, bookings, [])
    for offered, rest in zip(both(real, request), _both(most, request), strict=True):
        for ranges, bounds in zip(offered, rest, strict=True):
            assert all(any(a <= start and end <= b for a, b in bounds) for start, end in ranges)


def _both(offer: Offer, request: ProposalRequest) -> list[list[list[Span]]]:
    return [fitting(spans, request) for spans in (offer.free, offer.free_displacing)]


def test_a_question_covers_all_time_of_interest() -> None:
    """One answer is valid for every case of a class, and each sees only its own windows."""
    cases = [case_of("a", "ops", ["n1"], hours=3), case_of("b", "bulk", ["n1"])]
    known = ProposalCache({}, cases, (START, START + times.DAY))
    first, second = (_request(UUID(int=number), START + number * times.HOUR) for number in (1, 2))
    put = known.widened_question(first)
    whole = START, START + 2 * times.HOUR + 20 * times.MINUTE
    assert put.windows == (whole, *first.windows)
    busy = Booking(
        RUNS[0],
        uuid5(RUNS[0], "t"),
        "idle",
        SchedulingClass.EXCLUSIVE,
        0,
        *first.windows[0],
        True,  # noqa: FBT003
    )
    question = TimelineQuestion(put.windows, SchedulingClass.EXCLUSIVE, first.duration, 0, *whole)
    result = answer_question(question, [busy])
    proposal = Proposal(now=START, horizon=whole[1], free=tuple(result.free))
    heard = known.record("n1", first, proposal)
    assert fitting(heard.free, first) == [[]]
    known_too = known.answer("n1", second)
    assert known_too is not None
    assert fitting(known_too.free, second) == [list(second.windows)]


def _request(task: UUID, at: int) -> ProposalRequest:
    return ProposalRequest(
        task=task,
        lease_epoch=1,
        scheduling_class=SchedulingClass.EXCLUSIVE,
        duration=10 * times.MINUTE,
        priority=0,
        yielding=(),
        windows=((at, at + 20 * times.MINUTE),),
    )
