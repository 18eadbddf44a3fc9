"""Learns what campaigns that several leads share have used at the others.

A campaign that names other leads counts as one with theirs of the same name. What each has charged
for its runs is kept beside what was charged here, hour by hour (``charge_hour``), so that budgets,
quotas and shares count it without knowing whose it is. The others are asked before each plan, and
at intervals:

- the hours in progress and to come, which is where almost all changes happen;
- once an hour all that may count, so that nothing has to be remembered of what was told before.

Of a lead that does not answer, what it told last counts, and only the intervals ask it again. Two
leads that decide within one exchange of messages do not see each other's runs: by these a budget
may be exceeded. Limits on what is under way at once are each lead's own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from node.model import times
from node.model.errors import ParleyError
from node.model.wire.shared_campaigns import CampaignUse, CampaignUseRequest
from node.runtime.clock import Clock
from node.store import campaigns
from node.store.campaigns import SharedCampaign
from node.store.database import Connection, Database

_FRESH = times.SECOND
"""Nothing that was told so lately is asked for again."""
_NEAR = 2 * times.HOUR
"""The part of the past that is asked for each time: runs of these hours may still be corrected."""
_WHOLE_EVERY = times.HOUR
_LOOKBACK = 63 * times.DAY
"""The part of the past that counts without a budget: in periods of quotas, and in shares."""
_NOT_SHARED = "has no campaign of this name that names this lead: parley campaign edit NAME --lead"
_MESSAGES_MAX = 3
"""Maximum number of messages in which a lead tells what it has: 60,000 hours of nodes."""


class UseSource(Protocol):
    """A lead that tells what campaigns have used there."""

    async def campaign_use(self, request: CampaignUseRequest) -> CampaignUse:
        """Ask for what campaigns have used there."""
        ...


class SharedCampaigns:
    """The use of shared campaigns by the other leads."""

    def __init__(
        self, database: Database, clock: Clock, source_of: Callable[[str], UseSource]
    ) -> None:
        """Know nothing before the first question; ``source_of(identity)`` returns a lead."""
        self._database = database
        self._clock = clock
        self._source_of = source_of
        self._learnt_at: int | None = None
        self._lock = asyncio.Lock()

    async def learn(self) -> None:
        """Ask the leads that answered last, unless they were asked a moment ago."""
        async with self._lock:
            last = self._learnt_at
            if last is not None and self._clock.monotonic() < last + _FRESH:
                return
            try:
                await self._ask(it for it in await self._shared() if it.reason is None)
            finally:
                self._learnt_at = self._clock.monotonic()

    async def learn_from_all(self) -> None:
        """Ask all leads."""
        await self._ask(await self._shared())

    async def _shared(self) -> list[SharedCampaign]:
        async with self._database.connection() as connection:
            return await campaigns.shared(connection)

    async def _ask(self, shared: Iterable[SharedCampaign]) -> None:
        by_lead: dict[str, list[SharedCampaign]] = defaultdict(list)
        for each in shared:
            by_lead[each.lead].append(each)
        await asyncio.gather(*(self._ask_lead(*each) for each in by_lead.items()))

    async def _ask_lead(self, lead: str, shared: Sequence[SharedCampaign]) -> None:
        """Ask one lead for its use of these campaigns, and keep it, or why it tells nothing."""
        names, now = [each.name for each in shared], self._clock.now()
        is_whole = any(it.whole_at is None or now - it.whole_at > _WHOLE_EVERY for it in shared)
        since = _first_hour(shared, now, is_whole=is_whole)
        told: Sequence[str] = ()
        reason = _NOT_SHARED
        try:
            told = await self._ask_from(lead, names, since)
        except ParleyError as error:
            reason = error.detail

        async def note(connection: Connection) -> None:
            await campaigns.note_told(connection, lead, told, now, is_whole)
            others = [name for name in names if name not in told]
            await campaigns.note_untold(connection, lead, others, reason)

        await self._database.settle(note)

    async def _ask_from(self, lead: str, names: Sequence[str], since: int) -> Sequence[str]:
        """Ask for all hours from one on, keep them, and return the campaigns that are shared."""
        source = self._source_of(lead)
        told: tuple[str, ...] = ()
        for _ in range(_MESSAGES_MAX):
            use = await source.campaign_use(CampaignUseRequest(campaigns=tuple(names), since=since))
            told = tuple(name for name in use.campaigns if name in names)
            await self._database.settle(partial(_keep, lead, told, since, use))
            if use.until is None or use.until <= since:
                break
            since = use.until
        return told


async def _keep(
    lead: str, told: Sequence[str], since: int, use: CampaignUse, connection: Connection
) -> None:
    hours = {each[:3]: each for each in use.hours if each.hour >= since}
    less = await campaigns.keep_hours(
        connection, lead, told, since, use.until, list(hours.values())
    )
    for name in less:
        await campaigns.notify_of_room(connection, name)


def _first_hour(shared: Sequence[SharedCampaign], now: int, *, is_whole: bool) -> int:
    """Return the first hour that a lead is asked for."""
    if not is_whole:
        first = now - _NEAR
    else:
        budgets = [it.budget_since for it in shared if it.budget_since is not None]
        first = min(now - _LOOKBACK, *budgets, now)
    return first - first % times.HOUR
