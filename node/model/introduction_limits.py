"""Limits of an introduction: what tasks of other nodes may be, compared with what they measure.

The lead computes the duration of a task from its spec. A participant computes it again, so that no
node books a day for a measurement of three seconds: a hold may be as long as the introduction says.
"""

from __future__ import annotations

from collections.abc import Mapping

from node.model import times
from node.model.errors import FieldFault
from node.model.reason import Reason
from node.model.reasons import duration_not_of_spec
from node.model.recurrence import recurrence_faults
from node.model.scheduling import recurrence_of
from node.model.wire.participants import Introduction

_ALLOWANCE_MIN = 10 * times.SECOND
_ALLOWANCE_SHARE = 10
"""The durations of two versions of a tool may differ: by ten seconds, or by a tenth."""


def schedule_faults(introduction: Introduction) -> list[FieldFault]:
    """Return what is wrong with the schedule; such as a cron expression that nobody can read."""
    recurrence = recurrence_of(introduction.schedule, introduction.created_at)
    return recurrence_faults(recurrence, introduction.duration)


def duration_refusal(introduction: Introduction, durations: Mapping[str, int]) -> Reason | None:
    """Return why a task of this duration is refused; None if its spec takes about as long.

    ``durations`` has by tool how long a run takes with it, of the tools that this host knows.
    """
    if not durations:
        return None
    tool = introduction.tool or ""
    candidates = [durations[tool]] if tool in durations else list(durations.values())
    shortest, longest = min(candidates), max(candidates)
    if shortest - _allowance(shortest) <= introduction.duration <= longest + _allowance(longest):
        return None
    chosen = tool if tool in durations else None
    return duration_not_of_spec(introduction.duration, longest, chosen)


def _allowance(duration: int) -> int:
    return max(_ALLOWANCE_MIN, duration // _ALLOWANCE_SHARE)
