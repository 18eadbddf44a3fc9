"""The time that this host itself closes to the runs of a task. Pure.

It may close time for the user, the pool, or the campaign of a task. To the choice of a start each
of them is one participant more, which is busy meanwhile. So the choice, the reasons, and the trace
need nothing special for limits and reservations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from lead.planning.agenda import Slot
from lead.planning.placement import Offer
from node.model.reasons import no_time_free
from node.model.spans import Span, at_least, from_portion, normalise, to_portion
from node.model.wire.participants import AnyObstacle, Proposal, ToldLimit

OwnOffer = tuple[Offer, Proposal]
"""An offer of this host itself: the time that it leaves to a task, as a participant tells it."""


@dataclass(frozen=True)
class ClosedSpan:
    """Closed time; ``obstacle(window, slot)`` tells a slot without time, by its number, why."""

    starts_at: int
    ends_at: int
    obstacle: Callable[[int, Slot], AnyObstacle]


def offer_outside(
    name: str,
    closures: Sequence[ClosedSpan],
    slots: Sequence[Slot],
    duration: int,
    now: int,
    quotas: tuple[ToldLimit, ...] | None = None,
) -> OwnOffer:
    """Return the time that closures leave in these slots for runs of this duration (µs).

    A slot without any has the closure as its obstacle that closes most of it. ``quotas`` are the
    limits for which the runs count.
    """
    by_slot = open_ranges(((each.starts_at, each.ends_at) for each in closures), slots, duration)
    free = list(chain.from_iterable(by_slot))
    proposal = Proposal(
        now=now,
        horizon=max(slot.end for slot in slots),
        free=tuple(free),
        obstacles=tuple(
            longest(closures, slots[index]).obstacle(index, slots[index])
            for index, ranges in enumerate(by_slot)
            if not ranges
        ),
        reason=None if free else no_time_free(duration),
        quotas=quotas,
    )
    return Offer(name, free, free), proposal


def open_ranges(closed: Iterable[Span], slots: Sequence[Slot], duration: int) -> list[list[Span]]:
    """Return for each slot the ranges outside closed time in which a run of this duration fits."""
    spans = normalise(list(closed))
    ends = [end for _, end in spans]
    return [at_least(_open_ranges(spans, ends, slot), duration) for slot in slots]


def _open_ranges(spans: Sequence[Span], ends: Sequence[int], slot: Slot) -> list[Span]:
    """Return the part of a slot outside these spans, which are sorted and end at ``ends``."""
    first = bisect_left(ends, slot.start + 1)
    near = spans[first : bisect_left(spans, (slot.end, slot.end))]
    whole = [(slot.start, slot.end)]
    # Most slots lie outside all closed time, and the difference is the slow operation.
    return from_portion(to_portion(whole) - to_portion(near)) if near else whole


def longest(closures: Sequence[ClosedSpan], slot: Slot) -> ClosedSpan:
    """Return the closed span that has most of a slot."""
    return max(
        closures,
        key=lambda each: min(each.ends_at, slot.end) - max(each.starts_at, slot.start),
    )
