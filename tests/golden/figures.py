"""Numbers of cases and of the product: seconds and microseconds, and the precision of answers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from node.model import times

_DIGITS = 6
_SMALL = 0.001


def micros(seconds: float) -> int:
    """Return seconds of a case as microseconds."""
    return round(seconds * times.SECOND)


def seconds(duration: float) -> int | float:
    """Return microseconds as seconds, an int where they are whole."""
    value = duration / times.SECOND
    return int(value) if value == int(value) else value


def figure(value: Fraction | float) -> float:
    """Return a number of an answer: six decimal places, and no negative zero."""
    exact = float(value)
    return (exact if abs(exact) < _SMALL else round(exact, _DIGITS)) + 0.0


def first_given(given: Mapping[str, Any], *names: str, default: Any = 0) -> Any:
    """Return the value of the first of these names that is given."""
    return next((given[name] for name in names if name in given), default)
