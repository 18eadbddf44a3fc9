"""Events on this node, for the event stream and for long polls.

They come from the notifications of the database, so they include what other processes of this node
did. A short history lets a client resume after a lost connection (``Last-Event-ID``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from node.clock import Clock
from node.model import times
from node.store.database import Notice

_HISTORY = 2000
_QUEUE_MAX = 500


@dataclass(frozen=True)
class Event:
    """One change; ``number`` increases, across restarts too."""

    number: int
    kind: str
    body: dict[str, str]


class EventHub:
    """Passes events to its subscribers."""

    def __init__(self, clock: Clock) -> None:
        """Number events from the current time, so that numbers increase across restarts."""
        self._last = clock.now() // times.MILLISECOND
        self._history: deque[Event] = deque(maxlen=_HISTORY)
        self._queues: set[asyncio.Queue[Event | None]] = set()
        self._changed = asyncio.Event()

    def heard(self, notice: Notice) -> None:
        """Publish a notification as an event."""
        self._changed.set()
        self._changed = asyncio.Event()
        body = _body(notice)
        if body is None:
            return
        self._last += 1
        event = Event(self._last, notice.kind, body)
        self._history.append(event)
        for queue in list(self._queues):
            if queue.full():
                # The reader is too slow: end its stream. It resumes with its Last-Event-ID.
                self._queues.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    @property
    def listeners(self) -> int:
        """Number of open streams."""
        return len(self._queues)

    def subscribe(self, after: int | None) -> asyncio.Queue[Event | None]:
        """Return a queue of future events, after the stored ones since ``after``; None ends it."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(_QUEUE_MAX)
        if after is not None:
            for event in [e for e in self._history if e.number > after][-_QUEUE_MAX + 1 :]:
                queue.put_nowait(event)
        self._queues.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Event | None]) -> None:
        """Close a queue from :meth:`subscribe`."""
        self._queues.discard(queue)

    def close(self) -> None:
        """End every stream."""
        for queue in self._queues:
            if not queue.full():
                queue.put_nowait(None)
        self._queues.clear()
        self._changed.set()

    async def change(self, timeout_s: float) -> None:
        """Wait for the next change, or for the timeout."""
        changed = self._changed
        try:
            await asyncio.wait_for(changed.wait(), timeout_s)
        except TimeoutError:
            return


def _body(notice: Notice) -> dict[str, str] | None:
    match notice.kind, notice.words:
        case "run", (task, state):
            return {"id": notice.id, "task": task, "state": state}
        case "interval", (task, number):
            return {"id": notice.id, "task": task, "number": number}
        case "task", (state,):
            return {"id": notice.id, "state": state}
        case "exchange", (task, state):
            return {"id": notice.id, "task": task, "state": state}
        case (("node" | "campaign" | "pool" | "reservation" | "archive"), (state,)):
            return {"id": notice.id, "state": state}
        case _:
            return None
