"""Estimates the impact of runs on this node as if they were booked; nothing is written."""

from __future__ import annotations

from node.core import Core
from node.model.ranks import OWN
from node.model.wire.impacts import DISPLACED_MAX, Impact, ImpactRequest
from node.sharing.host_limits import LimitKeeper
from node.store import impacts


class ImpactEstimator:
    """Computes what further runs would displace, and how full they would make this node."""

    def __init__(self, core: Core, keeper: LimitKeeper) -> None:
        """Runs that start within the start margin of the settings are never displaced.

        ``keeper`` has the limits, which rank the runs of other nodes.
        """
        self._keeper = keeper
        self._identity = core.identity
        self._database = core.database
        self._clock = core.clock
        self._start_margin = core.settings.start_margin

    async def impact(self, request: ImpactRequest, sender: str | None = None) -> Impact:
        """Return what would be displaced, and how full each of the next hours would be.

        ``sender`` is the identity of the node that asks, which learns nothing of the tasks of
        others but when they run; None is this node itself.
        """
        lead = self._identity if sender is None else sender
        displacing = [index for index in request.displacing if 0 <= index < len(request.runs)]
        async with self._database.connection() as connection:
            displaced = []
            if displacing:
                would = await impacts.runs_giving_way(
                    connection,
                    request,
                    displacing,
                    self._rank(sender),
                    self._clock.now() + self._start_margin,
                )
                left_out = request.leaving_out, lead
                displaced = [(it, of) for it, of in would if (it.task, of) != left_out]
            gone = [giving.run for giving, _ in displaced if giving.run is not None]
            hours = await impacts.hours(connection, request, gone, lead)
        return Impact(
            displaced=tuple(
                giving if sender in (None, of) else giving.anonymous()
                for giving, of in displaced[:DISPLACED_MAX]
            ),
            displaced_count=len(displaced),
            hours=tuple(hours),
        )

    def _rank(self, sender: str | None) -> int:
        """Return the highest rank that a run of the node that asks can have."""
        return OWN if sender in (None, self._identity) else self._keeper.highest_rank(sender)
