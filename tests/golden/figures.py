"""Numbers between cases and the product: seconds and microseconds, and how exact an answer is."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from node.model import times

_DIGITS = 6
_SMALL = 0.001


def micros(seconds: float) -> int:
    """Seconds of a case as the product's microseconds."""
    return round(seconds * times.SECOND)


def seconds(duration: float) -> int | float:
    """Microseconds as seconds, whole where they are whole."""
    found = duration / times.SECOND
    return int(found) if found == int(found) else found


def figure(value: Fraction | float) -> float:
    """A number of an answer: six digits after the point, and no minus before a nought."""
    exact = float(value)
    return (exact if abs(exact) < _SMALL else round(exact, _DIGITS)) + 0.0


def told(given: Mapping[str, Any], *names: str, default: Any = 0) -> Any:
    """What is given under the first of these names that is there."""
    return next((given[name] for name in names if name in given), default)
