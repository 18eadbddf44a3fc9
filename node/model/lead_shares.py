"""The shares of leads in this node's time: whose time is kept for whom. Pure.

The owner of a host gives leads shares. What they used and have booked is counted as seat-time, hour
by hour; all leads without a share of their own count as one, ``others``.

Of each hour, a lead may book its **part**: its share among those of the leads that want time in
that hour, corrected by recent use (half-life a day), and rounded to whole runs. More than its part
is refused while it would be taken from a lead below its part that asked for time in that hour, or
in the two before it, within the last two hours. So

* what nobody below its part asked for is free for all, and time that begins within minutes is free
  in any case: no time stays unused while a lead wants it (work-conserving). Of leads that want time
  for equal runs in one hour, one at least may book;
* a lead below its part is never refused because of shares, and one that has nothing of a period may
  always begin one run unless it had more than its share lately: no lead starves;
* a lead has at most half a run more than its part while another one lacks time.

Where a run is long compared with a lead's part of one hour, several hours count together for that
lead (a period). Instants and durations in µs; hours are numbered from the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from node.model import times

OTHERS: Final = "others"
"""The account of all leads without a share of their own; no identity of a node has this form."""

HALF_LIFE_HOURS: Final = 24
HISTORY_HOURS: Final = 72
"""Earlier use counts less than an eighth, and is left out."""

CLAIM_LIFE: Final = 2 * times.HOUR
"""A lead that asked for time wants it for so long, unless it asks again."""

_CLAIMED_HOURS: Final = 3
"""A lead that asked for time in an hour wants some in the following ones, which it asks for later.

Otherwise one that asks seldom would find each new hour full.
"""

RELEASE: Final = 10 * times.MINUTE
"""Time that begins so soon is kept for nobody; leads ask again every five minutes at least."""

_PERIODS: Final = (1, 2, 3, 4, 6, 8, 12, 24)
"""Lengths of periods in hours; they divide a day."""
_RUNS_PER_PART: Final = 4
"""Minimum number of runs in a lead's part of a period, so that rounding to whole runs is fair."""
_GAIN: Final = 4.0
_LITTLE: Final = float(times.HOUR)
"""Recent use (µs of seat-time) so small that it says little about who had too much."""
_CORRECTION_MAX: Final = 2.0
"""Recent use changes a lead's part to half or double of its share at most."""


@dataclass(frozen=True)
class LeadShares:
    """The shares that the owner has set, by identity of the lead; ``others`` is that of the rest.

    Without any lead nothing is restricted.
    """

    by_lead: Mapping[str, int] = field(default_factory=dict)
    others: int = 1

    def __bool__(self) -> bool:
        """Return whether shares are set."""
        return bool(self.by_lead)

    def account(self, lead: str) -> str:
        """Return under which name a lead's use is counted."""
        return lead if lead in self.by_lead else OTHERS

    def of(self, account: str) -> int:
        """Return the share of an account."""
        return self.others if account == OTHERS else self.by_lead[account]


class LeadUse:
    """The seat-time (µs) of the runs that begin in each hour, by account."""

    def __init__(self, shares: LeadShares, used: Iterable[tuple[str, int, float]] = ()) -> None:
        """``used`` has leads, hours, and the seat-time of their runs that begin then."""
        self._shares = shares
        self._recent: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self._hours: defaultdict[str, defaultdict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        for lead, hour, amount in used:
            self.add(lead, hour, amount)

    def add(self, lead: str, hour: int, amount: float) -> None:
        """Count another run of a lead."""
        account = self._shares.account(lead)
        self._hours[account][hour] += amount
        known = self._recent[account]
        self._recent[account] = {each: known[each] for each in known if each <= hour}

    def by_hour(self, account: str) -> Mapping[int, float]:
        """Return the seat-time of an account by the hours in which runs begin."""
        return self._hours.get(account, {})

    def between(self, account: str, first: int, end: int) -> float:
        """Return the seat-time of the runs that begin in the hours ``[first, end)``."""
        hours = self._hours.get(account)
        return 0.0 if hours is None else sum(hours.get(hour, 0.0) for hour in range(first, end))

    def recent(self, account: str, hour: int) -> float:
        """Return the use before an hour, of which each day's counts half of the next one's."""
        decayed = self._recent[account].get(hour)
        if decayed is None:
            hours: Mapping[int, float] = self._hours.get(account, {})
            decayed = self._recent[account][hour] = sum(
                amount * 2.0 ** ((each - hour) / HALF_LIFE_HOURS)
                for each, amount in hours.items()
                if each < hour
            )
        return decayed


Claims = Mapping[str, Mapping[int, int]]
"""By lead, and by hour, when it last asked for time that begins in that hour."""


@dataclass(frozen=True)
class KeptTime:
    """Time that is kept for other leads: the one that asks is above its share.

    ``percent`` is its share among the leads that want this time; ``claimed_until`` is when the
    others' last claim ends unless they ask again.
    """

    starts_at: int
    ends_at: int
    percent: float
    claimed_until: int

    def later(self, start: int, now: int) -> int:
        """Return from when on a run at ``start`` or later may be offered this time."""
        free_at = min(self.claimed_until, max(start, self.starts_at) - RELEASE)
        return max(free_at, now + times.MINUTE)


@dataclass(frozen=True)
class AccountUse:
    """An account and its share, its seat-time (µs) by hour, and when it asked for which hours."""

    account: str
    share: int
    used: Mapping[int, float]
    claims: Mapping[int, int]


@dataclass(frozen=True)
class PeriodShare:
    """A lead's share of a period, and what it has booked of it (µs of seat-time)."""

    share: float
    booked: float
    starved: bool = False

    def has_room(self, amount: float) -> bool:
        """Return whether one more run of this amount is within the share, rounded to whole runs."""
        return self.starved or self.booked + amount / 2 <= self.share


class ShareJudge:
    """Decides which hours are kept from a lead, given shares, use, and claims."""

    def __init__(self, shares: LeadShares, use: LeadUse, claims: Claims, now: int) -> None:
        """``use`` may grow while the judge is asked."""
        self._shares = shares
        self._use = use
        self._now = now
        self._claimed: defaultdict[str, defaultdict[int, int]] = defaultdict(
            lambda: defaultdict(int)
        )
        self._asked: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for lead, hours in claims.items():
            of_account = self._claimed[shares.account(lead)]
            asked = self._asked[shares.account(lead)]
            for hour, asked_at in hours.items():
                asked[hour] = max(asked.get(hour, 0), asked_at)
                for claimed in range(hour, hour + _CLAIMED_HOURS):
                    of_account[claimed] = max(of_account[claimed], asked_at)

    def kept(self, lead: str, amount: float, first: int, end: int) -> list[KeptTime]:
        """Return the hours in ``[first, end)`` that are kept from a run of this seat-time."""
        account = self._shares.account(lead)
        hours = (self._judge_hour(account, amount, hour) for hour in range(first, end))
        return [kept for kept in hours if kept is not None]

    def admits(self, lead: str, amount: float, starts_at: int) -> KeptTime | None:
        """Return the kept time in which a run would begin; None if it may begin there."""
        if starts_at < self._now + RELEASE:
            return None
        return self._judge_hour(self._shares.account(lead), amount, starts_at // times.HOUR)

    def accounts(self, lead: str, first: int, end: int) -> list[AccountUse]:
        """Return the accounts on which it depends what is kept from a lead in ``[first, end)``."""
        wanting = {each for hour in range(first, end) for each in self._claimants(hour)}
        return [
            AccountUse(
                each, self._shares.of(each), self._use.by_hour(each), self._asked.get(each, {})
            )
            for each in sorted({self._shares.account(lead), *wanting})
        ]

    def period_shares(self, account: str, amount: float, hour: int) -> dict[str, PeriodShare]:
        """Return the shares of an account and of those that claim time in an hour.

        Each has a period of its own, whoever asks: so one of those that want time may book.
        """
        shares = {each: float(self._shares.of(each)) for each in self._claimants(hour)}
        shares[account] = float(self._shares.of(account))
        total = sum(shares.values()) or 1.0
        shares = {each: share / total for each, share in shares.items()}
        return {each: self._period_share(each, shares, amount, hour) for each in shares}

    def _period_share(
        self, account: str, shares: Mapping[str, float], amount: float, hour: int
    ) -> PeriodShare:
        hours = period(shares[account], amount)
        first = hour - hour % hours
        recent = {each: self._use.recent(each, first) for each in shares}
        booked = self._use.between(account, first, first + hours)
        behind = recent[account] <= shares[account] * sum(recent.values())
        return PeriodShare(
            corrected_shares(shares, recent)[account] * hours * times.HOUR,
            booked,
            starved=shares[account] > 0 and booked == 0 and behind,
        )

    def _claimants(self, hour: int) -> list[str]:
        since = self._now - CLAIM_LIFE
        return [
            account
            for account, hours in self._claimed.items()
            if hours.get(hour, since) > since and self._shares.of(account) > 0
        ]

    def _judge_hour(self, account: str, amount: float, hour: int) -> KeptTime | None:
        others = [each for each in self._claimants(hour) if each != account]
        if not others:
            return None
        parts = self.period_shares(account, amount, hour)
        if parts[account].has_room(amount):
            return None
        below = [each for each in others if parts[each].has_room(amount)]
        if not below:
            return None
        total = sum(self._shares.of(each) for each in parts)
        return KeptTime(
            max(hour * times.HOUR, self._now + RELEASE),
            (hour + 1) * times.HOUR,
            100 * self._shares.of(account) / total,
            max(self._claimed[each][hour] for each in below) + CLAIM_LIFE,
        )


def period(share: float, amount: float) -> int:
    """Return how many hours count together for runs of this seat-time; ``share`` is 0 to 1."""
    needed = _RUNS_PER_PART * amount
    enough = (hours for hours in _PERIODS if share * hours * times.HOUR >= needed)
    return 1 if share <= 0 else next(enough, _PERIODS[-1])


def corrected_shares(shares: Mapping[str, float], recent: Mapping[str, float]) -> dict[str, float]:
    """Return the shares, in parts of 1, corrected by what each has used lately.

    One that used its share keeps it; one that used more gets less, down to half, and the other way
    round. ``recent`` is in µs of seat-time.
    """
    total = sum(recent.values()) + _LITTLE
    weights = {
        account: share * _correction((recent[account] / share + _LITTLE) / total if share else 1.0)
        for account, share in shares.items()
    }
    whole = sum(weights.values()) or 1.0
    return {account: weight / whole for account, weight in weights.items()}


def _correction(used: float) -> float:
    """Return the factor for a lead that used so much of its share (1: exactly that)."""
    factor: float = 2.0 ** (_GAIN * (1.0 - min(used, 2.0)))
    return min(_CORRECTION_MAX, max(1 / _CORRECTION_MAX, factor))
