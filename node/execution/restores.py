"""Notices that this node's database was restored, at the start of a process or while it runs."""

from __future__ import annotations

from node.model import times
from node.model.ids import Generation
from node.runtime.clock import Clock
from node.store.database import Database

PARTS_SENT_AGAIN_WITHIN = 6 * times.MINUTE
"""Time (µs) after a restore was noticed in which a lead waits for parts of runs that were over.

Their participants are asked for them when both compare: at once, and every three minutes for those
that ended less than two minutes before. Until then nothing is given up, nor what follows it.
"""


class RestoreWatcher:
    """Knows since when the data may have forgotten what was done here."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Watch this database, which notices by itself when its data went back."""
        self._database = database
        self._clock = clock
        self._generation: Generation | None = None
        self._noticed_at = 0

    @property
    def noticed_at(self) -> int | None:
        """The instant (µs) at which a restore was noticed here, for a while after it; else None."""
        if not self._database.was_restored:
            return None
        if self._generation != self._database.generation:
            self._generation, self._noticed_at = self._database.generation, self._clock.now()
        return self._noticed_at

    async def look(self) -> int | None:
        """Look whether the data went back just now; return when that was noticed, as above.

        :raises DatabaseUnavailable: the server does not answer.
        """
        await self._database.check_mark()
        return self.noticed_at
