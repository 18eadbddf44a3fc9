"""Weights of campaigns that change with the time of day. Pure.

Shares are counted by whole hours, and so are weights: in each hour the one counts that applies at
its beginning, and of several that do, the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol, TypeVar

from node.model.host_limits.closed import Opening

WeightT_co = TypeVar("WeightT_co", covariant=True)
WeightT = TypeVar("WeightT")


class Timed(Protocol[WeightT_co]):
    """A weight, and the times at which it counts."""

    @property
    def weight(self) -> WeightT_co:
        """The weight."""
        ...

    @property
    def opening(self) -> Opening:
        """The times at which it counts."""
        ...


def weight_at(own: WeightT, timed: Iterable[Timed[WeightT]], hour: int) -> WeightT:
    """Return the weight in an hour, given by its beginning; ``own`` where no other applies."""
    return next((it.weight for it in timed if _is_open(it.opening, hour)), own)


@lru_cache(maxsize=20_000)
def _is_open(opening: Opening, at: int) -> bool:
    return bool(opening.spans(at, at + 1))
