"""A figure as it is printed and written down."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """What was measured, and how."""

    name: str
    value: float
    unit: str
    how: str
