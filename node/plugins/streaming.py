"""What tests that measure again and again while a run lasts have in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from node.model.times import format_duration
from node.model.wire.fields import Document
from node.plugins.contracts import Merged, Part
from node.plugins.fields import CountField
from node.plugins.participation import joined, part_of

INTERVALS_MAX = 3600
"""Most intervals of a run."""


class StreamEnd(Document):
    """The part of a participant that has measured to the end: how many intervals it told of."""

    intervals: CountField


def check_completeness(parts: Sequence[Part], count: int, model: type[StreamEnd]) -> Merged:
    """Whether all of ``count`` participants have measured to the end; the reason if not."""
    reasons = [part_of(parts, index, model)[1] for index in range(count)]
    return Merged(None, joined(*reasons))


def is_whole(name: str, whole: int, part: str, length: int) -> None:
    """Refuse a duration (microseconds) that is not a multiple of another.

    :raises ValueError: says which; or that there would be too many of them, where the parts are
        intervals.
    """
    lengths = f"{part} ({format_duration(length)})"
    if whole % length:
        raise ValueError(f"{name} ({format_duration(whole)}) is not a multiple of {lengths}")
    if name == "duration" and whole // length > INTERVALS_MAX:
        raise ValueError(f"{name} is more than {INTERVALS_MAX} times {lengths}")


def gaps_text(intervals: int, gaps: int) -> str:
    """``60 intervals``, ``58 of 60 intervals``."""
    if gaps:
        return f"{intervals} of {intervals + gaps} intervals"
    return "1 interval" if intervals == 1 else f"{intervals} intervals"
