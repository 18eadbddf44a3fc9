"""When an episode begins: on an event, but not sooner than some time after the last one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from node.model import times

APART = 5 * times.SECOND
"""The least time between the beginnings of two episodes, unless configured."""


def next_pass(event: int, last: int | None, apart: int = APART) -> int:
    """When the episode begins that an event asks for, the last one having begun at ``last``."""
    return event if last is None else max(event, last + apart)


def passes(events: Iterable[int], apart: int = APART) -> list[int]:
    """When episodes begin; events that come before one begins are served by it."""
    begun: list[int] = []
    for event in sorted(events):
        if not begun or event > begun[-1]:
            begun.append(next_pass(event, begun[-1] if begun else None, apart))
    return begun
