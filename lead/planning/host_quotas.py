"""Quotas of the participants' hosts, as the runs of one task count toward them. Pure.

A quota allows so many runs, so much time, or so many bytes in each of its periods, and a run counts
in the period in which it starts. A participant tells its quotas, with what is used already, beside
the time that it has. The choice of starts counts each run that it chooses, as the holds will that
follow: a period that is used up is closed to the next start. So a plan promises no run, and a lead
asks for no hold, that a quota refuses. What was chosen for one task, and is not booked yet, counts
for the next one that has the same quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

from lead.planning.agenda import Slot
from node.model import times
from node.model.reason import Reason
from node.model.spans import Span, normalise, subtract
from node.model.wire.participants import HostQuota, Proposal

_Key = tuple[str, str, str, str, int]
"""The participant, and by name, holder, quantity, and period one of its quotas."""


class TakenQuotas:
    """The use of quotas by runs that were chosen and are not booked yet.

    What was given last is provisional, as with :class:`TentativeBookings`.
    """

    def __init__(self) -> None:
        """Begin with nothing taken."""
        self._kept: dict[_Key, Counter[int]] = {}
        self._provisional: list[tuple[_Key, Counter[int]]] = []

    def give(self, name: str, quotas: Iterable[HostQuota], starts: Sequence[int]) -> None:
        """Count runs with these starts toward these quotas of a participant, provisionally."""
        for told in quotas:
            amounts: Counter[int] = Counter()
            for start in starts:
                amounts[told.quota.begin(start)] += told.amount
            self._provisional.append((_key(name, told), amounts))

    def keep(self) -> None:
        """Make final what was given."""
        for key, amounts in self._provisional:
            self._kept.setdefault(key, Counter()).update(amounts)
        self._provisional = []

    def drop(self) -> None:
        """Give back what was given and not kept."""
        self._provisional = []

    def used(self, name: str, told: HostQuota) -> Counter[int]:
        """Return what is taken of a quota of a participant, by the begin of the period."""
        key = _key(name, told)
        used = Counter(self._kept.get(key, {}))
        for other, amounts in self._provisional:
            if other == key:
                used.update(amounts)
        return used


def _key(name: str, told: HostQuota) -> _Key:
    return name, told.name, told.holder, told.quantity, told.period


class QuotaCount:
    """The quotas of all participants, as one run of a task is chosen after another."""

    def __init__(self, proposals: Mapping[str, Proposal], taken: TakenQuotas | None = None) -> None:
        """Begin with what the participants, by their names, say is used, and with what is taken."""
        self._quotas = [
            _CountedQuota(name, quota, {} if taken is None else taken.used(name, quota))
            for name, proposal in proposals.items()
            for quota in proposal.quotas or ()
        ]
        self._closed = normalise([span for quota in self._quotas for span in quota.closed()])

    @classmethod
    def of(cls, proposals: Mapping[str, Proposal], taken: TakenQuotas | None = None) -> Self | None:
        """Return a count of the quotas that participants tell; None if there are none."""
        return cls(proposals, taken) if any(each.quotas for each in proposals.values()) else None

    def open(self, ranges: Sequence[Span], duration: int) -> Sequence[Span]:
        """Return the parts of ranges in which a run of this duration (µs) may start and fits.

        The ranges are sorted, and none is shorter than the duration.
        """
        if not self._closed:
            return ranges
        starts = [(start, end - duration + 1) for start, end in ranges]
        return [(first, last - 1 + duration) for first, last in subtract(starts, self._closed)]

    def count(self, start: int) -> None:
        """Count a run that is chosen to start then."""
        closed = [span for quota in self._quotas if (span := quota.count(start)) is not None]
        if closed:
            self._closed = normalise([*self._closed, *closed])

    def why_closed(self, slot: Slot, duration: int) -> Reason | None:
        """Return whose quota closes most of a slot to starts, as a reason; None if none does."""
        latest = slot.latest_start(duration)
        closed = [
            (min(end, latest + 1) - max(begin, slot.start), quota, max(begin, slot.start))
            for quota in self._quotas
            for begin, end in quota.closed_from(slot.start)
            if begin <= latest
        ]
        if not closed:
            return None
        _, quota, first = max(closed, key=lambda each: each[0])
        return quota.reason(first)


class _CountedQuota:
    """A quota of one participant, with its use by period."""

    def __init__(self, participant: str, told: HostQuota, taken: Mapping[int, int]) -> None:
        self._participant = participant
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

    def closed_from(self, instant: int) -> list[Span]:
        """Return those periods that end after an instant."""
        return [(begin, end) for begin, end in self.closed() if end > instant]

    def count(self, start: int) -> Span | None:
        """Count a run; return the period in which it starts if that is full now."""
        begin = self._quota.begin(start)
        self._used[begin] = self._used.get(begin, 0) + self._told.amount
        return (begin, begin + self._told.period) if self._is_full(begin) else None

    def reason(self, instant: int) -> Reason:
        """Return the reason why no run may start at this instant, which is closed."""
        begin = self._quota.begin(instant)
        used = self._used.get(begin, 0)
        return self._quota.used_up(self._told.name, used, begin).at(self._participant)


def participants_without_quotas(
    proposals: Mapping[str, Proposal], names: Collection[str]
) -> list[str]:
    """Return which of these participants do not tell their quotas."""
    return [name for name in names if name in proposals and proposals[name].quotas is None]
