"""The time that the limits of this host leave for the runs of a user's task. Pure.

To the choice of a time these limits are one more participant, which is busy while they admit
nothing. Where they leave no time at all, no other participant needs to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from lead.planning.agenda import Slot
from lead.planning.placement import Offer
from node.model.host_limits.closed import LimitedTime
from node.model.reasons import no_time_free
from node.model.spans import Span, at_least, normalise, subtract
from node.model.wire.participants import HostLimit, HostQuota, Proposal

NAME = "limits of this host"
"""The name under which they appear among the participants."""


@dataclass(frozen=True)
class UserRoom:
    """The room that limits leave for a user's task: all time but what is ``closed``.

    ``quotas`` are those for which its runs count.
    """

    closed: Sequence[LimitedTime]
    quotas: tuple[HostQuota, ...] = ()

    @property
    def binds(self) -> bool:
        """Return whether limits may leave less time than there would be without them."""
        return bool(self.closed or self.quotas)

    def leaves_time(self, slots: Sequence[Slot], duration: int) -> bool:
        """Return whether a run of this duration (µs) has time in one of these slots."""
        return any(self._by_slot(slots, duration))

    def _by_slot(self, slots: Sequence[Slot], duration: int) -> list[list[Span]]:
        closed = normalise([(each.starts_at, each.ends_at) for each in self.closed])
        return [at_least(subtract([(slot.start, slot.end)], closed), duration) for slot in slots]

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> tuple[Offer, Proposal]:
        """Return the time left in these slots, and the limits that close slots without any."""
        by_slot = self._by_slot(slots, duration)
        free = list(chain.from_iterable(by_slot))
        proposal = Proposal(
            now=now,
            horizon=max(slot.end for slot in slots),
            free=tuple(free),
            obstacles=tuple(
                HostLimit.of(index, self._longest(slots[index]))
                for index, ranges in enumerate(by_slot)
                if not ranges
            ),
            reason=None if free else no_time_free(duration),
            quotas=self.quotas,
        )
        return Offer(NAME, free, free), proposal

    def _longest(self, slot: Slot) -> LimitedTime:
        """Return the limit that closes most of a slot."""
        return max(
            self.closed,
            key=lambda each: min(each.ends_at, slot.end) - max(each.starts_at, slot.start),
        )
