"""The time that the limits of this host leave for the runs of a user's task. Pure.

Where they leave no time at all, no other participant needs to be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lead.planning.agenda import Slot
from lead.planning.closures import ClosedSpan, OwnOffer, offer_outside
from node.model.host_limits.closed import LimitedTime
from node.model.wire.participants import HostLimit, ToldLimit

NAME = "limits of this host"
"""The name under which they appear among the participants."""


@dataclass(frozen=True)
class UserRoom:
    """The room that limits leave for a user's task: all time but what is ``closed``.

    ``quotas`` are the limits for which its runs count.
    """

    closed: Sequence[LimitedTime]
    quotas: tuple[ToldLimit, ...] = ()

    @property
    def binds(self) -> bool:
        """Return whether limits may leave less time than there would be without them."""
        return bool(self.closed or self.quotas)

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> OwnOffer:
        """Return the time that they leave in these slots."""
        spans = [_closed_span(each) for each in self.closed]
        return offer_outside(NAME, spans, slots, duration, now, self.quotas)


def _closed_span(closed: LimitedTime) -> ClosedSpan:
    return ClosedSpan(
        closed.starts_at, closed.ends_at, lambda window, _: HostLimit.of(window, closed)
    )
