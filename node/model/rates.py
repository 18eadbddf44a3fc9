"""The rate of events that each of several callers must keep."""

from __future__ import annotations

CALLERS_MAX = 10_000
"""Maximum number of callers that are remembered: whoever has many addresses takes no memory."""


class RateLimit:
    """One event per interval of each caller; more at once, if fewer came before."""

    def __init__(self, interval: int, burst: int) -> None:
        """Allow one event per ``interval`` (µs) on average, and ``burst`` of them at once."""
        self._interval = interval
        self._slack = (burst - 1) * self._interval
        self._due: dict[str, int] = {}

    def wait(self, caller: str, now: int, count: int = 1) -> int:
        """Count an event and return 0; or return how long the caller must wait, and count nothing.

        ``now`` is monotonic time; both are in microseconds. What counts as several events
        (``count``) is in order where one would be: the caller waits the longer afterwards.
        """
        if caller not in self._due and len(self._due) >= CALLERS_MAX:
            self._forget(now)
        due = max(now, self._due.get(caller, now))
        if due - now > self._slack:
            return due - now - self._slack
        self._due[caller] = due + count * self._interval
        return 0

    def _forget(self, now: int) -> None:
        """Forget callers that may have everything again; of too many others the longest known."""
        self._due = {caller: due for caller, due in self._due.items() if due > now}
        while len(self._due) > CALLERS_MAX * 3 // 4:
            del self._due[next(iter(self._due))]

    def used(self, caller: str, now: int) -> tuple[int, int, int]:
        """Return how much a caller has used, how much it may have, and what each event takes (µs).

        An event is in order if no more is used before it than there may be.
        """
        return max(0, self._due.get(caller, now) - now), self._slack, self._interval

    def left(self, caller: str, now: int) -> int:
        """Return how many events the caller may have at once now."""
        used = max(0, self._due.get(caller, now) - now)
        return max(0, (self._slack - used) // self._interval + 1)
