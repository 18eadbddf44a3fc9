"""The shares that the owner of this host gives leads, and what each of them had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from node.model import times
from node.model.lead_shares import OTHERS, LeadShares
from node.model.wire.shares import LeadShare
from node.peers.directory import Directory
from node.store import shares
from node.store.core import Core

_SHOWN = times.DAY


class LeadSharing:
    """Shows the shares of leads in this node's time."""

    def __init__(self, core: Core, directory: Directory) -> None:
        """``directory`` has the leads by name."""
        self._database = core.database
        self._clock = core.clock
        self._directory = directory
        self._settings = core.settings

    async def all(self) -> list[LeadShare]:
        """Return every lead that has a share or runs here, the greatest share first."""
        await self._directory.refresh()
        now = self._clock.now()
        hour = now // times.HOUR * times.HOUR
        async with self._database.connection() as connection:
            given = await shares.shares(connection)
            had = self._seat_time_by_lead(
                given, await shares.hours_of_use(connection, hour - _SHOWN, now)
            )
            booked = self._seat_time_by_lead(
                given, await shares.hours_of_use(connection, now, now + self._settings.horizon)
            )
        accounts = {*given.by_lead, *had, *booked}
        if given:
            accounts.add(OTHERS)
        listed = [self._share_for_people(given, account, had, booked) for account in accounts]
        return sorted(listed, key=lambda each: (-(each.share or 0), each.lead == OTHERS, each.lead))

    def _seat_time_by_lead(self, given: LeadShares, hours: list[shares.HourOfUse]) -> Counter[str]:
        """Return the seat-time by lead; while shares are set, leads without one are one."""
        weights, lanes = self._settings.seat_weights, self._settings.lanes
        by_account: Counter[str] = Counter()
        for lead, scheduling_class, _, lasts in hours:
            account = given.account(lead) if given else lead
            by_account[account] += lasts * weights.on(scheduling_class, lanes) // 1000
        return by_account

    def _share_for_people(
        self,
        given: LeadShares,
        account: str,
        had: Mapping[str, int],
        booked: Mapping[str, int],
    ) -> LeadShare:
        known = next((it for it in self._directory.all if it.identity == account), None)
        identity = None if account == OTHERS else account
        total = sum(given.by_lead.values()) + given.others
        share = given.of(account) if given else None
        return LeadShare(
            lead=known.name if known is not None else account,
            identity=identity,
            share=share,
            percent=None if share is None else round(100 * share / total, 1),
            had=had.get(account, 0),
            had_percent=round(100 * had.get(account, 0) / (sum(had.values()) or 1), 1),
            booked=booked.get(account, 0),
        )
