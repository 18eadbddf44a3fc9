"""Decides what becomes of a run whose part was not begun, or not ended, in time. Pure.

A service can be late for any reason and by any time: an overloaded host, a virtual machine that is
moved, a suspended laptop, a restart. Whatever the launcher had done for the run until then, the
decision is made here, and :mod:`.runstate` allows each transition that it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from node.model import times
from node.model.reason import Reason
from node.model.reasons import (
    down_at_start,
    not_begun_before,
    not_begun_yet,
    not_measured_or_forgotten,
    restarted_meanwhile,
    started_too_late,
    track_lost,
)
from node.model.runstate import RunState

LAUNCH_HORIZON = 20 * times.SECOND
"""Time ahead of a run's start at which its participants begin to prepare it.

At that time the lead also checks whether a participant has dropped the run: early enough for the
others to hear of it before they begin.
"""
START_LATENESS_MAX = 2 * times.SECOND
"""A part that could not start by then is missed: the other participants started without it."""
LOST_RUN_TIMEOUT = 30 * times.SECOND
"""A run that is ``running`` this long after its end, and has no task here, was lost."""


@dataclass(frozen=True)
class UnmeasuredEnd:
    """The end of a part without a measurement: the state that its run enters here, and why."""

    state: RunState
    reason: Reason


LOST = UnmeasuredEnd(RunState.FAILED, track_lost())
"""The end of a run that is ``running`` although nothing in this service measures it."""

INTERRUPTED = UnmeasuredEnd(RunState.FAILED, restarted_meanwhile())
"""The end of a run that an earlier process of this node left ``running``."""


def last_missed_start(now: int) -> int:
    """Return the instant (µs) before which a part that has not started yet is missed."""
    return now - START_LATENESS_MAX


def latest_start(begins: int) -> int:
    """Return the last instant (µs) at which a part that should begin at ``begins`` may begin."""
    return begins + START_LATENESS_MAX


def last_lost_end(now: int) -> int:
    """Return the instant (µs) before which a run had to end, to be lost if nobody measures it."""
    return now - LOST_RUN_TIMEOUT


def late_start(begins: int, now: int) -> UnmeasuredEnd | None:
    """Return the end of a part that should have begun at ``begins`` (µs); None if it may begin now.

    It holds before the run is ``running``, and as well afterwards, when its program is prepared
    and only waits to be released.
    """
    if begins >= last_missed_start(now):
        return None
    return UnmeasuredEnd(RunState.MISSED, started_too_late(now - begins))


def premature_reason(
    starts_at: int, now: int, clock_limit: int, *, measured: bool
) -> Reason | None:
    """Return why no part of a run can come yet; None if it can.

    A run is not measured before its start. A reason why it will not be can come as soon as others
    prepare it. Clocks may differ by ``clock_limit`` (all in µs).
    """
    preparation = 0 if measured else LAUNCH_HORIZON
    if now >= starts_at - preparation - clock_limit:
        return None
    return not_begun_yet(starts_at, now)


def overslept_end(now: int) -> UnmeasuredEnd:
    """Return the end of a part whose start passed while this node was down."""
    return UnmeasuredEnd(RunState.MISSED, down_at_start(now))


def passed_over_end(noticed_at: int) -> UnmeasuredEnd:
    """Return the end of a part that was due before the data under a running process went back."""
    return UnmeasuredEnd(RunState.MISSED, not_begun_before(noticed_at))


def end_in_doubt(end: UnmeasuredEnd, *, others_tell: bool) -> UnmeasuredEnd:
    """Return this end for a node that may have measured the part as well, and forgotten that.

    ``others_tell`` says that the node leads the run and others have parts of it. Then the run is
    not missed: those parts, which the others send again, decide what became of it.
    """
    state = RunState.FAILED if others_tell else end.state
    return replace(end, state=state, reason=not_measured_or_forgotten(end.reason))
