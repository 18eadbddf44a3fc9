"""The cases of run scheduling, translated. Numbers in cases are seconds; here microseconds.

The fields of a case determine the question, not its number, so that other cases of the same form
are answered as well.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid5

from lead.planning.agenda import Limits, PlanningProgress, Slot, agenda, plan_next_at
from lead.planning.hold_agreement import agree
from lead.planning.placement import Offer, choose, common_ranges
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import ParleyError, PeerAnswered
from node.model.recurrence import Recurrence, next_nominal
from node.model.spans import Span, at_least
from node.model.timeline import Booking, TimelineAnswer, TimelineQuestion
from node.model.timeline import answer_question as time_line
from node.model.wire.participants import HoldAnswer, Refusal
from tests.support.sql_rules import AgendaTask, displaced_bookings, select

Given = dict[str, Any]

_NAMES = UUID("b3c5a0c2-0f0e-4d0c-9d58-3f1f6c1f7a11")
_RUN = UUID(int=1)
_CONFLICT = 409
_SUCCESS = range(200, 300)
_MARGIN = 3
_HORIZON = 86_400
"""The default horizon, in seconds, for cases that state the time but no horizon."""
_OUTCOMES = {"booked": "scheduled", "conflict": "retry", "no answer": "nonstart"}


def answer(case: Given) -> Any:
    """Return the product's answer to one case."""
    given = case["given"]
    shape = case.get("answer_shape")
    if "items" in given:
        shared = {key: value for key, value in given.items() if key != "items"}
        shapes = (shape or {}).get("items")
        return {
            "items": [_one({**shared, **item}, shapes and shapes[0]) for item in given["items"]]
        }
    return _one(given, shape)


def _one(given: Given, shape: Given | None) -> Any:
    for required, translate in _TRANSLATORS:
        if required <= given.keys():
            answer = translate(given)
            return _shaped(answer, shape) if shape else answer
    msg = f"no question is known with the fields {', '.join(sorted(given))}"
    raise ValueError(msg)


def _shaped(answer: Given, shape: Given) -> Given:
    """Return the fields of the shape, and the outcome if the run does not start."""
    fields = {key: answer.get(key) for key in shape}
    return fields | {key: it for key, it in answer.items() if key == "outcome" and "start" in shape}


def _micros(seconds: float) -> int:
    return round(seconds * times.SECOND)


def _seconds(micros: int) -> int | float:
    whole, rest = divmod(micros, times.SECOND)
    return micros / times.SECOND if rest else whole


def _spans(ranges: Sequence[Sequence[float]]) -> list[Span]:
    return [(_micros(start), _micros(end)) for start, end in ranges]


def _ranges(spans: Sequence[Span]) -> list[list[int | float]]:
    return [[_seconds(start), _seconds(end)] for start, end in spans]


# -- windows and nominal starts --------------------------------------------------------------------


def _acceptable_range(given: Given) -> Given:
    """Return the window of a task's first slot."""
    if isinstance(given["ideal_start"], str):
        anchor = times.parse_instant(given["ideal_start"])
        duration, slip = (times.parse_duration(given[key]) for key in ("duration", "slip"))
        slot = _first_slot(Recurrence(anchor, slip=slip), duration)
        written = [times.format_instant(slot.start), times.format_instant(slot.end)]
        return {"range": written, "bounds": "[)"}
    duration = _micros(given["duration"])
    repeat = given.get("repeat")
    recurrence = Recurrence(
        _micros(given["ideal_start"]),
        repeat=None if repeat is None else _micros(repeat),
        slip=_micros(given["slip"]),
    )
    slot = _first_slot(recurrence, duration)
    slip = slot.latest_start(duration) - slot.start
    return {"slip_used": _seconds(slip), "range": [_seconds(slot.start), _seconds(slot.end)]}


def _first_slot(recurrence: Recurrence, duration: int) -> Slot:
    standing = PlanningProgress(recurrence.anchor, None, (), None)
    limits = Limits(horizon=times.LONGEST, margin=0, batch=1)
    return agenda(recurrence, duration, standing, limits, recurrence.anchor).slots[0]


def _next(given: Given) -> Given:
    recurrence = Recurrence(_micros(given["start"]), repeat=_micros(given["repeat"]))
    starts = [next_nominal(recurrence, _micros(after)) for after in given["after"]]
    return {"next": [None if at is None else _seconds(at) for at in starts]}


# -- proposals and placement -----------------------------------------------------------------------


def _bookings(given: Given, runs: Sequence[Given]) -> dict[str, Booking]:
    """Return the bookings that occupy time, by id; a run that never started occupies none."""
    sooner = given["now"] + given.get("margin", _MARGIN) if "now" in given else -math.inf
    return {run["id"]: _booking(run, sooner) for run in runs if run.get("state") != "nonstart"}


def _booking(given: Given, sooner: float) -> Booking:
    """Return a run as a booking; it is fixed if it is running or starts sooner."""
    run = uuid5(_NAMES, given["id"])
    fixed = given.get("state") == "running" or given["start"] < sooner
    kind = SchedulingClass(given["class"])
    start, end = _micros(given["start"]), _micros(given["end"])
    return Booking(run, run, "idle", kind, given.get("priority", 0), start, end, fixed)


def _question(given: Given, kind: str) -> TimelineQuestion:
    [window] = _spans([given["acceptable_range"]])
    duration, priority = _micros(given["duration"]), given.get("priority", 0)
    earliest, latest = window
    if "now" in given:
        earliest = _micros(given["now"] + given.get("margin", _MARGIN))
        latest = _micros(given["now"] + given.get("horizon", _HORIZON))
    return TimelineQuestion([window], SchedulingClass(kind), duration, priority, earliest, latest)


def _proposals(given: Given) -> Given:
    bookings = list(_bookings(given, given["timeline"]).values())
    return {
        kind: _ranges(time_line(_question(given, kind), bookings).free)
        for kind in given["propose_for"]
    }


def _intersection(given: Given) -> Given:
    ranges = common_ranges([_spans(proposal) for proposal in given["proposals"]])
    if "duration" in given:
        duration = _micros(given["duration"])
        return {"common": _ranges(at_least(ranges, duration)), "start": _start(ranges, duration)}
    durations = {str(duration): _micros(duration) for duration in given["durations"]}
    return {
        "by_duration": {key: _ranges(at_least(ranges, d)) for key, d in durations.items()},
        "earliest_start": {key: _start(ranges, d) for key, d in durations.items()},
    }


def _start(ranges: list[Span], duration: int) -> int | float | None:
    chosen = choose([_everywhere(ranges)], [Offer("all", ranges, ranges)], duration, None)
    return _seconds(chosen[0].starts_at) if chosen else None


def _everywhere(ranges: list[Span]) -> Slot:
    """Return a slot whose window contains all of the ranges."""
    first = min((start for start, _ in ranges), default=0)
    return Slot(first, 1, first, max((end for _, end in ranges), default=0))


def _placement(given: Given) -> Given:
    """Place a run in two passes over all offers, and return what it displaces."""
    question = _question(given, given["class"])
    time_lines = {name: _bookings(given, runs) for name, runs in given["participants"].items()}
    answers: dict[str, TimelineAnswer] = {
        name: time_line(question, list(booked.values())) for name, booked in time_lines.items()
    }
    offers = [Offer(name, a.free, a.free_displacing) for name, a in answers.items()]
    [window] = question.windows
    slot = Slot(window[0], 1, *window)
    chosen = choose([slot], offers, question.duration, None)
    if not chosen:
        return {"start": None, "displaced": [], "outcome": "nonstart"}
    [choice] = chosen
    displaced = {
        booking.run
        for booked in time_lines.values()
        if choice.displacing
        for booking in displaced_bookings(question, choice.starts_at, list(booked.values()))
    }
    return {
        "start": _seconds(choice.starts_at),
        "attempt": 2 if choice.displacing else 1,
        "displaced": [
            name
            for booked in time_lines.values()
            for name, booking in booked.items()
            if booking.run in displaced
        ],
    }


def _draws(given: Given) -> Given:
    ranges = _spans(given["common"])
    duration = _micros(given["duration"])
    rng = random.Random(given.get("seed", 0)) if given["random_slip"] else None
    slot, offers = _everywhere(ranges), [Offer("all", ranges, ranges)]
    starts = [choose([slot], offers, duration, rng)[0].starts_at for _ in range(given["draws"])]
    return {
        "start_min": _seconds(min(starts)),
        "start_max_inclusive": _seconds(max(starts)),
        "whole_seconds": all(start % times.SECOND == 0 for start in starts),
        "distinct_at_least": len(set(starts)),
    }


# -- the order of planning, and booking ------------------------------------------------------------


def _selection(given: Given) -> Given:
    now, horizon = _micros(given["now"]), _micros(given["horizon"])
    limits = Limits(horizon=horizon, margin=0, batch=0)
    candidates = [_candidate(task, limits, now) for task in given["tasks"]]
    idle = given["pool_size"] - given["busy_workers"]
    chosen = select(candidates, now, now + horizon + 1, idle)
    return {"selected": [candidate.task for candidate in chosen]}


def _candidate(task: Given, limits: Limits, now: int) -> AgendaTask:
    """Return a task as its last planning left it: ``plan_at`` is when to plan its next slot."""
    nominal = _micros(task["next"])
    duration = _micros(task["duration"]) if "duration" in task else 1
    until = _micros(task["until"]) if "until" in task else None
    recurrence = Recurrence(nominal, until=until, slip=_micros(task.get("slip", 0)))
    remaining = max(0, task["max_runs"] - task["runs"]) if "max_runs" in task else None
    led = task.get("enabled", True) and task.get("participant", 0) == 0
    planned = agenda(
        recurrence, duration, PlanningProgress(nominal, None, (), remaining), limits, now
    )
    return AgendaTask(
        task=task["id"],
        next_run_at=planned.next_slot,
        plan_at=plan_next_at(recurrence, duration, planned, limits, 0, now) if led else None,
        leased_until=now + limits.horizon if task.get("being_scheduled") else None,
        added_at=_micros(task["added"]),
    )


def _posting(given: Given) -> Given:
    """Post a run; a conflict causes a retry, whatever else failed.

    Each participant answers that it holds, that another run is in the way, or with an error.
    """
    answers_by_name = {name: _held(given["answers"][name]) for name in _asked(given)}
    conflict = any(isinstance(it, HoldAnswer) and it.refused for it in answers_by_name.values())
    counted_answers = [
        (name, it)
        for name, it in answers_by_name.items()
        if not conflict or isinstance(it, HoldAnswer)
    ]
    agreed = agree([_RUN], counted_answers)
    holding = [
        name for name, it in answers_by_name.items() if isinstance(it, HoldAnswer) and it.held
    ]
    booked = bool(agreed.held)
    return {
        "outcome": _OUTCOMES[agreed.outcome],
        "left": holding if booked else [],
        "deleted": [] if booked else holding,
    }


def _asked(given: Given) -> list[str]:
    """Return who is asked in turn: nobody after a conflict, or after a lead without a hold."""
    answers = given["answers"]
    names = [name for name in given["participants"] if name in answers]
    for number, name in enumerate(names):
        if answers[name] == _CONFLICT or (number == 0 and answers[name] not in _SUCCESS):
            return names[: number + 1]
    return names


def _held(status: int | None) -> HoldAnswer | ParleyError:
    if status in _SUCCESS:
        return HoldAnswer(held=(_RUN,))
    if status == _CONFLICT:
        return HoldAnswer(held=(), refused=(Refusal(run=_RUN, reason="its time is taken"),))
    return PeerAnswered(f"answered {status}")


_TRANSLATORS: tuple[tuple[set[str], Callable[[Given], Given]], ...] = (
    ({"ideal_start", "slip"}, _acceptable_range),
    ({"start", "repeat", "after"}, _next),
    ({"timeline", "propose_for"}, _proposals),
    ({"proposals"}, _intersection),
    ({"acceptable_range", "participants", "class"}, _placement),
    ({"common", "draws"}, _draws),
    ({"tasks", "pool_size"}, _selection),
    ({"participants", "answers"}, _posting),
)
"""The fields that a case must have, and its translator."""
