"""Changes of a task that would find time when it does not find all of it. Pure.

All participants have stated when they are free over the whole horizon. Every change is tried on
that, with the agenda and the choice of real planning. There are five kinds of changes:

    ========== ================================================================ ==================
    kind       change                                                           distance, 0 to 1
    ========== ================================================================ ==================
    later      a single run: the next times common to all, after its window;    delay / 24 h
               a repeating task: the smallest shift of its grid that helps
    shorter    the longest measurement that helps, at least a tenth             share of it lost
    tool       another tool that all have, best first                           1/4
    slip       a repeating task: the slip that the runs without time need       added slip / 24 h
    less-often a repeating task: the smallest multiple of its interval          share of runs lost
    ========== ================================================================ ==================

A change helps if more runs find time than as posted (or, less often, all that are left). If it does
not help all runs, its distance is 1 larger. *Nearest* is the smallest distance. One change of each
kind comes before a second one of any kind, so that three alternatives are of three kinds where
possible.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from lead.model.reasons import (
    cron_is_not_shifted,
    no_interval,
    no_later_time,
    no_length_to_reduce,
    no_longer_interval_helps,
    no_other_tool,
    no_shift_helps,
    no_slip_helps,
    no_slot,
    other_tools_find_no_time,
    shortest_finds_no_time,
    single_run_needs_no_slip,
)
from lead.planning.agenda import Limits, Slot
from lead.planning.forecast import fresh_agenda
from lead.planning.placement import Offer, choose, common_ranges
from node.model import times
from node.model.reason import Reason
from node.model.recurrence import recurrence_faults
from node.model.scheduling import recurrence_of
from node.model.spans import Span, at_least, from_portion, to_portion
from node.model.task_terms import TaskTerms
from node.model.times import duration_text, format_duration, format_instant
from node.model.wire.tasks import Schedule

SHORTEST_SHARE = 10
"""The minimum length as a divisor: below a tenth it would be a different measurement."""

_ROUNDS = 24
_STARTS = 3
_TOOL_DISTANCE = 0.25
_MULTIPLES = (2, 3, 4, 6, 12)


class ChangeKind(StrEnum):
    """The part of the task that a change affects."""

    LATER = "later"
    SHORTER = "shorter"
    TOOL = "tool"
    SLIP = "slip"
    LESS_OFTEN = "less-often"


@dataclass(frozen=True)
class DocumentChange:
    """One change of a task document, as the fields to set."""

    kind: ChangeKind
    distance: float
    differs: str
    schedule: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Situation:
    """A task that does not find all its time.

    ``slots`` are its windows, ``placed`` is how many of them found time. ``offers`` are the free
    ranges of all participants over the horizon, long enough for the shortest measurement. ``tools``
    are those that all of them have; ``occupied(spec, tool)`` is the duration of a run (µs), None if
    such a run is impossible. Specs are complete, as the test writes them.
    """

    terms: TaskTerms
    slots: Sequence[Slot]
    placed: int
    offers: Sequence[Offer]
    limits: Limits
    now: int
    tools: Sequence[str]
    occupied: Callable[[Mapping[str, Any], str], int | None]

    @cached_property
    def common(self) -> Offer:
        """Return the time that all have free at once."""
        return Offer(
            "all",
            common_ranges([offer.free for offer in self.offers]),
            common_ranges([offer.free_displacing for offer in self.offers]),
        )

    @cached_property
    def fitting_ranges(self) -> tuple[list[Span], list[int]]:
        """Return the ranges where a run fits with displacement, and their ends."""
        spans = at_least(self.common.free_displacing, self.duration)
        return spans, [end for _, end in spans]

    @property
    def duration(self) -> int:
        """Return the duration of a run (µs)."""
        return self.terms.duration

    @property
    def schedule(self) -> Schedule:
        """Return the schedule with its slip filled in."""
        return self.terms.schedule

    @property
    def repeats(self) -> bool:
        """Return whether the task has more than one run."""
        return self.schedule.repeat is not None or self.schedule.cron is not None

    @property
    def anchor(self) -> int:
        """Return the task's start, or the one it would be given."""
        return self.terms.recurrence.anchor


def shorter_spec(spec: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return the spec with its length set: ``duration`` in whole seconds, else ``count``."""
    if "duration" in spec:
        return {**spec, "duration": format_duration(size * times.SECOND)}
    return {**spec, "count": size}


def size_of(spec: Mapping[str, Any]) -> int | None:
    """Return a measurement's length in the unit of :func:`shorter_spec`; None if it has none."""
    if isinstance(spec.get("duration"), str):
        return times.parse_duration(spec["duration"]) // times.SECOND
    count = spec.get("count")
    return count if isinstance(count, int) else None


def shortest_spec(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the spec of the shortest measurement of the same kind; None if there is none."""
    size = size_of(spec)
    if size is None or size <= 1:
        return None
    return shorter_spec(spec, -(-size // SHORTEST_SHARE))


def apply_change(document: Mapping[str, Any], change: DocumentChange) -> dict[str, Any]:
    """Return the task document with the change applied."""
    changed = dict(document)
    if change.schedule:
        changed["schedule"] = {**changed.get("schedule", {}), **change.schedule}
    if change.spec:
        changed["test"] = {
            **changed["test"],
            "spec": {**changed["test"].get("spec", {}), **change.spec},
        }
    if change.tools is not None:
        changed["tools"] = list(change.tools)
    return changed


def alternatives(situation: Situation) -> tuple[list[DocumentChange], dict[ChangeKind, Reason]]:
    """Return the helpful changes in the order to try, and by kind why there is none."""
    changes_by_kind: dict[ChangeKind, list[DocumentChange]] = {}
    reasons: dict[ChangeKind, Reason] = {}
    for kind, search in _SEARCHES.items():
        changes = search(situation)
        if isinstance(changes, Reason):
            reasons[kind] = changes
        else:
            pinned = [_with_fixed_start(situation, change) for change in changes]
            changes_by_kind[kind] = sorted(pinned, key=lambda change: change.distance)
    ranked = [
        (nth, change) for changes in changes_by_kind.values() for nth, change in enumerate(changes)
    ]
    ranked.sort(key=lambda entry: (entry[0], entry[1].distance))
    return [change for _, change in ranked], reasons


def _later_starts(situation: Situation) -> list[DocumentChange] | Reason:
    if situation.schedule.cron is not None:
        return cron_is_not_shifted()
    if situation.schedule.repeat is not None:
        return _shifted_grid(situation)
    if not situation.slots:
        return no_slot()
    after = situation.slots[0].latest_start(situation.duration) + 1
    starts = list(_starts_after(situation, after))[:_STARTS]
    if not starts:
        return no_later_time(situation.duration)
    return [_start_at(situation, start, 0) for start in starts]


def _starts_after(situation: Situation, after: int) -> Iterator[int]:
    """Yield the next starts in common free time; the nearest by displacement comes first."""
    quiet = _starts(situation.common.free, after, situation.duration)
    displacing = _starts(situation.common.free_displacing, after, situation.duration)
    if displacing and displacing[0] not in quiet:
        yield displacing[0]
    yield from quiet


def _starts(free: Sequence[Span], after: int, duration: int) -> list[int]:
    """Return the next starts: in each free range the first one, and some as runs in a row."""
    later = to_portion(free) & to_portion([(after, times.LATEST)])
    step = max(duration, times.MINUTE)
    starts: list[int] = []
    for first, end in at_least(from_portion(later), duration):
        start = _next_whole_second(first, end - duration)
        while start <= end - duration and len(starts) < _STARTS:
            starts.append(start)
            start += step
    return starts


def _next_whole_second(start: int, latest: int) -> int:
    """Return the next whole second, for readability, unless it is too late."""
    rounded = _next_full_second(start)
    return rounded if rounded <= latest else start


def _next_full_second(instant: int) -> int:
    return -(-instant // times.SECOND) * times.SECOND


def _start_at(situation: Situation, start: int, penalty: int) -> DocumentChange:
    delay = start - situation.anchor
    return DocumentChange(
        ChangeKind.LATER,
        min(1.0, delay / times.DAY) + penalty,
        f"starts at {format_instant(start)}, {duration_text(_next_full_second(delay))} later",
        {"start": format_instant(start)},
    )


def _shifted_grid(situation: Situation) -> list[DocumentChange] | Reason:
    """Return the smallest shift of the grid that helps.

    A slot without time finds some once its window reaches the next common free range; smaller
    shifts change nothing for it. So only the smallest of these steps is tried, repeatedly.
    """
    repeat, shift, best = situation.schedule.repeat or 0, 0, (situation.placed, 0)
    for _ in range(_ROUNDS):
        schedule = situation.schedule.model_copy(update={"start": situation.anchor + shift})
        slots, placed = _placed_slots(situation, schedule, situation.duration)
        if len(placed) > best[0]:
            best = (len(placed), shift)
            if len(placed) == len(slots):
                return [_start_at(situation, situation.anchor + shift, 0)]
        steps = [_step(situation, slot) for slot in slots if slot.nominal not in placed]
        step = min((step for step in steps if step is not None), default=0)
        shift = _next_full_second(situation.anchor + shift + step) - situation.anchor
        if not step or shift >= repeat:
            break
    if best[1]:
        return [_start_at(situation, situation.anchor + best[1], 1)]
    return no_shift_helps()


def _step(situation: Situation, slot: Slot) -> int | None:
    """Return how much later this slot must be to reach the next common free range (µs)."""
    latest = slot.latest_start(situation.duration)
    fitting, ends = situation.fitting_ranges
    at = bisect_left(ends, latest + 1 + situation.duration)
    if at == len(fitting):
        return None
    start = max(latest + 1, fitting[at][0])
    return _next_whole_second(start, ends[at] - situation.duration) - latest


def _placed_slots(
    situation: Situation, schedule: Schedule, duration: int
) -> tuple[Sequence[Slot], set[int]]:
    """Return the slots of such a task, and the nominal starts of those that find time."""
    created_at = situation.terms.created_at
    if recurrence_faults(recurrence_of(schedule, created_at), duration):
        return (), set()
    slots = fresh_agenda(schedule, created_at, duration, situation.limits, situation.now).slots
    choices = choose(slots, [situation.common], duration, None)
    return slots, {choice.slot.nominal for choice in choices}


def _penalty(situation: Situation, schedule: Schedule, duration: int) -> int | None:
    """Return 0 if all runs find time, 1 if more than as posted, None if the change does not help.

    Moving runs out of the horizon does not count: it only means that they are not planned yet.
    """
    slots, placed = _placed_slots(situation, schedule, duration)
    if len(placed) <= situation.placed:
        return None
    return 0 if len(placed) == len(slots) else 1


def _shorter_runs(situation: Situation) -> list[DocumentChange] | Reason:
    """Shorten the measurement as little as halving finds.

    Halving assumes that a shorter measurement finds time wherever a longer one does. Placement is
    greedy, so this rarely fails, and then the measurement is shortened more than necessary.
    """
    spec, tool = situation.terms.spec, situation.terms.tool or ""
    size, least = size_of(spec), shortest_spec(spec)
    if size is None or least is None:
        return no_length_to_reduce()

    def penalty(length: int) -> int | None:
        duration = situation.occupied(shorter_spec(spec, length), tool)
        return None if duration is None else _penalty(situation, situation.schedule, duration)

    lowest = size_of(least) or 1
    best_penalty = penalty(lowest)
    if best_penalty is None:
        return shortest_finds_no_time(_length(spec, lowest))
    low, high = lowest, size  # low helps, high does not
    while high - low > 1:
        middle = (low + high) // 2
        middle_penalty = penalty(middle)
        if middle_penalty is not None and middle_penalty <= best_penalty:
            low = middle
        else:
            high = middle
    shortened = shorter_spec(spec, low)
    name = "duration" if "duration" in spec else "count"
    differs = f"measures {_length(spec, low)} instead of {_length(spec, size)}"
    return [
        DocumentChange(
            ChangeKind.SHORTER,
            (size - low) / size + best_penalty,
            differs,
            spec={name: shortened[name]},
        )
    ]


def _length(spec: Mapping[str, Any], size: int) -> str:
    """Format as ``6 s``, or ``6 packets``."""
    if "duration" in spec:
        return duration_text(size * times.SECOND)
    return f"{size} packets"


def _other_tools(situation: Situation) -> list[DocumentChange] | Reason:
    used = situation.terms.tool
    others = [tool for tool in situation.tools if tool != used]
    if not others:
        return no_other_tool(situation.terms.test)
    changes = []
    for rank, tool in enumerate(others):
        duration = situation.occupied(situation.terms.spec, tool)
        if duration is None:
            continue
        penalty = _penalty(situation, situation.schedule, duration)
        if penalty is not None:
            changes.append(other_tool(tool, used, rank, penalty))
    return changes or other_tools_find_no_time(others)


def other_tool(tool: str, used: str | None, rank: int = 0, penalty: int = 0) -> DocumentChange:
    """Return a change to another tool; ``rank`` is its place among the tools common to all."""
    differs = f"measures with {tool}" + (f" instead of {used}" if used else "")
    return DocumentChange(
        ChangeKind.TOOL, _TOOL_DISTANCE + rank / 1000 + penalty, differs, tools=(tool,)
    )


def _longer_slip(situation: Situation) -> list[DocumentChange] | Reason:
    if not situation.repeats:
        return single_run_needs_no_slip()
    slip, needed = situation.schedule.slip or 0, 0
    _, placed = _placed_slots(situation, situation.schedule, situation.duration)
    for slot in situation.slots:
        step = None if slot.nominal in placed else _step(situation, slot)
        if step is not None:
            slip_needed = slot.latest_start(situation.duration) + step - slot.nominal
            needed = max(needed, _next_full_second(slip_needed))
    widened = situation.schedule.model_copy(update={"slip": needed})
    penalty = _penalty(situation, widened, situation.duration) if needed > slip else None
    if penalty is None:
        return no_slip_helps()
    more, less = duration_text(needed), duration_text(slip)
    return [
        DocumentChange(
            ChangeKind.SLIP,
            min(1.0, (needed - slip) / times.DAY) + penalty,
            f"may start up to {more} later than its nominal start instead of {less}",
            {"slip": format_duration(needed)},
        )
    ]


def _longer_interval(situation: Situation) -> list[DocumentChange] | Reason:
    repeat = situation.schedule.repeat
    if repeat is None:
        return no_interval()
    for multiple in _MULTIPLES:
        schedule = situation.schedule.model_copy(update={"repeat": multiple * repeat})
        slots, placed = _placed_slots(situation, schedule, situation.duration)
        if slots and len(placed) == len(slots):
            more, less = duration_text(multiple * repeat), duration_text(repeat)
            return [
                DocumentChange(
                    ChangeKind.LESS_OFTEN,
                    1 - 1 / multiple,
                    f"runs every {more} instead of every {less}",
                    {"repeat": format_duration(multiple * repeat)},
                )
            ]
    return no_longer_interval_helps()


def _with_fixed_start(situation: Situation, change: DocumentChange) -> DocumentChange:
    """Return the change with the grid's start fixed, if that depends on the time of posting.

    Otherwise a document posted a minute later would mean other times than were tried.
    """
    schedule = situation.schedule
    if schedule.repeat is None or schedule.start is not None or "start" in change.schedule:
        return change
    start = {"start": format_instant(situation.anchor)}
    return replace(change, schedule={**start, **change.schedule})


_SEARCHES: dict[ChangeKind, Callable[[Situation], list[DocumentChange] | Reason]] = {
    ChangeKind.LATER: _later_starts,
    ChangeKind.SHORTER: _shorter_runs,
    ChangeKind.TOOL: _other_tools,
    ChangeKind.SLIP: _longer_slip,
    ChangeKind.LESS_OFTEN: _longer_interval,
}
