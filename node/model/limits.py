"""What campaigns can be limited in: the words that people use, and the kinds that policies know.

People count seconds; policies reckon in microseconds. A limit is kept in the form of the policies,
so that whoever applies it need not translate. Pure.
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
"""Of runs under way at once: how many, on how many nodes, with how many seats, and the time that is
left of them; of runs that are due, so many are considered at all; of all that was delivered within
the windows of fairshare, so much, or so many percent."""

_KINDS: Final[Mapping[str, tuple[str, int]]] = {
    "seat_seconds": ("seat_time", times.SECOND),
    "seconds": ("time", times.SECOND),
    "due_seat_seconds": ("due_seat_time", times.SECOND),
    "due_seconds": ("due_time", times.SECOND),
    "delivered_seat_seconds": ("delivered", times.SECOND),
}
_WORDS: Final = {kind: (word, unit) for word, (kind, unit) in _KINDS.items()}

Bounds = Mapping[str, int | None]
"""``{"soft": 10, "hard": 50}``; None is no limit."""


def to_stored_limits(limits: Mapping[str, Bounds]) -> dict[str, dict[str, int | None]]:
    """Limits by word as they are kept: by kind, in microseconds where they are times."""
    found = {}
    for word, bounds in limits.items():
        kind, unit = _KINDS.get(word, (word, 1))
        found[kind] = {
            name: None if amount is None else amount * unit for name, amount in bounds.items()
        }
    return found


def to_worded_limits(limits: Mapping[str, Bounds]) -> dict[str, dict[str, int | None]]:
    """The inverse of :func:`to_stored_limits`."""
    found = {}
    for kind, bounds in limits.items():
        word, unit = _WORDS.get(kind, (kind, 1))
        found[word] = {
            name: None if amount is None else amount // unit for name, amount in bounds.items()
        }
    return found
