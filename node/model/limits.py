"""The quantities that can be limited: their words in the API, and their kinds in policies.

The API counts seconds; policies compute in microseconds. Limits are stored in the form of the
policies, so that code which applies them need not convert. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from node.model import times

Limited = Literal[
    "runs",
    "nodes",
    "seats",
    "seat_seconds",
    "seconds",
    "due_runs",
    "due_nodes",
    "due_seats",
    "due_seat_seconds",
    "due_seconds",
    "delivered_seat_seconds",
    "delivered_percent",
]
"""Limits on running work: how many runs, on how many nodes, with how many seats, and their
remaining time. Limits on due runs: how many of them are considered at all. Limits on what was
delivered within the windows of fairshare: an amount, or a percentage of all that was delivered."""

_KINDS: Final[Mapping[str, tuple[str, int]]] = {
    "seat_seconds": ("seat_time", times.SECOND),
    "seconds": ("time", times.SECOND),
    "due_seat_seconds": ("due_seat_time", times.SECOND),
    "due_seconds": ("due_time", times.SECOND),
    "delivered_seat_seconds": ("delivered", times.SECOND),
}
_WORDS: Final = {kind: (word, unit) for word, (kind, unit) in _KINDS.items()}

Bounds = Mapping[str, int | None]
"""``{"soft": 10, "hard": 50}``; None means no limit."""


def to_stored_limits(limits: Mapping[str, Bounds]) -> dict[str, dict[str, int | None]]:
    """Convert limits from the API's words to the stored kinds, times in microseconds."""
    stored = {}
    for word, bounds in limits.items():
        kind, unit = _KINDS.get(word, (word, 1))
        stored[kind] = {
            name: None if amount is None else amount * unit for name, amount in bounds.items()
        }
    return stored


def to_worded_limits(limits: Mapping[str, Bounds]) -> dict[str, dict[str, int | None]]:
    """Convert stored limits to the API's words; the inverse of :func:`to_stored_limits`."""
    worded = {}
    for kind, bounds in limits.items():
        word, unit = _WORDS.get(kind, (kind, 1))
        worded[word] = {
            name: None if amount is None else amount // unit for name, amount in bounds.items()
        }
    return worded
