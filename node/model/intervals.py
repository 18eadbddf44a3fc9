"""The intervals of a long run, as its participants measure and report them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    """One interval of a run, as one participant saw it or after merging; ``number`` counts from 0.

    Without a ``result`` it is a gap, and ``reason`` says why; with both, the result is incomplete.
    """

    number: int
    result: dict[str, Any] | None
    reason: str | None = None


@dataclass(frozen=True)
class Rhythm:
    """The intervals of a run: the first begins with the run; ``length`` is in microseconds."""

    length: int
    count: int
