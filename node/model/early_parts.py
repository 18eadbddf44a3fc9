"""Decides from when on a part of a run may arrive at its lead. Pure."""

from __future__ import annotations

from node.model import times

LAUNCH_HORIZON = 20 * times.SECOND
"""Time ahead of a run's start (µs) at which nodes look at it, and may find that they cannot begin.

At that time a node also checks whether a participant has dropped a run that it leads: early enough
for the others to hear of it before they begin. This is far more than the preparation needs.
"""


def accepted_from(starts_at: int, clock_limit: int, *, begun: bool) -> int:
    """Return the instant (µs) from which a lead accepts a part of a run.

    A part that has ``begun`` cannot exist before the start, but clocks may differ by
    ``clock_limit`` (µs); that a part cannot be begun may be known when its node looks at the run.
    """
    return starts_at - clock_limit - (0 if begun else LAUNCH_HORIZON)
