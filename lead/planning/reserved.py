"""Reserved time of a pool as a participant that is busy meanwhile. Pure.

So the choice of a time, the reasons, and the trace need nothing special for reservations: beside
the offers of the participants there is one more, under the pool's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol
from uuid import UUID

from lead.planning.agenda import Slot
from lead.planning.placement import Offer
from node.model.classes import SchedulingClass
from node.model.reason import Reason
from node.model.reasons import no_time_free
from node.model.reservations import Applicant, ReservationSpan, inadmissible_spans
from node.model.spans import Interval, Span, at_least, from_portion, to_portion
from node.model.timeline import TimelineQuestion, obstacles
from node.model.wire.participants import Closure, Proposal


@dataclass(frozen=True)
class ReservedTime:
    """The time of a pool that is reserved, and not for these runs; possibly none."""

    pool: str
    spans: Sequence[ReservationSpan] = ()

    @property
    def name(self) -> str:
        """Return the name under which it appears among the participants."""
        return f"pool {self.pool}"

    @cached_property
    def _closed(self) -> Interval:
        return to_portion((each.starts_at, each.ends_at) for each in self.spans)

    def _open(self, slot: Slot, duration: int) -> list[Span]:
        """Return the ranges of a slot in which a run of this duration fits."""
        window = to_portion([(slot.start, slot.end)])
        closed = window & self._closed
        # Most slots lie outside all reserved time, and the difference is the slow operation.
        return at_least(from_portion(window if closed.empty else window - closed), duration)

    def first_open(self, slots: Sequence[Slot], duration: int) -> int | None:
        """Return the nominal start of the first slot in which a run has time, or None."""
        return next((slot.nominal for slot in slots if self._open(slot, duration)), None)

    def why(self, slots: Sequence[Slot], duration: int) -> Reason:
        """Return why no run has time in the first of these slots, which must be closed."""
        obstacle = self.offer(slots[:1], duration, 0)[1].obstacles[0]
        return no_time_free(duration, obstacle.why())

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> tuple[Offer, Proposal]:
        """Return the time left in these slots, and the obstacles in slots without any."""
        by_slot = [self._open(slot, duration) for slot in slots]
        free = list(chain.from_iterable(by_slot))
        without = [index for index, ranges in enumerate(by_slot) if not ranges]
        question = _question(self.spans, slots, duration)
        proposal = Proposal(
            now=now,
            horizon=question.latest,
            free=tuple(free),
            obstacles=tuple(
                Closure.of(index, each)
                for index, each in obstacles(question, without, ())
                if isinstance(each, ReservationSpan)
            ),
            reason=None if free else no_time_free(duration),
        )
        return Offer(self.name, free, free), proposal


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


def _question(
    spans: Sequence[ReservationSpan], slots: Sequence[Slot], duration: int
) -> TimelineQuestion:
    return TimelineQuestion(
        windows=[(slot.start, slot.end) for slot in slots],
        scheduling_class=SchedulingClass.EXCLUSIVE,
        duration=duration,
        priority=0,
        earliest=min(slot.start for slot in slots),
        latest=max(slot.end for slot in slots),
        closed=spans,
    )
