"""Events on this node, for the event stream and for long polls.

They come from the notifications of the database, so they include what other processes of this node
did. A short history lets a client resume after a lost connection (``Last-Event-ID``). Every reader
has only a place in this history, so that a thousand readers cost a burst of events no more than
one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

import orjson

from node.model import times
from node.runtime.clock import Clock
from node.store.database import Notice

HISTORY = 2000
"""Number of events that are kept; a reader that is further behind has lost some."""

GAP = "gap"
"""The kind of the event that tells a reader that it has missed some."""

LOOKS_AT_ONCE = 3
"""Number of long polls that look at the database at once: fewer than it has connections."""


@dataclass(frozen=True)
class Event:
    """One change; ``number`` increases, across restarts too."""

    number: int
    kind: str
    body: dict[str, str]
    """The words of the event; its first reader adds the headline of its task."""
    at: int
    """Time at which this node heard of the change."""

    @cached_property
    def text(self) -> bytes:
        """Return the event as text of the stream: ``id``, ``event``, and ``data`` lines."""
        body = orjson.dumps({**self.body, "at": times.to_the_second(self.at)}).decode()
        return f"id: {self.number}\nevent: {self.kind}\ndata: {body}\n\n".encode()


class EventHub:
    """Keeps the latest events, and wakes those who wait for the next one."""

    def __init__(self, clock: Clock) -> None:
        """Number events from the current time, so that numbers increase across restarts."""
        self._clock = clock
        self.last = clock.now() // times.MILLISECOND
        self.listeners = 0
        self.looks = asyncio.Semaphore(LOOKS_AT_ONCE)
        """Taken by those who look again whether what they wait for has come."""
        self.describing = asyncio.Lock()
        """Taken by the reader that adds the headlines of new events."""
        self._closed = asyncio.Event()
        self._history: deque[Event] = deque(maxlen=HISTORY)
        self._changed = asyncio.Event()

    def on_notice(self, notice: Notice) -> None:
        """Publish a notification as an event."""
        self._changed.set()
        self._changed = asyncio.Event()
        body = _fields_of(notice)
        if body is not None:
            self.last += 1
            self._history.append(Event(self.last, notice.kind, body, self._clock.now()))

    def start_after(self, after: int | None) -> int:
        """Return the number of the last event that a new reader does not want.

        ``after`` is the last one that it knows. Of older ones it gets those that are kept.
        """
        kept = self.last - len(self._history)
        return self.last if after is None else min(max(after, kept), self.last)

    def lost_event(self, after: int | None) -> Event | None:
        """Return the event that tells a reader that events after ``after`` are not kept any more.

        None if all are kept. It has the number of the last lost one, so that a reader is told once.
        """
        place = self.start_after(after)
        if after is None or after == place:
            return None
        return Event(place, GAP, {"after": str(after), "next": str(place + 1)}, self._clock.now())

    def events_since(self, number: int) -> list[Event] | None:
        """Return the events after this one; None if some of them are not kept any more."""
        count = self.last - number
        if count > len(self._history):
            return None
        return [self._history[-back] for back in range(count, 0, -1)]

    @contextlib.contextmanager
    def reader(self) -> Iterator[None]:
        """Count a reader while it reads."""
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1

    def close(self) -> None:
        """Let every reader end."""
        self._closed.set()
        self._changed.set()

    @property
    def is_closed(self) -> bool:
        """True if every reader is to end, because the node stops."""
        return self._closed.is_set()

    async def gather(self, duration_s: float) -> None:
        """Let more changes come, so that one look serves many of them; shorter at the end."""
        if duration_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(duration_s):
                    await self._closed.wait()

    @property
    def next_change(self) -> asyncio.Event:
        """The event that the next change sets; a new one for each change."""
        return self._changed

    async def wait_for_change(
        self, timeout_s: float, following: asyncio.Event | None = None
    ) -> bool:
        """Wait for the next change; return False if there was none within ``timeout_s``.

        ``following`` is what :attr:`next_change` was earlier: changes since then count as well.
        """
        changed = following or self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await changed.wait()
        except TimeoutError:
            return False
        return True


_MEMBERS = {
    "run": ("task", "state"),
    "interval": ("task", "number"),
    "task": ("state",),
    "exchange": ("task", "state"),
    "node": ("state",),
    "campaign": ("state",),
    "pool": ("state",),
    "misses": ("campaign", "state"),
    "reservation": ("state",),
    "archive": ("state",),
    "alert": ("task", "state"),
    "limits": ("state",),
    "limit": ("state", "begins_at", "ends_at"),
    "token": ("state",),
    "certificate": ("state",),
    "audit": ("verb", "outcome", "by"),
}
"""By kind of event, the names of the words that follow the id in its notification."""

KINDS = frozenset(_MEMBERS)
"""The kinds of events that readers may choose."""


def _fields_of(notice: Notice) -> dict[str, str] | None:
    names = _MEMBERS.get(notice.kind, ())
    if not names or len(names) != len(notice.words):
        return None
    subject = unquote(notice.id) if notice.kind == "limit" else notice.id
    return {"id": subject, **dict(zip(names, notice.words, strict=True))}
