"""Values of options that may be written in a shorter form. Pure."""

from __future__ import annotations

from node.model.times import SECOND
from node.pscheduler import times

_DIGITS_MAX = 9


def seconds_duration(told: str) -> str:
    """Return ``PT10S`` for ``10``; anything else stays as it is."""
    if not told.isdecimal():
        return told
    return times.format_duration(_whole(told) * SECOND)


def milliseconds_duration(told: str) -> str:
    """Return ``PT0.1S`` for ``100``, always with decimals; anything else stays as it is."""
    return f"PT{_whole(told) / 1000}S" if told.isdecimal() else told


def _whole(told: str) -> int:
    if len(told) > _DIGITS_MAX:
        raise ValueError(f"'{told[:20]}' is too long")
    return int(told)
