"""Rivals: two processes with one key, of a node and of its copy.

Each process that serves a node draws a number at its start, and tells it with each confirmation,
every 15 seconds, in a statement that its key has signed. A node that hears two of them in turns
answers both with the last statement of the other one. The one that still asks whether it may begin,
or else the one that was started later, is the copy, and ends. A process that was replaced by
another one is not heard again, so that a restart makes no rivals.

Nobody else's word ends a node: the statement of its rival does, which nobody but its key can have
made, and not before the node's own process was there. So one that an earlier process of it has made
proves nothing. When a process was started is told by its clock as it is now, which may have been
wrong then.

Where something speaks for a copy before (``look`` in ``store/database.py``: the data were on
another host, or in an earlier state), a node asks before it begins or announces anything: where it
was, and all others, until the process that they heard last would have been heard again, and for as
long as the original may need to start if the data were on another host.

A process that is elsewhere than the node was asks there before it begins: who answers and calls
itself so is the original, which those that would hear of both may not reach. It asks there again
when it is told that others know its data in a later state: the marks are the original's.

A host to which the owner has brought the node announces a newer generation; then the other one is
told of its successor (``announcer.py``), and they are no rivals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID, uuid4

from node.model import times
from node.runtime.clock import Clock

SILENT = 20 * times.SECOND
"""A process that was not heard for so long does not live: it would have told itself before."""
STARTING = times.MINUTE
"""A node whose data were copied while it stood still may start so long after the copy does."""
ASK_AGAIN_S = 2.0
_LATE = 5 * times.SECOND
"""A message of a process that has ended may arrive so long after the first one of the next."""
_REMEMBERED = times.MINUTE


@dataclass(frozen=True)
class ServingProcess:
    """A process that serves a node: when it was started, and told so (µs).

    ``generation`` is that of the data that it announces; None while it asks whether it may.
    """

    id: UUID
    started_at: int
    at: int
    generation: UUID | None

    @property
    def claims(self) -> dict[str, Any]:
        """The claims of its statement."""
        return {
            "process": str(self.id),
            "started_at": self.started_at,
            "at": self.at,
            "generation": None if self.generation is None else str(self.generation),
        }

    @classmethod
    def of(cls, claims: Mapping[str, Any]) -> Self:
        """Return the process of a statement.

        :raises ValueError: it tells of none.
        """
        process, generation = claims.get("process"), claims.get("generation")
        started_at, at = claims.get("started_at"), claims.get("at")
        if type(started_at) is not int or type(at) is not int:
            raise ValueError("no instants")
        data = None if generation is None else UUID(str(generation))
        return cls(UUID(str(process)), started_at, at, data)

    def is_copy_beside(self, rival: ServingProcess) -> bool:
        """Return whether this process is the copy of the two, by a statement of the other one."""
        if rival.id == self.id or rival.at <= self.started_at + _LATE:
            return False
        if self.generation is None or rival.generation is None:
            asks, other_asks = self.generation is None, rival.generation is None
            return asks and (not other_asks or rival.started_at < self.started_at)
        return rival.generation == self.generation and rival.started_at < self.started_at


@dataclass(frozen=True)
class OwnProcess:
    """This process, and when it was started by the clock that nobody sets (µs)."""

    id: UUID
    began: int

    @classmethod
    def new(cls, began: int) -> Self:
        """Draw the number of this process."""
        return cls(uuid4(), began)

    def told(self, clock: Clock, generation: UUID | None) -> ServingProcess:
        """Return what this process tells of itself now."""
        now = clock.now()
        return ServingProcess(self.id, now - (clock.monotonic() - self.began), now, generation)


@dataclass(frozen=True)
class Standing:
    """The other processes of the key of one that asks.

    ``rival`` is the last statement of one that lives; ``heard`` is the time since one was heard
    (µs).
    """

    rival: str | None = None
    heard: int | None = None


@dataclass
class _Heard:
    process: ServingProcess
    statement: str
    first: int
    last: int


class ProcessesHeard:
    """The processes of each other node that have asked this one lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[str, dict[UUID, _Heard]] = {}

    def hear(self, sender: str, process: ServingProcess, statement: str) -> Standing:
        """Note a process that asks, with its statement; return how it stands with others."""
        now = self._clock.monotonic()
        known = {
            key: each
            for key, each in self._heard.get(sender, {}).items()
            if now - each.last < _REMEMBERED
        }
        self._heard[sender] = known
        asking = known.setdefault(process.id, _Heard(process, statement, now, now))
        asking.last, asking.process, asking.statement = now, process, statement
        others = [each for each in known.values() if each is not asking]
        rivals = [
            each
            for each in others
            if each.last >= asking.first + _LATE
            and process.generation in {None, each.process.generation}
        ]
        # One that announces was there before one that still asks whether it may, whenever it began.
        first = min(
            rivals,
            key=lambda each: (each.process.generation is None, each.process.started_at),
            default=None,
        )
        heard = min((now - each.last for each in others), default=None)
        return Standing(None if first is None else first.statement, heard)
