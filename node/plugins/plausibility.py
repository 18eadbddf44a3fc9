"""The figures that can be true: what decides about each number of a measurement. Pure.

What a program prints is no more than a claim. A :class:`Sieve` takes each number as it was printed
(a JSON value, or text), and what it may be: finite, and within bounds that follow from the run.
It returns a number that can be true unchanged, and otherwise None, and notes the figure, what was
printed, and why it cannot be. Readers ask it number by number, tests how figures fit each other, so
that a run keeps all that can be true, and shows nothing else. The notes are part of the result.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

COUNT_MAX = 2**63 - 1
FIGURE_MAX = 1e15
"""Bound of what arithmetic can handle: no measurement exceeds it."""
RATE_MAX_BPS = 1e13
"""Bits per second: no host that runs a tool moves more."""
LONGEST_MS = 7_200_000
"""Milliseconds: specs allow an hour, and no single answer takes longer than twice that."""
NOTES_MAX = 10

_DURATION = re.compile(r"(?<!offset)(?<!offset_median)_ms(\.\w+)?$")  # clocks may be years apart
_SHOWN_MAX = 40
_NOTE_MAX = 300
_NUMBER = re.compile(r"[-+]?\d{1,18}(?:[.,]\d{1,18})?(?:[eE][-+]?\d{1,2})?", re.ASCII)
"""A number as text; some locales have a comma in it."""

Notes = Annotated[
    tuple[Annotated[str, Field(max_length=_NOTE_MAX)], ...],
    Field(
        max_length=NOTES_MAX,
        description="What the tool's output lacks or has wrong, and what was made of it; figures "
        "that cannot be true are left out.",
        exclude_if=lambda notes: not notes,
    ),
]
"""The field ``notes`` of a part or result, whose default is empty; it is absent then."""


class Sieve:
    """Keeps the numbers that can be true, and notes the others."""

    def __init__(self, notes: Iterable[str] = ()) -> None:
        """Begin with what was noted before."""
        self._notes: dict[str, list[str]] = {note: [note] for note in notes}

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes in order, those about one figure as one."""
        texts = [_noted(each) for each in self._notes.values()]
        if len(texts) > NOTES_MAX:
            rest = len(texts) - NOTES_MAX + 1
            texts = [*texts[: NOTES_MAX - 1], f"{rest} more figures were left out"]
        return tuple(text[:_NOTE_MAX] for text in texts)

    def say(self, note: str) -> None:
        """Note something, once."""
        self._notes.setdefault(note, [note])

    def leave_out(self, figure: str, why: str) -> None:
        """Note that a figure is left out, and why."""
        self._notes.setdefault(f"\x00{figure}", []).append(f"{figure} is left out: {why}")

    def number(
        self, figure: str, value: object, least: float = 0.0, most: float = FIGURE_MAX
    ) -> float | None:
        """Return a number from ``least`` to ``most``; None if it is None, or none that can be."""
        if value is None:
            return None
        number = _number(value)
        if number is None or not math.isfinite(number):
            self.leave_out(figure, f"{_shown(value)} is no number")
        elif number < least:
            self.leave_out(figure, f"{_shown(value)} is below {least:g}")
        elif number > most:
            self.leave_out(figure, f"{_shown(value)} is more than {most:g}")
        else:
            return number
        return None

    def count(self, figure: str, value: object, most: int = COUNT_MAX) -> int | None:
        """Return a whole number from 0 to ``most``, or None as of :meth:`number`."""
        number = self.number(figure, value, 0, most)
        if number is None:
            return None
        if isinstance(value, int):
            return value  # exact beyond 2**53
        if number.is_integer():
            return int(number)
        self.leave_out(figure, f"{_shown(value)} is no whole number")
        return None

    def ordered(self, figure: str, *values: float) -> bool:
        """Return whether values are in order, from the least; if not, the figure is left out."""
        if all(one <= next_ for one, next_ in itertools.pairwise(values)):
            return True
        self.leave_out(figure, f"{'/'.join(f'{value:g}' for value in values)} are not in order")
        return False


def tree(value: object, *keys: str) -> Mapping[str, Any]:
    """Return the object below ``keys`` in a JSON document; empty if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def find_endless_time(result: object, path: str = "") -> str | None:
    """Return which duration of a result (``…_ms``) no run can have taken; None if each can be."""
    if isinstance(result, Mapping):
        parts = ((f"{path}.{name}" if path else str(name), it) for name, it in result.items())
    elif isinstance(result, list | tuple):
        parts = ((path, it) for it in result)
    elif isinstance(result, int | float) and result > LONGEST_MS and _DURATION.search(path):
        return f"{path} cannot be {result:g} ms"
    else:
        return None
    return next(filter(None, (find_endless_time(it, name) for name, it in parts)), None)


def with_notes(summary: str, result: Mapping[str, Any] | None) -> str:
    """Return the line of a result with the first of its notes."""
    notes = (result or {}).get("notes") or ()
    if not notes:
        return summary
    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    return f"{summary}; {notes[0]}{more}"


def _number(value: object) -> float | None:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        value = float(value.replace(",", "."))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**_SHOWN_MAX:
        return "a number of many digits"
    text = value if isinstance(value, str) else repr(value)
    plain = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return plain if len(plain) <= _SHOWN_MAX else f"{plain[:_SHOWN_MAX]}…"


def _noted(told: list[str]) -> str:
    return told[0] if len(told) == 1 else f"{told[0]}, and {len(told) - 1} more like it"
