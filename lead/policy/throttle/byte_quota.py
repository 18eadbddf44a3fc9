"""Quotas on the bytes that a campaign, and those below it, move within a period. Pure.

Bytes count in the hour in which their run starts, as in the ledger, and a period is a number of
whole hours in a row: whichever hours these are, the quota holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import BUCKET, FullHours
from node.model.byte_quotas import ByteQuota

OVER = RefusalRule(
    Axis.THROTTLE,
    "byte quota",
    "{campaign} has moved or booked {used:bytes} of {quota}, and wants {wanted:bytes} more",
    "spent",
)
TOO_MUCH = RefusalRule(
    Axis.THROTTLE,
    "byte quota",
    "{wanted:bytes} at once are more than {campaign} may ever move, {quota}; shorten the run, "
    "lower its rate, or raise the quota",
    "once",
)
UNKNOWN = RefusalRule(
    Axis.THROTTLE,
    "byte quota",
    "{campaign} may move {quota}, and nobody knows what this run moves; give its spec a rate, or "
    "say what its nodes can: parley node set mbps=1000",
    "unknown",
)


class MovedBytes:
    """The bytes of a campaign with a quota, and of those below it, by hour."""

    def __init__(self, campaign: str, quota: ByteQuota, hours: Mapping[int, int]) -> None:
        """``hours`` has the bytes by the hours in which the runs start."""
        self.campaign = campaign
        self.quota = quota
        self._hours = dict(hours)

    def copy(self) -> MovedBytes:
        """Return a counter that counts on from here by itself."""
        return MovedBytes(self.campaign, self.quota, self._hours)

    @staticmethod
    def wanted(moves: int | None, seat_time: int) -> int | None:
        """Return what a run takes of the quota: the bytes that it moves, None if unknown."""
        del seat_time
        return moves

    def add(self, start: int, amount: int) -> None:
        """Count a run."""
        hour = start - start % BUCKET
        self._hours[hour] = self._hours.get(hour, 0) + amount

    def find_refusal(self, start: int, own: int | None) -> PolicyRefusal | None:
        """Return why a run that moves ``own`` bytes must not start then, None if it may.

        The refusal holds until there is room for it.
        """
        if (never := self.find_permanent_refusal(own)) is not None or not own:
            return never
        full = next((it for it in self.full_hours(own) if it.start <= start < it.end), None)
        return None if full is None else self.refusal_in(full, own)

    def find_permanent_refusal(self, own: int | None) -> PolicyRefusal | None:
        """Return why a run that moves this number of bytes can never start, None if it can."""
        words = self.quota.words
        if own is None:
            return UNKNOWN.refuse(campaign=self.campaign, quota=words)
        if own > self.quota.most:
            return TOO_MUCH.refuse(campaign=self.campaign, wanted=own, quota=words)
        return None

    def refusal_in(self, full: FullHours, own: int) -> PolicyRefusal:
        """Return the refusal of a run in hours that are full."""
        return OVER.refuse(
            campaign=self.campaign,
            used=full.used,
            quota=self.quota.words,
            wanted=own,
            until=full.end,
        ).with_room_at(full.end)

    def full_hours(self, own: int) -> list[FullHours]:
        """Return the hours in which another run with this number of bytes would exceed the quota.

        A period that ends with an hour has what began in it. While that is too much, no run may
        start in any hour of the period.
        """
        if not own:
            return []
        left = self.quota.most - own
        full: list[FullHours] = []
        since: int | None = None
        peak = 0
        for hour, used in self._periods():
            if used > left:
                since, peak = hour if since is None else since, max(peak, used)
            elif since is not None:
                full.append(FullHours(since - self.quota.period + BUCKET, hour, peak))
                since, peak = None, 0
        return _joined_hours(full)

    def current_and_peak(self, now: int) -> tuple[int, int]:
        """Return the bytes of the period that ends with this hour, and the most of later ones."""
        hour = now - now % BUCKET
        used = peak = 0
        for since, amount in self._periods():
            if since <= hour:
                used = peak = amount
            else:
                peak = max(peak, amount)
        return used, peak

    def _periods(self) -> Iterable[tuple[int, int]]:
        """Yield the hours from which on the bytes of the period that ends with them change."""
        changes: dict[int, int] = {}
        for hour, amount in self._hours.items():
            changes[hour] = changes.get(hour, 0) + amount
            changes[hour + self.quota.period] = changes.get(hour + self.quota.period, 0) - amount
        used = 0
        for hour in sorted(changes):
            used += changes[hour]
            yield hour, used


def _joined_hours(spans: Iterable[FullHours]) -> list[FullHours]:
    """Join what overlaps or touches, so that the end of each is when there is room."""
    joined: list[FullHours] = []
    for each in spans:
        if joined and each.start <= joined[-1].end:
            last = joined.pop()
            joined.append(FullHours(last.start, each.end, max(last.used, each.used)))
        else:
            joined.append(each)
    return joined
