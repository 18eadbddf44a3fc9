"""Staggering of preparations, so that runs with the same start are not prepared at once. Pure.

Preparing a run takes a few milliseconds of the event loop. If five hundred were prepared at the
same instant, nothing else would happen, not even a release, before the last one is ready.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from node.model import times

STAGGER_INTERVAL = 8 * times.MILLISECOND
"""The time to prepare a run: a transaction, and the start of its program."""
NEAR_TURNS = 40
"""Number of turns before the latest one that are all used; of earlier ones every second is.

A few runs are better prepared late. Hundreds would leave nothing of a small host's processors for
anything else, fall behind, and miss their start, if they were prepared as fast as possible.
"""

Key = TypeVar("Key")


class StartStaggerer(Generic[Key]):
    """Gives out turns of :data:`STAGGER_INTERVAL`, each to one owner."""

    def __init__(self) -> None:
        """Start with all turns free."""
        self._owners: dict[int, Key] = {}
        self._turns: dict[Key, int] = {}

    def take(self, owner: Key, latest: int) -> int:
        """Take the last free turn that begins at ``latest`` or earlier; return its start."""
        turn = last = latest // STAGGER_INTERVAL
        while turn in self._owners:
            turn -= 1 if last - turn < NEAR_TURNS else 2
        self._owners[turn] = owner
        self._turns[owner] = turn
        return turn * STAGGER_INTERVAL

    def give_back(self, owner: Key) -> None:
        """Free the turn of an owner, if it has one."""
        turn = self._turns.pop(owner, None)
        if turn is not None:
            del self._owners[turn]
