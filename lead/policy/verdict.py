"""Refusals of the policies: the axis, the rule, and the figures of each. Pure.

A rule is declared once, beside the algorithm that applies it, with the sentence that explains it. A
refusal holds the figures, and the sentence is formatted only when it is read::

    SEATS = RefusalRule(
        Axis.THROTTLE, "seats", "{campaign} would hold {wanted} seats, of at most {limit}"
    )
    return SEATS.refuse(campaign="ops", wanted=21, limit=20)

Functions that admit or refuse return ``PolicyRefusal | None``; None admits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from node.model.reason import Reason, in_words
from node.model.times import LATEST, to_the_second


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
    """A reason to refuse; ``sentence`` is a format string over the figures of each refusal."""

    axis: Axis
    name: str
    sentence: str
    kind: str = ""

    @property
    def code(self) -> str:
        """Return the code of its refusals; the ``kind`` tells rules of one name apart."""
        name = self.name.replace(" ", "-").removeprefix(f"{self.axis}-")
        return "-".join(filter(None, (self.axis, name, self.kind)))

    def refuse(self, *, until: int | None = None, **figures: Figure) -> PolicyRefusal:
        """Return a refusal with these figures, which holds at least until ``until`` (µs)."""
        return PolicyRefusal(self, tuple(figures.items()), until)


@dataclass(frozen=True, slots=True)
class PolicyRefusal:
    """One refusal; asking again before ``until`` (µs) is of no use.

    ``room_at`` is when a limit has room again as things are booked: for a later run, not for later
    questions. ``afterwards`` is what refuses once this does no more, if that is known.
    """

    rule: RefusalRule
    figures: tuple[tuple[str, Figure], ...]
    until: int | None = None
    room_at: int | None = None
    afterwards: PolicyRefusal | None = None

    @property
    def axis(self) -> Axis:
        """Return the axis that refused."""
        return self.rule.axis

    @property
    def reason(self) -> Reason:
        """Return the refusal as a reason, with the code of its rule."""
        figures = dict(self.figures)
        sentence = in_words(self.rule.sentence, figures)
        if self.room_at is None:
            return Reason(sentence, self.rule.code, figures)
        until = to_the_second(self.room_at)
        return Reason(f"{sentence}, until {until}", self.rule.code, figures)

    def with_room_at(self, instant: int) -> PolicyRefusal:
        """Return the refusal that also says when there is room again; ``LATEST`` is never."""
        return replace(self, room_at=None if instant == LATEST else instant)

    def to_trace(self) -> dict[str, Any]:
        """Return the refusal as plain values, for a stored trace."""
        figures = {key: _plain(it) for key, it in self.figures}
        trace = {"axis": self.axis.value, "rule": self.rule.name, "figures": figures}
        return trace | {"sentence": self.reason, "until": self.until}


def _plain(figure: Figure) -> int | float | str | None:
    return float(figure) if isinstance(figure, Fraction) else figure
