"""Every "no" of a policy: which axis said it, by which rule, with which figures. Pure.

A rule is declared once, beside the algorithm that applies it, with the sentence that explains it;
a refusal holds the figures, and the sentence is only made when somebody reads it::

    SEATS = Rule(Axis.THROTTLE, "seats", "{campaign} would hold {wanted} seats, of at most {limit}")
    return SEATS.says_no(campaign="ops", wanted=21, limit=20)

What is allowed has no verdict: functions that admit or refuse return ``No | None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any


class Axis(StrEnum):
    """The seven questions of an episode."""

    ORDER = "order"
    SHARE = "share"
    SELECT = "select"
    PREEMPT = "preempt"
    THROTTLE = "throttle"
    FILL = "fill"
    FEASIBLE = "feasible"


Figure = int | float | str | Fraction | None


@dataclass(frozen=True, slots=True)
class RefusalRule:
    """A reason to say no; ``sentence`` is a format string over the figures of each refusal."""

    axis: Axis
    name: str
    sentence: str

    def says_no(self, *, until: int | None = None, **figures: Figure) -> PolicyRefusal:
        """A refusal with these figures, which holds at least until an instant, if one is known."""
        return PolicyRefusal(self, tuple(figures.items()), until)


@dataclass(frozen=True, slots=True)
class PolicyRefusal:
    """One refusal; ``until`` is the instant (µs) before which asking again is of no use."""

    rule: RefusalRule
    figures: tuple[tuple[str, Figure], ...]
    until: int | None = None

    @property
    def axis(self) -> Axis:
        """The question that was answered with no."""
        return self.rule.axis

    @property
    def sentence(self) -> str:
        """The reason for people."""
        return self.rule.sentence.format(**{key: _written(it) for key, it in self.figures})

    def to_trace(self) -> dict[str, Any]:
        """For a stored trace: plain values only."""
        figures = {key: _plain(it) for key, it in self.figures}
        told = {"axis": self.axis.value, "rule": self.rule.name, "figures": figures}
        return told | {"sentence": self.sentence, "until": self.until}


def _plain(figure: Figure) -> int | float | str | None:
    return float(figure) if isinstance(figure, Fraction) else figure


def _written(figure: Figure) -> str:
    """Three digits after the point at most, and none that say nothing."""
    if isinstance(figure, Fraction | float):
        return f"{float(figure):.3f}".rstrip("0").rstrip(".")
    return str(figure)
