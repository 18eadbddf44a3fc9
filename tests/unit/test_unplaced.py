"""The reason why a slot found no time, and the trace of an attempt."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lead.model.reasons import no_common_time, no_time_in_window, runs_booked
from lead.planning.agenda import Slot
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.unplaced import summary, trace, unplaced_reason, unplaced_reasons
from node.model.classes import SchedulingClass
from node.model.reason import Reason
from node.model.reasons import no_time_free, taken_a_moment_ago, told
from node.model.spans import Span, normalise
from node.model.times import MINUTE, SECOND, parse_instant
from node.model.wire.participants import CommitRequest, HoldAnswer, Obstacle, Proposal

START = parse_instant("2026-12-01T12:00:00Z")
DURATION = 10 * SECOND
SLOTS = [
    Slot(START, 1, START, START + MINUTE),
    Slot(START + MINUTE, 1, START + MINUTE, START + 2 * MINUTE),
]
BUSY = Obstacle(
    window=1,
    run=UUID(int=1),
    task=UUID(int=2),
    test="throughput",
    scheduling_class=SchedulingClass.EXCLUSIVE,
    priority=5,
    starts_at=START + MINUTE,
    ends_at=START + 2 * MINUTE,
)


def proposal(
    free: list[tuple[int, int]],
    displacing: list[tuple[int, int]] | None = None,
    obstacles: tuple[Obstacle, ...] = (),
    reason: str | None = None,
) -> Proposal:
    """Return a participant's answer."""
    return Proposal(
        now=START,
        horizon=START + 60 * MINUTE,
        free=tuple(free),
        free_displacing=None if displacing is None else tuple(displacing),
        obstacles=obstacles,
        reason=reason,
    )


def why(index: int, **proposals: Proposal) -> Reason:
    """Return why this slot was not placed, given the participants' answers."""
    offers = [
        Offer(
            name,
            each.free,
            each.free if each.free_displacing is None else each.free_displacing,
        )
        for name, each in proposals.items()
    ]
    return unplaced_reason(index, SLOTS[index], DURATION, offers, proposals)


def test_the_obstacle_in_this_window_is_named() -> None:
    """The sentence has the node without time, the missing duration, and the run in the way."""
    reason = why(1, a=proposal([(START, START + MINUTE)], obstacles=(BUSY,)))
    assert reason == no_time_free(DURATION, BUSY.why()).at("a")
    assert BUSY.why().figures["test"] == "throughput"


def test_the_obstacle_of_another_window_is_not_blamed() -> None:
    """Without an obstacle in this very window, the node's own reason is used, if it has one."""
    past = "no 10 s free: the time asked for has passed or is too close"
    assert why(0, a=proposal([], obstacles=(BUSY,), reason=past)) == f"a: {past}"
    assert why(0, a=proposal([], obstacles=(BUSY,))) == no_time_in_window(DURATION).at("a")


def test_the_first_node_without_time_is_named() -> None:
    """The reason names the first participant that has no time in the window."""
    whole = proposal([(START, START + 2 * MINUTE)])
    first = why(1, a=whole, b=proposal([], obstacles=(BUSY,)), c=proposal([]))
    assert first.figures["at"] == "b"


def test_time_that_is_too_short_is_no_time() -> None:
    """A free range holds a run only if the duration fits into its part inside the window."""
    short = proposal([(START, START + MINUTE + DURATION - 1)])
    assert why(1, a=short).code == "no-time-in-window"


def test_time_by_displacement_counts() -> None:
    """A node with time in pass 2 is not the one without time."""
    willing = proposal([], displacing=[(START, START + 2 * MINUTE)])
    assert why(1, a=willing, b=proposal([])).figures["at"] == "b"


def test_disjoint_times_are_explained() -> None:
    """All participants are named if each has time but never together."""
    early = proposal([(START, START + 30 * SECOND)])
    late = proposal([(START + 30 * SECOND, START + MINUTE)])
    assert why(0, a=early, b=late) == no_common_time(["a", "b"], DURATION)


def test_an_attempt_is_summarized() -> None:
    """The summary has the booked count, the first start, displacements, and why others wait."""
    quiet, late = (ChosenStart(slot, slot.start, displacing=False) for slot in SLOTS)
    pushing = ChosenStart(SLOTS[1], SLOTS[1].start, displacing=True)
    no_time = no_time_in_window(DURATION)
    assert summary([late, quiet], 2, None) == runs_booked(2, 2, START, 0, None)
    assert summary([quiet], 2, no_time) == runs_booked(1, 2, START, 0, no_time)
    assert summary([quiet, pushing], 2, None) == runs_booked(2, 2, START, 1, None)
    assert summary([], 2, no_time) is no_time
    assert summary([], 0, None).code == "nothing-to-place"


def test_a_trace_holds_everything_a_decision_is_based_on() -> None:
    """The trace has windows, offers with obstacles, choices, and refusals, as JSON."""
    windows = [(slot.start, slot.end) for slot in SLOTS]
    proposals = {
        "a": proposal(windows),
        "b": proposal([windows[0]], displacing=windows, obstacles=(BUSY,)),
    }
    offers = [Offer("a", windows, windows), Offer("b", [windows[0]], windows)]
    choices = [ChosenStart(SLOTS[0], START + SECOND, displacing=False)]
    traced = trace(SLOTS, offers, proposals, choices, {"b": taken_a_moment_ago()})
    assert json.loads(json.dumps(traced)) == {
        "windows": [list(window) for window in windows],
        "offers": [
            {
                "node": "a",
                "now": START,
                "free": "everything",
                "free_displacing": None,
                "obstacles": [],
                "reason": None,
            },
            {
                "node": "b",
                "now": START,
                "free": [list(windows[0])],
                "free_displacing": "everything",
                "obstacles": [BUSY.model_dump(mode="json")],
                "reason": None,
            },
        ],
        "choices": [[START, START + SECOND, False]],
        "refusals": {"b": "its time was taken a moment ago"},
    }


def test_an_attempt_without_answers_has_a_trace() -> None:
    """Windows and refusals are kept even if no participant could be asked."""
    traced = trace(SLOTS, [], {}, [], {"a": told("a cannot be reached")})
    assert traced["offers"] == []
    assert traced["refusals"] == {"a": "a cannot be reached"}


_RANGES = st.lists(st.tuples(st.integers(0, 59), st.integers(1, 20)), max_size=4).map(
    lambda drawn: normalise([(START + s * SECOND, START + (s + n) * SECOND) for s, n in drawn])
)


@given(sets=st.lists(_RANGES, min_size=1, max_size=3), shift=st.sampled_from([20 * SECOND, MINUTE]))
def test_a_reason_for_no_time_is_true(sets: list[list[Span]], shift: int) -> None:
    """Nodes that are said to have no time, or none together, have none."""
    slots = [Slot(START, 1, START, START + MINUTE), Slot(START + shift, 1, START + shift,
             START + shift + MINUTE)]  # fmt: skip
    offers = [Offer(name, it, it) for name, it in zip("abc", sets, strict=False)]
    answers = {offer.name: proposal(list(offer.free)) for offer in offers}
    choices = choose(slots, offers, DURATION, None)
    reasons = unplaced_reasons(slots, choices, DURATION, offers, answers)
    assert reasons.keys() == {slot.nominal for slot in slots} - {c.slot.nominal for c in choices}

    def fits(spans: Sequence[Span], slot: Slot, at: int) -> bool:
        inside = slot.start <= at and at + DURATION <= slot.end
        return inside and any(start <= at and at + DURATION <= end for start, end in spans)

    for slot in slots:
        reason = reasons.get(slot.nominal)
        if reason is None:
            continue
        starts = range(slot.start, slot.end, SECOND)
        for offer in offers:
            if reason.figures.get("at") == offer.name:
                assert not any(fits(offer.free, slot, at) for at in starts)
        together = any(all(fits(it.free, slot, at) for it in offers) for at in starts)
        if reason.code == "no-common-time":
            assert not together
        if reason.code == "window-taken":
            assert together


def test_the_reasons_of_a_day_of_slots_take_a_moment() -> None:
    """However many ranges a participant offers, they are not compared with each slot."""
    slots = [Slot(at, 1, at, at + MINUTE) for at in range(START, START + 300 * MINUTE, MINUTE)]
    offered = [(START + at * SECOND, START + at * SECOND + SECOND) for at in range(0, 18_000, 2)]
    proposals = {"a": proposal([(START, START + 300 * MINUTE)]), "b": proposal(offered)}
    offers = [Offer(name, it.free, it.free) for name, it in proposals.items()]
    began = time.process_time()
    reasons = unplaced_reasons(slots, [], DURATION, offers, proposals)
    assert time.process_time() - began < 0.5
    assert set(reasons.values()) == {no_time_in_window(DURATION).at("b")}
    traced = trace(slots, offers, proposals, [], {})
    assert len(json.dumps(traced)) < 100_000


def test_an_answer_has_no_more_than_a_lead_reads() -> None:
    """A participant cannot occupy a lead, or its disk, with endless offers, holds, or data."""
    many = [[START + at, START + at + 1] for at in range(0, 60_000, 2)]
    for kind, document in (
        (Proposal, {"now": START, "horizon": START, "free": many}),
        (Proposal, {"now": START, "horizon": START, "free": [], "obstacles": [vars(BUSY)] * 513}),
        (HoldAnswer, {"held": [str(UUID(int=at)) for at in range(513)]}),
        (HoldAnswer, {"held": [], "data": {"port": "x" * 1000}}),
        (HoldAnswer, {"held": [], "data": {f"port{at}": at for at in range(17)}}),
        (CommitRequest, {"runs": [], "data": {"0": {"port": "-rf"}}}),
        (CommitRequest, {"runs": [], "data": {str(at): {} for at in range(33)}}),
    ):
        with pytest.raises(ValidationError):
            kind.model_validate(document)
