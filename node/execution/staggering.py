"""When each run is prepared, so that many that start at one instant do not all come at once; pure.

To prepare one costs a few milliseconds of the event loop. If five hundred were due for it at the
same instant, none of them, and nobody else, would be released before the last one is ready.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from node.model import times

STAGGER_INTERVAL = 8 * times.MILLISECOND
"""What one takes to be prepared: a transaction, and the start of its program."""

Who = TypeVar("Who")


class StartStaggerer(Generic[Who]):
    """Stretches of :data:`STAGGER_INTERVAL`, each of which one has for itself."""

    def __init__(self) -> None:
        """All are free."""
        self._taken: dict[int, Who] = {}
        self._of: dict[Who, int] = {}

    def take(self, who: Who, latest: int) -> int:
        """The instant at which the last free turn begins that begins not after ``latest``."""
        turn = latest // STAGGER_INTERVAL
        while turn in self._taken:
            turn -= 1
        self._taken[turn] = who
        self._of[who] = turn
        return turn * STAGGER_INTERVAL

    def give_back(self, who: Who) -> None:
        """What it had, if anything, is free again."""
        turn = self._of.pop(who, None)
        if turn is not None:
            del self._taken[turn]
