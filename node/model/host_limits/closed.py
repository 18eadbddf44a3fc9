"""Time of a host that its owner's limits close to a task. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.model import times
from node.model.errors import FieldFault
from node.model.reason import Reason
from node.model.recurrence import Recurrence, nominal_starts, recurrence_faults
from node.model.spans import Span, from_portion, to_portion


@dataclass(frozen=True)
class LimitedTime:
    """Time in which the limits admit no run of a task, and why.

    ``rule`` is None if no rule admits the task at all. ``reached`` is set if it would admit the run
    but for others that were booked before. Instants in microseconds.
    """

    starts_at: int
    ends_at: int
    rule: str | None
    why: Reason
    reached: bool = False


_SPANS_MAX = 5000
"""Maximum number of spans of one opening that are looked at: one a minute for three days."""


@dataclass(frozen=True)
class Opening:
    """Spans of this duration (µs) that begin where the expression fires in its zone."""

    cron: str
    duration: int
    timezone: str | None = None

    @property
    def recurrence(self) -> Recurrence:
        """The begins of its spans."""
        return Recurrence(times.EARLIEST, cron=self.cron, timezone=self.timezone)

    def faults(self) -> list[FieldFault]:
        """Return what is wrong with it; pointers are to ``cron`` and ``timezone``."""
        faults = recurrence_faults(self.recurrence, 0, "opening")
        return [FieldFault(it.pointer.removeprefix("/schedule"), it.detail) for it in faults]

    def spans(self, since: int, until: int) -> list[Span]:
        """Return its spans that end after ``since`` and begin before ``until``."""
        starts = nominal_starts(self.recurrence, since - self.duration, until, _SPANS_MAX)
        return [(start, start + self.duration) for start in starts]


def closed_spans(openings: Sequence[Opening], since: int, until: int) -> list[Span]:
    """Return the spans from ``since`` to ``until`` that lie in none of these openings."""
    if since >= until:
        return []
    asked = to_portion([(since, until)])
    opened = to_portion(span for each in openings for span in each.spans(since, until))
    return from_portion(asked - opened)
