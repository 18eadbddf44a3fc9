"""Deferral of tasks that cannot run; after many deferrals a task is on hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Deferral
from node.model import times
from node.model.times import to_the_second

DEFERRED = RefusalRule(
    Axis.FEASIBLE,
    "deferred",
    "{task} could not be started and is deferred until {again} (deferral {count})",
)
ON_HOLD = RefusalRule(
    Axis.FEASIBLE,
    "batch hold",
    "{task} is on hold (deferrals: {count}); to try it now: parley task release",
)


@dataclass(frozen=True, slots=True)
class DeferralRule:
    """Defer for ``pause`` µs after ``starts`` failed starts, at most ``deferrals`` times."""

    pause: int = times.HOUR
    deferrals: int = 24
    starts: int = 1


PATIENCE: Final = DeferralRule()


def after_failed_start(before: Deferral, now: int, patience: DeferralRule = PATIENCE) -> Deferral:
    """Return the task's state after one more failed start."""
    if before.failed + 1 < patience.starts:
        return replace(before, failed=before.failed + 1)
    if before.count >= patience.deferrals:
        return replace(before, failed=0, until=now, held=True)
    return Deferral(0, before.count + 1, now + patience.pause)


def find_deferral_refusal(task: str, deferral: Deferral, now: int) -> PolicyRefusal | None:
    """Return a refusal while a task is deferred or on hold."""
    if deferral.held:
        return ON_HOLD.refuse(task=task, count=deferral.count)
    if now < deferral.until:
        return DEFERRED.refuse(
            until=deferral.until,
            task=task,
            count=deferral.count,
            again=to_the_second(deferral.until),
        )
    return None


def capped_deferral(deferral: Deferral, now: int, patience: DeferralRule) -> Deferral:
    """Return the deferral, at most a pause from ``now``: the clock may have been set back since."""
    return replace(deferral, until=min(deferral.until, now + patience.pause))
