"""What runs would mean for this node if they were booked; nothing is, and nothing is written."""

from __future__ import annotations

from node.core import Core
from node.model.wire.impacts import DISPLACED_MAX, Impact, ImpactRequest
from node.store import impacts


class ImpactEstimator:
    """Looks at this node's bookings as if others were among them."""

    def __init__(self, core: Core) -> None:
        """Read this node's database; nothing is written."""
        self._database = core.database
        self._clock = core.clock
        self._start_margin = core.settings.start_margin

    async def outlook(self, request: ImpactRequest) -> Impact:
        """What would be displaced, and how full each of the next hours would be."""
        displacing = [index for index in request.displacing if 0 <= index < len(request.runs)]
        async with self._database.connection() as connection:
            displaced = []
            if displacing:
                earliest = self._clock.now() + self._start_margin
                displaced = await impacts.runs_giving_way(connection, request, displacing, earliest)
            gone = [obstacle.run for obstacle in displaced]
            hours = await impacts.hours(connection, request, gone)
        return Impact(
            displaced=tuple(displaced[:DISPLACED_MAX]),
            displaced_count=len(displaced),
            hours=tuple(hours),
        )
