"""When an episode begins: on an event, but not sooner than some time after the last one. Pure."""

from __future__ import annotations

from node.model import times

EPISODE_SPACING = 5 * times.SECOND
"""The least time between the beginnings of two episodes, unless configured."""


def next_pass(event: int, last: int | None, apart: int = EPISODE_SPACING) -> int:
    """When the episode begins that an event asks for, the last one having begun at ``last``."""
    return event if last is None else max(event, last + apart)
