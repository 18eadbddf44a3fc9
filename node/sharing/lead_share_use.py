"""Keeps the shares of leads where this node's time is offered and booked.

While the owner has set no shares, this costs nothing but a look into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model import times
from node.model.classes import SchedulingClass
from node.model.lead_shares import (
    CLAIM_LIFE,
    HISTORY_HOURS,
    KeptTime,
    LeadShares,
    LeadUse,
    ShareJudge,
)
from node.model.seat_weights import SEAT
from node.model.spans import Span
from node.model.wire.participants import HostShare, ProposalRequest, RunRequest
from node.store import shares
from node.store.bookings import Wanted
from node.store.core import Core
from node.store.database import Connection, Notice

_NOTED_AGAIN = times.MINUTE
"""A lead that asks for the same hour again within this time is not written down again."""
_HISTORY_LIFE = 5 * times.MINUTE
"""Time after which the use of past days is read again."""


@dataclass(frozen=True)
class _History:
    """The use of all leads before a day, as read at an instant."""

    day: int
    read_at: int
    used: list[shares.HourOfUse]

    def is_good(self, day: int, now: int) -> bool:
        return self.day == day and self.read_at <= now < self.read_at + _HISTORY_LIFE


class ShareEnforcer:
    """Knows the shares that the owner has set, and what is kept from whom."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._horizon = core.settings.horizon
        self._start_margin = core.settings.start_margin
        self._lanes = core.settings.lanes
        self._weights = core.settings.seat_weights
        self._listening = False
        self._shares: LeadShares | None = None
        self._history: _History | None = None
        self._changes = 0
        self._noted: dict[tuple[str, int], int] = {}
        self._purged_at = times.EARLIEST

    def on_notice(self, notice: Notice) -> None:
        """Forget the cached shares once they have changed, or a change may have been missed."""
        if notice.kind in {"shares", "wake", "disconnected"}:
            self._listening = notice.kind != "disconnected"
            self._shares = None
            self._changes += 1

    async def note(self, lead: str, request: ProposalRequest) -> None:
        """Record for which hours a lead asks, if shares are set."""
        if request.keeps_only or not self._takes_seats(request.scheduling_class):
            return
        if self._is_unrestricted():
            return
        now = self._clock.now()
        hours = _hours_of(request.windows, now, now + self._horizon)
        new = [hour for hour in hours if not self._is_noted(lead, hour, now)]
        if not new:
            return
        async with self._database.connection() as connection:
            if not await self._read_shares(connection):
                return
            self._noted |= {(lead, hour): now for hour in new}
            await shares.note(connection, lead, new, now)
            if not now - CLAIM_LIFE < self._purged_at <= now:
                self._purged_at = now
                self._noted = {it: at for it, at in self._noted.items() if at > now - CLAIM_LIFE}
                await shares.purge(connection, now - CLAIM_LIFE)

    def _is_noted(self, lead: str, hour: int, now: int) -> bool:
        return now - _NOTED_AGAIN < self._noted.get((lead, hour), times.EARLIEST) <= now

    def _is_unrestricted(self) -> bool:
        return self._listening and self._shares is not None and not self._shares

    async def time_kept_from(
        self, connection: Connection, requests: Sequence[tuple[str, ProposalRequest]], now: int
    ) -> list[tuple[list[KeptTime], HostShare | None]]:
        """Return for each lead's request the time that is kept for other leads, and its share.

        The share is None where none restricts it, or it did not ask.
        """
        if self._is_unrestricted() or not (given := await self._read_shares(connection)):
            return [([], None) for _ in requests]
        judge, _ = await self._judge_and_use(connection, given, now)
        return [
            self._kept_from(
                judge
                if request.leaving_out is None
                else await self._judge_without(connection, given, lead, request.leaving_out, now),
                given,
                lead,
                request,
                now,
            )
            if self._takes_seats(request.scheduling_class) and not request.keeps_only
            else ([], None)
            for lead, request in requests
        ]

    async def _judge_without(
        self, connection: Connection, given: LeadShares, lead: str, task: UUID, now: int
    ) -> ShareJudge:
        """Return a judge to whom the runs to come of a task of this lead count for nothing."""
        judge, use = await self._judge_and_use(connection, given, now)
        runs = await shares.runs_to_come(connection, lead, task, now + self._start_margin)
        for scheduling_class, hour, lasts in runs:
            use.add(lead, hour, -self._seat_time(scheduling_class, lasts))
        return judge

    def _kept_from(
        self, judge: ShareJudge, given: LeadShares, lead: str, request: ProposalRequest, now: int
    ) -> tuple[list[KeptTime], HostShare | None]:
        amount = self._seat_time(request.scheduling_class, request.duration)
        first, end = _hour_range(request.windows, now, now + self._horizon)
        share = None
        if request.quotas:
            account = given.account(lead)
            share = HostShare.of(account, amount, judge.accounts(lead, first, end))
        return judge.kept(lead, amount, first, end), share

    async def admit(
        self, connection: Connection, wanted: Wanted, now: int
    ) -> tuple[Wanted, dict[UUID, KeptTime]]:
        """Leave out the runs that would begin in time kept for others; return these by run.

        Others that book at the same time wait for the end of the transaction.
        """
        if self._is_unrestricted():
            return wanted, {}
        # A statement that waited for the owner's change of all rows finds none of the new ones.
        given = await shares.lock(connection) or await shares.lock(connection)
        if not given:
            return wanted, {}
        judge, use = await self._judge_and_use(connection, given, now)
        kept: dict[UUID, KeptTime] = {}
        for hold, task, runs in wanted:
            if not self._takes_seats(task.occupying):
                continue
            for run in sorted(runs, key=_start_of):
                amount = self._seat_time(task.scheduling_class, run.ends_at - run.starts_at)
                refusal = judge.admits(hold.lead, amount, run.starts_at)
                if refusal is not None:
                    kept[run.run] = refusal
                else:
                    use.add(hold.lead, run.starts_at // times.HOUR, amount)
        return [
            (hold, task, [run for run in runs if run.run not in kept])
            for hold, task, runs in wanted
        ], kept

    async def _read_shares(self, connection: Connection) -> LeadShares:
        if self._listening and self._shares is not None:
            return self._shares
        changes = self._changes
        read = await shares.shares(connection)
        if changes == self._changes:
            self._shares = read
        return read

    async def _judge_and_use(
        self, connection: Connection, given: LeadShares, now: int
    ) -> tuple[ShareJudge, LeadUse]:
        """Return a judge of shares, and the use (to be added to) by which it decides."""
        use = await self._use(connection, given, now)
        claims = await shares.asked_hours(connection, now - CLAIM_LIFE)
        return ShareJudge(given, use, claims, now), use

    async def _use(self, connection: Connection, given: LeadShares, now: int) -> LeadUse:
        """Return the seat-time that leads have used and booked; that of past days is cached."""
        day = now // times.DAY * times.DAY
        if self._history is None or not self._history.is_good(day, now):
            since = day - HISTORY_HOURS * times.HOUR
            self._history = _History(day, now, await shares.hours_of_use(connection, since, day))
        recent = await shares.hours_of_use(connection, day, now + self._horizon)
        return LeadUse(
            given,
            (
                (lead, hour, self._seat_time(scheduling_class, lasts))
                for lead, scheduling_class, hour, lasts in (*self._history.used, *recent)
            ),
        )

    def _takes_seats(self, scheduling_class: SchedulingClass) -> bool:
        """Return whether runs of this class take time that is shared."""
        return self._weights.on(scheduling_class, self._lanes) > 0

    def _seat_time(self, scheduling_class: SchedulingClass, duration: int) -> float:
        """Return the seat-time (seats times µs) of a run of this class and duration (µs)."""
        return duration * self._weights.on(scheduling_class, self._lanes) / SEAT


def _hour_range(windows: Sequence[Span], now: int, latest: int) -> tuple[int, int]:
    """Return the first hour that these windows touch, and the one after the last."""
    start = max(now, min(start for start, _ in windows))
    end = min(latest, max(end for _, end in windows))
    return start // times.HOUR, -(-end // times.HOUR)


def _hours_of(windows: Sequence[Span], now: int, latest: int) -> list[int]:
    return sorted(
        {
            hour
            for start, end in windows
            for hour in range(max(start, now) // times.HOUR, -(-min(end, latest) // times.HOUR))
        }
    )


def _start_of(run: RunRequest) -> int:
    return run.starts_at
