"""Estimates the impact of runs on this node as if they were booked; nothing is written."""

from __future__ import annotations

from node.model.host_limits.rules import rank_under
from node.model.ranks import OWN
from node.model.wire.impacts import DISPLACED_MAX, Impact, ImpactRequest
from node.sharing.host_limits import LimitKeeper
from node.store import impacts
from node.store.core import Core


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
        others but when they run; None is this node itself. Without the introduction of the task,
        its runs are taken for some of the highest rank that the sender can have.
        """
        lead = self._identity if sender is None else sender
        displacing = [index for index in request.displacing if 0 <= index < len(request.runs)]
        async with self._database.connection() as connection:
            displaced = []
            if displacing:
                rank, counted = self._counted_request(lead, request)
                would = await impacts.runs_giving_way(
                    connection,
                    counted,
                    displacing,
                    rank,
                    self._clock.now() + self._start_margin,
                )
                left_out = request.leaving_out, lead
                displaced = [(it, of) for it, of in would if (it.task, of) != left_out]
            gone = [giving.run for giving, _ in displaced if giving.run is not None]
            hours = await impacts.occupied_hours(connection, request, gone, lead)
        return Impact(
            displaced=tuple(
                giving if sender in (None, of) else giving.anonymous()
                for giving, of in displaced[:DISPLACED_MAX]
            ),
            displaced_count=len(displaced),
            hours=tuple(hours),
        )

    def _counted_request(self, lead: str, request: ImpactRequest) -> tuple[int, ImpactRequest]:
        """Return the rank that the runs would have here, and the request as it would count."""
        if lead == self._identity:
            return OWN, request
        if request.introduction is None:
            return self._keeper.highest_rank(lead), request
        rule = self._keeper.standing_if_introduced(lead, request.introduction).rule
        priority = self._keeper.counted_priority(request.priority, rule)
        counted = request.model_copy(update={"priority": priority})
        return rank_under(self._keeper.limits.rule(rule)), counted
