"""The start of episodes: upon an event, but not too soon after the last one. Pure."""

from __future__ import annotations

from node.model import times

EPISODE_SPACING = 5 * times.SECOND
"""The default minimum time (µs) between the beginnings of two episodes."""


def next_episode_at(event: int, last: int | None, apart: int = EPISODE_SPACING) -> int:
    """Return when an event's episode may begin, if the last one began at ``last``."""
    return event if last is None else max(event, last + apart)
