"""What to ask for instead, when a task does not find all its time. Pure.

All participants have said when they are free over the whole horizon; every change is tried on
that, with the agenda and the choice of real planning. Five kinds of change are looked for:

========== ================================================================== ==================
kind       change                                                             distance, 0 to 1
========== ================================================================== ==================
later      a single run: at the next times that all have, after its window;   delay / 24 h
           a repeating task: the smallest shift of its grid that helps
shorter    the longest measurement that helps, not below a tenth              share of it lost
tool       another tool that all have, best first                             1/4
slip       a repeating task: as much more slip as the runs without time need  added slip / 24 h
less-often a repeating task: the smallest multiple of its interval            share of runs lost
========== ================================================================== ==================

A change helps if more runs find time than as posted (or, less often, all that are left): best all
of them; where that cannot be had it counts as 1 further away. *Nearest* is the smallest distance.
One change of each kind comes before a second of any, so that three alternatives are three different
ways out where there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from lead.planning.agenda import Limits, Slot
from lead.planning.forecast import fresh_agenda
from lead.planning.placement import Offer, choose, common_ranges
from node.model import times
from node.model.recurrence import validate
from node.model.scheduling import recurrence_of
from node.model.spans import Span, at_least, clip
from node.model.times import format_duration, format_instant
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule

SHORTEST_SHARE = 10
"""A measurement shorter than a tenth of what was asked is another measurement."""

_ROUNDS = 24
_STARTS = 3
_TOOL_DISTANCE = 0.25
_MULTIPLES = (2, 3, 4, 6, 12)


class ChangeKind(StrEnum):
    """What a change changes."""

    LATER = "later"
    SHORTER = "shorter"
    TOOL = "tool"
    SLIP = "slip"
    LESS_OFTEN = "less-often"


@dataclass(frozen=True)
class DocumentChange:
    """One change of a task document: the fields to set, in the document's own words."""

    kind: ChangeKind
    distance: float
    differs: str
    schedule: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Situation:
    """A task that does not find all its time.

    ``slots`` are its windows, ``placed`` how many of them found time. ``offers`` say what all
    participants have free over the horizon, in ranges long enough for the shortest measurement.
    ``tools`` are those that all of them have; ``occupied(spec, tool)`` is how long a run of it
    takes, None if there can be no such run. A spec is what the test itself writes, in full.
    """

    introduction: Introduction
    slots: Sequence[Slot]
    placed: int
    offers: Sequence[Offer]
    limits: Limits
    now: int
    tools: Sequence[str]
    occupied: Callable[[Mapping[str, Any], str], int | None]

    @cached_property
    def common(self) -> Offer:
        """What all have free at the same time."""
        return Offer(
            "all",
            common_ranges([offer.free for offer in self.offers]),
            common_ranges([offer.free_displacing for offer in self.offers]),
        )

    @cached_property
    def fitting(self) -> tuple[list[Span], list[int]]:
        """Where a run fits if others give way, and the ends of these ranges."""
        spans = at_least(self.common.free_displacing, self.duration)
        return spans, [end for _, end in spans]

    @property
    def duration(self) -> int:
        """How long a run takes."""
        return self.introduction.duration

    @property
    def schedule(self) -> Schedule:
        """The schedule, its slip filled in."""
        return self.introduction.schedule

    @property
    def repeats(self) -> bool:
        """Whether it has more than one run."""
        return self.schedule.repeat is not None or self.schedule.cron is not None

    @property
    def anchor(self) -> int:
        """Its start, or the one it would be given."""
        return recurrence_of(self.schedule, self.introduction.created_at).anchor


def shorter_spec(spec: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The spec with its length set: ``duration`` in whole seconds, else ``count``."""
    if "duration" in spec:
        return {**spec, "duration": format_duration(size * times.SECOND)}
    return {**spec, "count": size}


def size_of(spec: Mapping[str, Any]) -> int | None:
    """How long a measurement is, in the unit of :func:`shorter_spec`; None if it has no length."""
    if isinstance(spec.get("duration"), str):
        return times.parse_duration(spec["duration"]) // times.SECOND
    count = spec.get("count")
    return count if isinstance(count, int) else None


def shortest_spec(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The spec of the shortest measurement that is still one like it; None if there is none."""
    size = size_of(spec)
    if size is None or size <= 1:
        return None
    return shorter_spec(spec, -(-size // SHORTEST_SHARE))


def apply_change(document: Mapping[str, Any], change: DocumentChange) -> dict[str, Any]:
    """The task document with a change made to it."""
    made = dict(document)
    if change.schedule:
        made["schedule"] = {**made.get("schedule", {}), **change.schedule}
    if change.spec:
        made["test"] = {**made["test"], "spec": {**made["test"].get("spec", {}), **change.spec}}
    if change.tools is not None:
        made["tools"] = list(change.tools)
    return made


def alternatives(situation: Situation) -> tuple[list[DocumentChange], dict[ChangeKind, str]]:
    """The changes that help, in the order to try them, and for some kinds why there is none."""
    found: dict[ChangeKind, list[DocumentChange]] = {}
    missing: dict[ChangeKind, str] = {}
    for kind, search in _SEARCHES.items():
        changes = search(situation)
        if isinstance(changes, str):
            missing[kind] = changes
        else:
            pinned = [_pinned(situation, change) for change in changes]
            found[kind] = sorted(pinned, key=lambda change: change.distance)
    ranked = [(nth, change) for changes in found.values() for nth, change in enumerate(changes)]
    ranked.sort(key=lambda entry: (entry[0], entry[1].distance))
    return [change for _, change in ranked], missing


def _later(situation: Situation) -> list[DocumentChange] | str:
    if situation.schedule.cron is not None:
        return "a cron schedule cannot be shifted; change its fields"
    if situation.schedule.repeat is not None:
        return _shifted(situation)
    if not situation.slots:
        return "nothing is asked for"
    after = situation.slots[0].latest_start(situation.duration) + 1
    starts = list(_starts_after(situation, after))[:_STARTS]
    if not starts:
        return _never(situation)
    return [_start_at(situation, start, 0) for start in starts]


def _never(situation: Situation) -> str:
    wanted = format_duration(situation.duration)
    return f"no later {wanted} is free for all within the horizon"


def _starts_after(situation: Situation, after: int) -> Iterator[int]:
    """The first start in each stretch that all have free; the nearest by displacing comes first."""
    quiet = _starts(situation.common.free, after, situation.duration)
    displacing = _starts(situation.common.free_displacing, after, situation.duration)
    if displacing and displacing[0] not in quiet:
        yield displacing[0]
    yield from quiet


def _starts(free: Sequence[Span], after: int, duration: int) -> list[int]:
    fitting = at_least(clip(free, after, times.LATEST), duration)
    return [_whole(start, end - duration) for start, end in fitting]


def _whole(start: int, latest: int) -> int:
    """The next whole second, unless that is too late: people read these."""
    rounded = _rounded(start)
    return rounded if rounded <= latest else start


def _rounded(instant: int) -> int:
    """Up to a whole second."""
    return -(-instant // times.SECOND) * times.SECOND


def _start_at(situation: Situation, start: int, penalty: int) -> DocumentChange:
    delay = start - situation.anchor
    return DocumentChange(
        ChangeKind.LATER,
        min(1.0, delay / times.DAY) + penalty,
        f"starts at {format_instant(start)}, {format_duration(_rounded(delay))} later",
        {"start": format_instant(start)},
    )


def _shifted(situation: Situation) -> list[DocumentChange] | str:
    """The smallest shift of the grid that helps.

    A slot without time finds some once its window reaches the next time that all have; what comes
    before changes nothing for it. So only the smallest of these steps is tried, again and again.
    """
    repeat, shift, best = situation.schedule.repeat or 0, 0, (situation.placed, 0)
    for _ in range(_ROUNDS):
        schedule = situation.schedule.model_copy(update={"start": situation.anchor + shift})
        slots, placed = _tried(situation, schedule, situation.duration)
        if len(placed) > best[0]:
            best = (len(placed), shift)
            if len(placed) == len(slots):
                return [_start_at(situation, situation.anchor + shift, 0)]
        steps = [_step(situation, slot) for slot in slots if slot.nominal not in placed]
        step = min((step for step in steps if step is not None), default=0)
        shift = _rounded(situation.anchor + shift + step) - situation.anchor
        if not step or shift >= repeat:
            break
    if best[1]:
        return [_start_at(situation, situation.anchor + best[1], 1)]
    return "no shift of its starts within one interval helps"


def _step(situation: Situation, slot: Slot) -> int | None:
    """How much later this slot has to be to reach the next time that all have."""
    latest = slot.latest_start(situation.duration)
    fitting, ends = situation.fitting
    at = bisect_left(ends, latest + 1 + situation.duration)
    if at == len(fitting):
        return None
    start = max(latest + 1, fitting[at][0])
    return _whole(start, ends[at] - situation.duration) - latest


def _tried(
    situation: Situation, schedule: Schedule, duration: int
) -> tuple[Sequence[Slot], set[int]]:
    """The slots of such a task, and the nominal starts of those that find time."""
    created_at = situation.introduction.created_at
    if validate(recurrence_of(schedule, created_at), duration):
        return (), set()
    slots = fresh_agenda(schedule, created_at, duration, situation.limits, situation.now).slots
    choices = choose(slots, [situation.common], duration, None)
    return slots, {choice.slot.nominal for choice in choices}


def _penalty(situation: Situation, schedule: Schedule, duration: int) -> int | None:
    """0 if all runs find time, 1 if more than as posted, None if the change does not help.

    Pushing runs out of the horizon is no help: that they are not asked for gives them no time.
    """
    slots, placed = _tried(situation, schedule, duration)
    if len(placed) <= situation.placed:
        return None
    return 0 if len(placed) == len(slots) else 1


def _shorter(situation: Situation) -> list[DocumentChange] | str:
    spec, tool = situation.introduction.spec, situation.introduction.tool or ""
    size, least = size_of(spec), shortest_spec(spec)
    if size is None or least is None:
        return "its measurement has no length that could be cut"

    def penalty(tried: int) -> int | None:
        duration = situation.occupied(shorter_spec(spec, tried), tool)
        return None if duration is None else _penalty(situation, situation.schedule, duration)

    lowest = size_of(least) or 1
    wanted = penalty(lowest)
    if wanted is None:
        return f"even {_length(spec, lowest)} would find no time"
    low, high = lowest, size  # the one helps, the other does not
    while high - low > 1:
        middle = (low + high) // 2
        helps = penalty(middle)
        if helps is not None and helps <= wanted:
            low = middle
        else:
            high = middle
    made = shorter_spec(spec, low)
    name = "duration" if "duration" in spec else "count"
    differs = f"measures {_length(spec, low)} instead of {_length(spec, size)}"
    return [
        DocumentChange(
            ChangeKind.SHORTER, (size - low) / size + wanted, differs, spec={name: made[name]}
        )
    ]


def _length(spec: Mapping[str, Any], size: int) -> str:
    """``PT6S``, or ``6 packets``."""
    if "duration" in spec:
        return format_duration(size * times.SECOND)
    return f"{size} packets"


def _tool(situation: Situation) -> list[DocumentChange] | str:
    used = situation.introduction.tool
    others = [tool for tool in situation.tools if tool != used]
    if not others:
        return f"no other tool for {situation.introduction.test} that every participant has"
    found = []
    for rank, tool in enumerate(others):
        duration = situation.occupied(situation.introduction.spec, tool)
        if duration is None:
            continue
        penalty = _penalty(situation, situation.schedule, duration)
        if penalty is not None:
            found.append(other_tool(tool, used, rank, penalty))
    return found or f"{', '.join(others)} would not find the time either"


def other_tool(tool: str, used: str | None, rank: int = 0, penalty: int = 0) -> DocumentChange:
    """Another tool; ``rank`` is its place among those that all participants have."""
    differs = f"measures with {tool}" + (f" instead of {used}" if used else "")
    return DocumentChange(
        ChangeKind.TOOL, _TOOL_DISTANCE + rank / 1000 + penalty, differs, tools=(tool,)
    )


def _slip(situation: Situation) -> list[DocumentChange] | str:
    if not situation.repeats:
        return "a single run may as well start later"
    slip, needed = situation.schedule.slip or 0, 0
    _, placed = _tried(situation, situation.schedule, situation.duration)
    for slot in situation.slots:
        step = None if slot.nominal in placed else _step(situation, slot)
        if step is not None:
            late = slot.latest_start(situation.duration) + step - slot.nominal
            needed = max(needed, _rounded(late))
    widened = situation.schedule.model_copy(update={"slip": needed})
    penalty = _penalty(situation, widened, situation.duration) if needed > slip else None
    if penalty is None:
        return "more slip within the interval does not help"
    more, less = format_duration(needed), format_duration(slip)
    return [
        DocumentChange(
            ChangeKind.SLIP,
            min(1.0, (needed - slip) / times.DAY) + penalty,
            f"may start up to {more} later than its nominal start instead of {less}",
            {"slip": more},
        )
    ]


def _less_often(situation: Situation) -> list[DocumentChange] | str:
    repeat = situation.schedule.repeat
    if repeat is None:
        return "it has no interval"
    for multiple in _MULTIPLES:
        schedule = situation.schedule.model_copy(update={"repeat": multiple * repeat})
        slots, placed = _tried(situation, schedule, situation.duration)
        if slots and len(placed) == len(slots):
            more, less = format_duration(multiple * repeat), format_duration(repeat)
            return [
                DocumentChange(
                    ChangeKind.LESS_OFTEN,
                    1 - 1 / multiple,
                    f"runs every {more} instead of every {less}",
                    {"repeat": more},
                )
            ]
    return "not even every twelfth run alone would always find time"


def _pinned(situation: Situation, change: DocumentChange) -> DocumentChange:
    """The change with the start of its grid in it, where that hangs on the instant of posting.

    Else a document posted a minute later would ask for other times than were tried.
    """
    schedule = situation.schedule
    if schedule.repeat is None or schedule.start is not None or "start" in change.schedule:
        return change
    start = {"start": format_instant(situation.anchor)}
    return replace(change, schedule={**start, **change.schedule})


_SEARCHES: dict[ChangeKind, Callable[[Situation], list[DocumentChange] | str]] = {
    ChangeKind.LATER: _later,
    ChangeKind.SHORTER: _shorter,
    ChangeKind.TOOL: _tool,
    ChangeKind.SLIP: _slip,
    ChangeKind.LESS_OFTEN: _less_often,
}
