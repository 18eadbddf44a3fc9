"""The rate of events that each of several callers must keep."""

from __future__ import annotations

from node.model.times import SECOND


class RateLimit:
    """A number of events per second of each caller; more at once, if fewer came before."""

    def __init__(self, per_s: int, burst: int) -> None:
        """Allow ``per_s`` events per second on average, and ``burst`` of them at one instant."""
        self._interval = SECOND // per_s
        self._slack = (burst - 1) * self._interval
        self._due: dict[str, int] = {}

    def wait(self, caller: str, now: int) -> int:
        """Count an event and return 0; or return how long the caller must wait, and count nothing.

        ``now`` is monotonic time; both are in microseconds.
        """
        due = max(now, self._due.get(caller, now))
        if due - now > self._slack:
            return due - now - self._slack
        self._due[caller] = due + self._interval
        return 0
