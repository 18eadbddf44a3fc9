"""Time of a host that its owner's limits close to a task. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from node.model.reason import Reason


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
