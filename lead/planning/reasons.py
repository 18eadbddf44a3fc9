"""The reason why a slot found no time, as a sentence, and the trace of an attempt. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

from lead.planning.agenda import Slot
from lead.planning.host_quotas import QuotaCount
from lead.planning.placement import ChosenStart, Offer
from node.model.spans import Span, intersect, normalise
from node.model.times import format_duration, to_the_second
from node.model.wire.participants import Proposal

_TRACED_MAX = 2000
"""Maximum number of ranges of one participant in a stored trace."""


def unplaced_reasons(
    slots: Sequence[Slot],
    choices: Sequence[ChosenStart],
    duration: int,
    offers: Sequence[Offer],
    proposals: Mapping[str, Proposal],
    quotas: QuotaCount | None = None,
) -> dict[int, str]:
    """Return, by nominal start, the reason why each slot that was not chosen found no time.

    ``quotas`` have counted the runs that were chosen.
    """
    chosen = {choice.slot.nominal for choice in choices}
    offered = _Offered(offers)
    return {
        slot.nominal: _reason(index, slot, duration, offered, proposals, quotas)
        for index, slot in enumerate(slots)
        if slot.nominal not in chosen
    }


def unplaced_reason(
    index: int,
    slot: Slot,
    duration: int,
    offers: Sequence[Offer],
    proposals: Mapping[str, Proposal],
    quotas: QuotaCount | None = None,
) -> str:
    """Return the reason of the first participant without time, or that no common time exists."""
    return _reason(index, slot, duration, _Offered(offers), proposals, quotas)


class _Offered:
    """The ranges of offers, sorted once for all slots, as they are looked up for each."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self.sets = {offer.name: normalise(offer.free_displacing) for offer in offers}

    @cached_property
    def common(self) -> list[Span]:
        return reduce(intersect, self.sets.values())


def _reason(
    index: int,
    slot: Slot,
    duration: int,
    offered: _Offered,
    proposals: Mapping[str, Proposal],
    quotas: QuotaCount | None = None,
) -> str:
    for name, ranges in offered.sets.items():
        if not _fits(ranges, slot, duration):
            return f"{name}: {_why_not(index, duration, proposals[name])}"
    names = " and ".join(offered.sets)
    if _fits(offered.common, slot, duration):
        if quotas is not None and (why := quotas.why_closed(slot, duration)) is not None:
            return why
        return f"{names}: another run of this task occupies this window"
    return f"{names} have no {format_duration(duration)} free at the same time in this window"


def _fits(ranges: Sequence[Span], slot: Slot, duration: int) -> bool:
    """Return whether a run of the slot fits into one of these ranges, which are sorted."""
    first = max(0, bisect_right(ranges, (slot.start, slot.start)) - 1)
    last = bisect_left(ranges, (slot.end, slot.end))
    near = ranges[first:last]
    return any(min(end, slot.end) - max(start, slot.start) >= duration for start, end in near)


def _why_not(index: int, duration: int, proposal: Proposal) -> str:
    for obstacle in proposal.obstacles:
        if obstacle.window == index:
            return f"no {format_duration(duration)} free: {obstacle.why()}"
    return proposal.reason or f"no {format_duration(duration)} free in this window"


def suspended_reason(campaign: str) -> str:
    """Return why nothing is booked for a suspended campaign, and what to do."""
    return (
        f"the campaign {campaign} is suspended; resume: parley campaign edit {campaign} --level 5"
    )


def sentence(placed: Sequence[ChosenStart], slot_count: int, first_reason: str | None) -> str:
    """Summarize a planning attempt for lists."""
    if not placed:
        return first_reason or "there was nothing to place"
    first = to_the_second(min(choice.starts_at for choice in placed))
    booked = f"{len(placed)} of {slot_count} runs booked, the first at {first}"
    displacing = sum(choice.displacing for choice in placed)
    if displacing:
        booked += f", {displacing} of them displacing other runs"
    return booked if first_reason is None else f"{booked}; the others wait: {first_reason}"


def books_without_holds(names: Sequence[str]) -> str:
    """Return the sentence on participants whose bookings bind before all have agreed."""
    who = " and ".join(names)
    return f"{who} {'books' if len(names) == 1 else 'book'} without holds"


def trace(
    slots: Sequence[Slot],
    offers: Sequence[Offer],
    proposals: Mapping[str, Proposal],
    choices: Sequence[ChosenStart],
    refusals: Mapping[str, str],
) -> dict[str, Any]:
    """Return everything that a decision was based on; instants in microseconds, as everywhere."""
    return {
        "windows": [[slot.start, slot.end] for slot in slots],
        "offers": [
            {
                "node": offer.name,
                "now": proposals[offer.name].now,
                "free": _ranges(offer.free, slots),
                "free_displacing": None
                if proposals[offer.name].free_displacing is None
                else _ranges(offer.free_displacing, slots),
                "obstacles": [
                    obstacle.model_dump(mode="json") for obstacle in proposals[offer.name].obstacles
                ],
                "reason": proposals[offer.name].reason,
            }
            for offer in offers
        ],
        "choices": [[c.slot.nominal, c.starts_at, c.displacing] for c in choices],
        "refusals": dict(refusals),
    }


def _ranges(free: Sequence[tuple[int, int]], slots: Sequence[Slot]) -> list[list[int]] | str:
    """Return the first ranges, or ``everything`` if they equal the windows: traces stay small."""
    if [(slot.start, slot.end) for slot in slots] == list(free):
        return "everything"
    return [[start, end] for start, end in free[:_TRACED_MAX]]
