"""The common parts of tests that measure repeatedly while a run lasts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from node.model.times import format_duration
from node.model.wire.fields import Document
from node.plugins.contracts import Merged, Part
from node.plugins.fields import CountField
from node.plugins.participation import joined, part_of

INTERVALS_MAX = 3600
"""Maximum number of intervals of a run."""


class StreamEnd(Document):
    """The final part of a participant: how many intervals it reported."""

    intervals: CountField


def check_completeness(parts: Sequence[Part], count: int, model: type[StreamEnd]) -> Merged:
    """Check that all of ``count`` participants measured to the end; the reason says who did not."""
    reasons = [part_of(parts, index, model)[1] for index in range(count)]
    return Merged(None, joined(*reasons))


def check_multiple(name: str, whole: int, part: str, length: int) -> None:
    """Refuse a duration (microseconds) that is not a multiple of another.

    :raises ValueError: says which; or that a run has too many intervals, if the parts are
        intervals.
    """
    lengths = f"{part} ({format_duration(length)})"
    if whole % length:
        raise ValueError(f"{name} ({format_duration(whole)}) is not a multiple of {lengths}")
    if name == "duration" and whole // length > INTERVALS_MAX:
        raise ValueError(f"{name} is more than {INTERVALS_MAX} times {lengths}")


def gaps_text(intervals: int, gaps: int) -> str:
    """Return ``60 intervals``, ``58 of 60 intervals``."""
    if gaps:
        return f"{intervals} of {intervals + gaps} intervals"
    return "1 interval" if intervals == 1 else f"{intervals} intervals"
