"""The reserved time of a pool, which is closed to runs that its reservations do not admit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from lead.planning.agenda import Slot
from lead.planning.closures import ClosedSpan, OwnOffer, offer_outside, open_ranges
from node.model.classes import SchedulingClass
from node.model.reason import Reason
from node.model.reasons import no_time_free
from node.model.reservations import Applicant, ReservationSpan, inadmissible_spans
from node.model.wire.participants import Closure


@dataclass(frozen=True)
class ReservedTime:
    """The time of a pool that is reserved, and not for these runs; possibly none."""

    pool: str
    spans: Sequence[ReservationSpan] = ()

    @property
    def name(self) -> str:
        """Return the name under which it appears among the participants."""
        return f"pool {self.pool}"

    def first_open(self, slots: Sequence[Slot], duration: int) -> int | None:
        """Return the nominal start of the first slot in which a run has time, or None."""
        closed = [(each.starts_at, each.ends_at) for each in self.spans]
        ranges = open_ranges(closed, slots, duration)
        return next((slot.nominal for slot, free in zip(slots, ranges, strict=True) if free), None)

    def why(self, slots: Sequence[Slot], duration: int) -> Reason:
        """Return why no run has time in the first of these slots, which must be closed."""
        obstacle = self.offer(slots[:1], duration, 0)[1].obstacles[0]
        return no_time_free(duration, obstacle.why())

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> OwnOffer:
        """Return the time that is open in these slots."""
        spans = sorted(self.spans, key=lambda each: (each.starts_at, each.reservation))
        return offer_outside(self.name, list(map(_closed_span, spans)), slots, duration, now)


def _closed_span(reserved: ReservationSpan) -> ClosedSpan:
    return ClosedSpan(
        reserved.starts_at, reserved.ends_at, lambda window, _: Closure.of(window, reserved)
    )


class ReservationUser(Protocol):
    """A task as far as the rules of reservations need it."""

    @property
    def test(self) -> str:
        """Return the name of the test."""

    @property
    def campaign(self) -> str | None:
        """Return the campaign of the task, if any."""

    @property
    def scheduling_class(self) -> str:
        """Return the class of its runs."""

    @property
    def priority(self) -> int:
        """Return the priority of its runs."""


def applicant(runs: ReservationUser, task: UUID) -> Applicant:
    """Return the applicant for runs of the pool task ``task``, which this node leads."""
    return Applicant(
        task=task,
        lead="",
        own=True,
        campaign=runs.campaign,
        test=runs.test,
        scheduling_class=SchedulingClass(runs.scheduling_class),
        priority=runs.priority,
    )


def reserved_for_others(
    pool: str, reserved: Sequence[ReservationSpan], applicant: Applicant
) -> ReservedTime:
    """Return the time closed to runs of the applicant, which is the pool task itself."""
    return ReservedTime(pool, inadmissible_spans(applicant, reserved))
