"""A figure as it is printed and written to the file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured value and how it was measured."""

    name: str
    value: float
    unit: str
    how: str
