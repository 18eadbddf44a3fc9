"""The free time that this node reports to leads, which then need not ask while it is full."""

from __future__ import annotations

from node.model import times
from node.model.classes import SchedulingClass
from node.model.shortfall import Shortfall, shortfall
from node.model.timeline import Occupation
from node.store import bookings
from node.store.core import Core

_LIFE = 10 * times.SECOND


class FreeTimeReader:
    """Computes from the run table how much of the horizon is free, and until when it is not."""

    def __init__(self, core: Core) -> None:
        """Begin with an empty cache: the first :meth:`read` asks the database."""
        self._database = core.database
        self._clock = core.clock
        self._horizon = core.settings.horizon
        self._read_at: int | None = None
        self._shortfall = Shortfall(0, 0)

    async def read(self) -> Shortfall:
        """Return how much of the horizon is free for exclusive runs; cached for ten seconds."""
        elapsed = self._clock.monotonic()
        if self._read_at is None or elapsed - self._read_at >= _LIFE:
            now = self._clock.now()
            until = now + self._horizon
            async with self._database.connection() as connection:
                occupied = await bookings.occupied_spans(connection, [(now, until)], now)
            busy = Occupation(occupied).blocking_spans(SchedulingClass.EXCLUSIVE, None)
            self._shortfall = shortfall(busy, now, until)
            self._read_at = elapsed
        return self._shortfall
