"""The reason why a slot found no time, and the trace of an attempt. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

from lead.model.reasons import (
    no_common_time,
    no_time_in_window,
    nothing_to_place,
    runs_booked,
    window_taken,
)
from lead.planning.agenda import Slot
from lead.planning.host_quotas import QuotaCount
from lead.planning.placement import ChosenStart, Offer
from node.model.reason import Reason
from node.model.reasons import no_time_free, told
from node.model.spans import Span, intersect, normalise
from node.model.wire.participants import LimitReached, Proposal

_TRACED_MAX = 2000
"""Maximum number of ranges of one participant in a stored trace."""


def unplaced_reasons(
    slots: Sequence[Slot],
    choices: Sequence[ChosenStart],
    duration: int,
    offers: Sequence[Offer],
    proposals: Mapping[str, Proposal],
    quotas: QuotaCount | None = None,
) -> dict[int, Reason]:
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
) -> Reason:
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
) -> Reason:
    for name, ranges in offered.sets.items():
        if not _fits(ranges, slot, duration):
            return _why_not(index, duration, proposals[name]).at(name)
    names = list(offered.sets)
    if _fits(offered.common, slot, duration):
        if quotas is not None and (why := quotas.why_closed(slot, duration)) is not None:
            return why
        return window_taken(names)
    return no_common_time(names, duration)


def _fits(ranges: Sequence[Span], slot: Slot, duration: int) -> bool:
    """Return whether a run of the slot fits into one of these ranges, which are sorted."""
    first = max(0, bisect_right(ranges, (slot.start, slot.start)) - 1)
    last = bisect_left(ranges, (slot.end, slot.end))
    near = ranges[first:last]
    return any(min(end, slot.end) - max(start, slot.start) >= duration for start, end in near)


def _why_not(index: int, duration: int, proposal: Proposal) -> Reason:
    for obstacle in proposal.obstacles:
        if obstacle.window == index:
            # There is time; the limit alone is why it may not be taken.
            at_limit = isinstance(obstacle, LimitReached)
            return obstacle.why() if at_limit else no_time_free(duration, obstacle.why())
    return told(proposal.reason) if proposal.reason else no_time_in_window(duration)


def summary(placed: Sequence[ChosenStart], slot_count: int, first_reason: Reason | None) -> Reason:
    """Summarize a planning attempt for lists."""
    if not placed:
        return first_reason or nothing_to_place()
    first = min(choice.starts_at for choice in placed)
    displacing = sum(choice.displacing for choice in placed)
    return runs_booked(len(placed), slot_count, first, displacing, first_reason)


def trace(
    slots: Sequence[Slot],
    offers: Sequence[Offer],
    proposals: Mapping[str, Proposal],
    choices: Sequence[ChosenStart],
    refusals: Mapping[str, Reason],
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
