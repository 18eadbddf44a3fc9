"""Limits of the participants' hosts, as the runs of one task count toward them. Pure.

A quota allows so many runs, so much time, or so many bytes in each of its periods, and a run counts
in the period in which it starts; a share of a lead is counted by the hour. A participant tells
both, with what is used already, beside the time that it has. The choice of starts counts each run
that it chooses, as the holds will that follow: a period that is used up is closed to the next
start. So a plan promises no run, and a lead asks for no hold, that a quota or a share refuses.

What was chosen for one task, and is not booked yet, counts for the next one that has the same
limit. Only there loads matter, what runs take at one time: those of one task never overlap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeGuard

from lead.planning.agenda import Slot
from node.model import times
from node.model.host_limits.closed import LimitedTime
from node.model.lead_shares import KeptTime, ShareJudge
from node.model.reason import Reason
from node.model.reasons import no_time_free
from node.model.spans import Span, normalise, subtract
from node.model.wire.participants import (
    AboveShare,
    HostLoad,
    HostQuota,
    HostShare,
    Proposal,
    ToldLimit,
)

_Key = tuple[object, ...]
"""The participant, and what identifies one of the limits that it told."""

_Place = int | Span
"""The place where a run counts: the begin of a period, the number of an hour, or a span."""


class TakenQuotas:
    """The use of told limits by runs that were chosen and are not booked yet.

    What was given last is provisional, as with :class:`TentativeBookings`.
    """

    def __init__(self) -> None:
        self._kept: dict[_Key, Counter[_Place]] = {}
        self._provisional: list[tuple[_Key, Counter[_Place]]] = []

    def give(
        self,
        name: str,
        limits: Iterable[ToldLimit],
        starts: Iterable[int],
        duration: int,
        *,
        back: bool = False,
    ) -> None:
        """Count runs with these starts toward these limits of a participant, provisionally.

        With ``back``, they count no more.
        """
        for told in limits:
            amounts: Counter[_Place] = Counter()
            amount = math.ceil(told.amount)
            for start in starts:
                amounts[_place(told, start, duration)] += -amount if back else amount
            self._provisional.append((_key(name, told), amounts))

    def keep(self) -> None:
        """Make final what was given."""
        for key, amounts in self._provisional:
            self._kept.setdefault(key, Counter()).update(amounts)
        self._provisional = []

    def drop(self) -> None:
        """Give back what was given and not kept."""
        self._provisional = []

    def used(self, name: str, told: ToldLimit) -> Counter[Any]:
        """Return what is taken of a limit of a participant, by where runs count."""
        key = _key(name, told)
        used = Counter(self._kept.get(key, {}))
        for other, amounts in self._provisional:
            if other == key:
                used.update(amounts)
        return used

    def closed(
        self, name: str, proposal: Proposal, first: int, end: int
    ) -> Iterator[LimitedTime | KeptTime]:
        """Yield what a participant would close of the time in a range if this was booked."""
        for told in proposal.quotas or ():
            taken = self.used(name, told)
            if not taken:
                continue
            if isinstance(told, HostShare):
                yield from _CountedShare(name, told, taken, proposal.now).kept(first, end)
            else:
                yield from told.closed(taken)


def _key(name: str, told: ToldLimit) -> _Key:
    match told:
        case HostQuota():
            return name, told.name, told.holder, told.quantity, told.period
        case HostLoad():
            return name, told.name, told.holder, told.load
        case HostShare():
            return (name,)


def _place(told: ToldLimit, start: int, duration: int) -> _Place:
    match told:
        case HostQuota():
            return told.quota.begin(start)
        case HostLoad():
            return start, start + duration
        case HostShare():
            return start // times.HOUR


class QuotaCount:
    """The quotas and shares of all participants, as one run of a task is chosen after another."""

    def __init__(self, proposals: Mapping[str, Proposal], taken: TakenQuotas | None = None) -> None:
        """Begin with what the participants, by their names, say is used, and with what is taken."""
        told = [
            (name, each, {} if taken is None else taken.used(name, each), proposal.now)
            for name, proposal in proposals.items()
            for each in proposal.quotas or ()
        ]
        self._quotas = [
            _CountedQuota(name, each, used) for name, each, used, _ in told if _is_quota(each)
        ]
        self._shares = [
            _CountedShare(name, each, used, now)
            for name, each, used, now in told
            if isinstance(each, HostShare)
        ]
        self._closed = normalise([span for quota in self._quotas for span in quota.closed()])

    @property
    def _counted(self) -> list[_CountedQuota | _CountedShare]:
        return [*self._quotas, *self._shares]

    @classmethod
    def of(cls, proposals: Mapping[str, Proposal], taken: TakenQuotas | None = None) -> Self | None:
        """Return a count of what participants tell; None if they tell no limits."""
        return cls(proposals, taken) if any(each.quotas for each in proposals.values()) else None

    def open(self, ranges: Sequence[Span], duration: int) -> Sequence[Span]:
        """Return the parts of ranges in which a run of this duration (µs) may start and fits.

        The ranges are sorted, and none is shorter than the duration.
        """
        closed = self._closed
        if self._shares and ranges:
            reach = ranges[0][0], ranges[-1][1]
            kept = [it for share in self._shares for it in share.kept(*reach)]
            closed = normalise([*closed, *((it.starts_at, it.ends_at) for it in kept)])
        if not closed:
            return ranges
        starts = [(start, end - duration + 1) for start, end in ranges]
        return [(first, last - 1 + duration) for first, last in subtract(starts, closed)]

    def count(self, start: int) -> None:
        """Count a run that is chosen to start then."""
        closed = [span for quota in self._quotas if (span := quota.count(start)) is not None]
        if closed:
            self._closed = normalise([*self._closed, *closed])
        for share in self._shares:
            share.count(start)

    def why_closed(self, slot: Slot, duration: int) -> Reason | None:
        """Return who closes most of a slot to starts, worded as an offer without time is.

        None if nobody does.
        """
        latest = slot.latest_start(duration)
        closed = [
            (min(end, latest + 1) - max(begin, slot.start), counted, max(begin, slot.start))
            for counted in self._counted
            for begin, end in counted.closed_between(slot.start, latest + 1)
            if begin <= latest
        ]
        if not closed:
            return None
        _, counted, first = max(closed, key=lambda each: each[0])
        return no_time_free(duration, counted.reason(first)).at(counted.participant)

    @property
    def counts_shares(self) -> bool:
        """Return whether shares of leads bound the runs."""
        return bool(self._shares)

    def later(self, slot: Slot) -> int | None:
        """Return when to ask again for a slot that is kept for other leads; None if it is not."""
        return max((share.later(slot) for share in self._shares), default=0) or None


def _is_quota(told: ToldLimit) -> TypeGuard[HostQuota]:
    return isinstance(told, HostQuota)


class _CountedQuota:
    """A quota of one participant, with its use by period."""

    def __init__(self, participant: str, told: HostQuota, taken: Mapping[int, int]) -> None:
        self.participant = participant
        self._told = told
        self._quota = told.quota
        self._used = dict(told.used)
        for begin, amount in taken.items():
            self._used[begin] = self._used.get(begin, 0) + amount

    def _is_full(self, begin: int) -> bool:
        return self._quota.exceeded(self._used.get(begin, 0), self._told.amount)

    def closed(self) -> list[Span]:
        """Return the periods in which no further run may start."""
        if self._quota.exceeded(0, self._told.amount):
            return [(0, times.LATEST)]
        period = self._told.period
        return [(begin, begin + period) for begin in self._used if self._is_full(begin)]

    def closed_between(self, first: int, end: int) -> list[Span]:
        """Return those periods that have time in a range."""
        return [span for span in self.closed() if span[0] < end and first < span[1]]

    def count(self, start: int) -> Span | None:
        """Count a run; return the period in which it starts if that is full now."""
        begin = self._quota.begin(start)
        self._used[begin] = self._used.get(begin, 0) + self._told.amount
        return (begin, begin + self._told.period) if self._is_full(begin) else None

    def reason(self, instant: int) -> Reason:
        """Return the reason why no run may start at this instant, which is closed."""
        begin = self._quota.begin(instant)
        used = self._used.get(begin, 0)
        return self._quota.used_up(self._told.name, used, begin)


class _CountedShare:
    """The share of this lead at one participant, with what the runs that are chosen take of it."""

    def __init__(
        self, participant: str, told: HostShare, taken: Mapping[int, int], now: int
    ) -> None:
        self.participant = participant
        self._told = told
        self._now = now
        shares, self._use, claims = told.use()
        self._judge = ShareJudge(shares, self._use, claims, now)
        for hour, amount in taken.items():
            self._use.add(told.account, hour, amount)

    def kept(self, first: int, end: int) -> list[KeptTime]:
        """Return the hours of a range that are kept for other leads."""
        hours = first // times.HOUR, -(-end // times.HOUR)
        kept = self._judge.kept(self._told.account, self._told.amount, *hours)
        return [each for each in kept if each.starts_at < each.ends_at]

    def closed_between(self, first: int, end: int) -> list[Span]:
        """Return the spans of those hours."""
        return [(each.starts_at, each.ends_at) for each in self.kept(first, end)]

    def count(self, start: int) -> None:
        """Count a run."""
        self._use.add(self._told.account, start // times.HOUR, self._told.amount)

    def reason(self, instant: int) -> Reason:
        """Return the reason why no run may start at this instant, which is kept."""
        [kept] = self.kept(instant, instant + 1)
        return AboveShare.of(0, kept, instant, self._now).why()

    def later(self, slot: Slot) -> int:
        """Return when to ask again for a slot; 0 if nothing of it is kept for others."""
        kept = self.kept(slot.start, slot.end)
        return max((each.later(slot.start, self._now) for each in kept), default=0)


def participants_without_quotas(
    proposals: Mapping[str, Proposal], names: Collection[str]
) -> list[str]:
    """Return which of these participants do not tell their quotas."""
    return [name for name in names if name in proposals and proposals[name].quotas is None]
