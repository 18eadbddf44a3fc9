"""The limits of this host for the user whose task is planned, as the lead applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from lead.exchange.campaign_limits import CampaignLimits
from lead.exchange.shared_campaigns import SharedCampaigns
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.standing import LimitStanding
from node.model.wire.participants import RunRequest, ToldLimit
from node.store.database import Connection


class UserBounds(Protocol):
    """The limits of users, as the node counts by them."""

    def bind(self, standing: LimitStanding) -> bool:
        """Return whether limits bound the runs of a user's task; if not, nothing has to be read."""
        ...

    async def left_to_user(
        self, connection: Connection, standing: LimitStanding, duration: int, now: int
    ) -> tuple[Sequence[LimitedTime], tuple[ToldLimit, ...]]:
        """Return the time that is closed to runs of a user's task, and for which limits they count.

        ``duration`` is that of each run (µs).
        """
        ...

    async def refusals_of_user_runs(
        self,
        connection: Connection,
        chosen: Sequence[tuple[LimitStanding, Sequence[RunRequest]]],
    ) -> Mapping[UUID, LimitedTime]:
        """Return, by run, what refuses chosen runs of users' tasks, in their order.

        Other decisions about these users wait until the end of the transaction.
        """
        ...


@dataclass(frozen=True)
class LeadLimits:
    """The limits within which the lead plans: those of campaigns, and those of users.

    ``shared`` learns what campaigns have used at other leads.
    """

    campaigns: CampaignLimits
    users: UserBounds
    shared: SharedCampaigns
