"""Where to put the slots: intersect the participants' offers, two passes, choose. Pure.

Pass 1 displaces nothing; only a window that finds nothing there is tried in pass 2, where runs of
lower priority give way. The runs of one task never overlap each other.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from lead.planning.agenda import Slot
from node.model.spans import Span, clip, intersect, normalise, subtract


@dataclass(frozen=True)
class Offer:
    """One participant's free ranges, for both passes."""

    name: str
    free: Sequence[Span]
    free_displacing: Sequence[Span]


@dataclass(frozen=True)
class Choice:
    """A slot and the start that was chosen for it."""

    slot: Slot
    starts_at: int
    displacing: bool


def choose(
    slots: Sequence[Slot], offers: Sequence[Offer], duration: int, rng: random.Random | None
) -> list[Choice]:
    """A start for each slot that all participants have time for, in the order of the slots.

    The earliest common start, or with ``rng`` one drawn evenly from all common starts.
    """
    quiet = _common([offer.free for offer in offers])
    displacing = _common([offer.free_displacing for offer in offers])
    taken: list[Span] = []
    choices = []
    for slot in slots:
        for common, displaces in ((quiet, False), (displacing, True)):
            start = _start(common, slot, taken, duration, rng)
            if start is not None:
                choices.append(Choice(slot, start, displaces))
                insort(taken, (start, start + duration))
                break
    return choices


def _common(sets: Sequence[Sequence[Span]]) -> list[Span]:
    return reduce(intersect, [normalise(spans) for spans in sets])


def _start(
    common: Sequence[Span],
    slot: Slot,
    taken: Sequence[Span],
    duration: int,
    rng: random.Random | None,
) -> int | None:
    first = max(0, bisect_right(common, (slot.start, slot.start)) - 1)
    last = bisect_right(common, (slot.end, slot.end))
    inside = clip(common[first:last], slot.start, slot.end)
    # Picks do not overlap: sorted by start, they are sorted by end too.
    before = bisect_left(taken, (slot.start, 0)) - 1
    if near := taken[max(0, before) : bisect_left(taken, (slot.end, 0))]:
        inside = subtract(inside, normalise(near))
    fitting = [span for span in inside if span[1] - span[0] >= duration]
    if not fitting:
        return None
    if rng is None:
        return fitting[0][0]
    return _drawn(fitting, duration, rng)


def _drawn(fitting: Sequence[Span], duration: int, rng: random.Random) -> int:
    """A start drawn evenly from all starts that fit, whichever range they lie in."""
    rooms = [end - start - duration + 1 for start, end in fitting]
    at = rng.randrange(sum(rooms))
    for (start, _), room in zip(fitting, rooms, strict=True):
        if at < room:
            return start + at
        at -= room
    return fitting[-1][1] - duration
