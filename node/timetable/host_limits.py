"""Applies the owner's limits where this node's time is offered.

What a hold needs of a task comes with it from the database. A proposal names the task only, so how
it stands is looked up, and kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.core import Core
from node.model.host_limits.closed import LimitedTime
from node.model.wire.participants import ProposalRequest
from node.sharing.host_limits import LimitKeeper
from node.store.database import Connection
from node.store.host_limits import LimitStanding

LimitedRequest = tuple[str, ProposalRequest, Sequence[LimitedTime]]
"""A lead, its request with the priority as which it counts here, and what limits close to it."""


class LimitEnforcer:
    """Knows what the limits of this host leave to a request for time."""

    def __init__(self, core: Core, keeper: LimitKeeper) -> None:
        """``keeper`` has the limits, and how tasks stand with them."""
        self._identity = core.identity
        self._horizon = core.settings.horizon
        self._keeper = keeper

    async def limited(
        self, connection: Connection, requests: Sequence[tuple[str, ProposalRequest]], now: int
    ) -> list[LimitedRequest]:
        """Return for each lead's request how it counts here, and the time that is closed to it."""
        foreign = {request.task for lead, request in requests if lead != self._identity}
        standings = await self._keeper.standings(connection, sorted(foreign)) if foreign else {}
        return [
            (lead, request, ())
            if lead == self._identity
            else self._limited(lead, request, standings.get(request.task, LimitStanding()), now)
            for lead, request in requests
        ]

    def _limited(
        self, lead: str, request: ProposalRequest, standing: LimitStanding, now: int
    ) -> LimitedRequest:
        counted = self._keeper.counted_priority(request.priority, standing.rule)
        if counted != request.priority:
            request = request.model_copy(update={"priority": counted})
        if standing.refusal is None:
            return lead, request, ()
        end = now + self._horizon
        return lead, request, [LimitedTime(now, end, standing.rule, standing.refusal)]
