"""Decides what becomes of a run whose part here was not begun, or not ended, in time. Pure.

A service can be late for any reason and by any time: an overloaded host, a virtual machine that is
moved, a suspended laptop, a restart. Whatever the launcher had done for the run until then, the
decision is made here, and :mod:`.runstate` allows each transition that it asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

from node.model import times
from node.model.runstate import RunState
from node.model.times import to_the_second

START_LATENESS_MAX = 2 * times.SECOND
"""A part that could not start by then is missed: the other participants started without it."""
LOST_RUN_TIMEOUT = 30 * times.SECOND
"""A run that is ``running`` this long after its end, and has no task here, was lost."""


@dataclass(frozen=True)
class UnmeasuredEnd:
    """The end of a part without a measurement: the state that its run enters here, and why."""

    state: RunState
    reason: str


LOST = UnmeasuredEnd(RunState.FAILED, "this node lost track of its part")
"""The end of a run that is ``running`` although nothing in this service measures it."""

INTERRUPTED = UnmeasuredEnd(RunState.FAILED, "the node was restarted during the run")
"""The end of a run that an earlier process of this node left ``running``."""


def last_missed_start(now: int) -> int:
    """Return the instant (µs) before which a part that has not started yet is missed."""
    return now - START_LATENESS_MAX


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
    late = (now - begins) / times.SECOND
    return UnmeasuredEnd(RunState.MISSED, f"could not be started in time: {late:.1f} s late")


def overslept(now: int, *, restored: bool) -> UnmeasuredEnd:
    """Return the end of a part whose start passed while this node was down.

    A node whose database was ``restored`` may have measured it as well, and forgotten that.
    """
    reason = f"the node was down at its start and came back at {to_the_second(now)}"
    if restored:
        reason += ", or measured it and forgot that when its database was restored from a backup"
    return UnmeasuredEnd(RunState.MISSED, reason)
