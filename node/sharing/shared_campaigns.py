"""Tells other leads what the campaigns that they share have used here.

A campaign counts as one with those of the same name at other leads if each names the others
(``leads``). The hours that it was charged here are told to these alone. Asking is the part of the
lead (``lead/exchange/shared_campaigns.py``).
"""

from __future__ import annotations

from node.model import times
from node.model.wire.shared_campaigns import (
    HOURS_MAX,
    CampaignUse,
    CampaignUseRequest,
)
from node.store import campaigns
from node.store.database import Database


async def tell_use(database: Database, sender: str, request: CampaignUseRequest) -> CampaignUse:
    """Return what the campaigns that are shared with a lead were charged here.

    Of more hours than a message has room for, the first ones, whole.
    """
    names = list(request.campaigns)
    async with database.connection() as connection:
        shared = await campaigns.shared_with(connection, names, sender)
        rows = await campaigns.hours_for(connection, shared, sender, request.since, HOURS_MAX + 1)
    until = None
    if len(rows) > HOURS_MAX:
        until = max(rows[-1].hour, rows[0].hour + times.HOUR)
        rows = [row for row in rows[:HOURS_MAX] if row.hour < until]
    return CampaignUse(campaigns=tuple(shared), hours=tuple(rows), until=until)
