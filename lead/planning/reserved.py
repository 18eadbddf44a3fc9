"""Reserved time of a pool as a participant that is busy meanwhile. Pure.

So the choice of a time, the reasons, and the trace need nothing special for reservations: beside
the offers of the participants there is one more, under the pool's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from lead.planning.agenda import Slot
from lead.planning.placement import Offer
from node.model.classes import SchedulingClass
from node.model.reservations import Applicant, ReservationSpan, inadmissible_spans
from node.model.timeline import FreeRanges, Occupation, TimelineQuestion, free_ranges, obstacles
from node.model.times import format_duration
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

    def first_open(self, slots: Sequence[Slot], duration: int) -> int | None:
        """Return the nominal start of the first slot in which a run has time, or None."""
        without = set(_free(self.spans, slots, duration)[1].without)
        return next((it.nominal for number, it in enumerate(slots) if number not in without), None)

    def why(self, slots: Sequence[Slot], duration: int) -> str:
        """Return why no run has time in the first of these slots, which must be closed."""
        obstacle = self.offer(slots[:1], duration, 0)[1].obstacles[0]
        return f"no {format_duration(duration)} free: {obstacle.why()}"

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> tuple[Offer, Proposal]:
        """Return the time left in these slots, and the obstacles in slots without any."""
        question, free = _free(self.spans, slots, duration)
        proposal = Proposal(
            now=now,
            horizon=question.latest,
            free=tuple(free.free),
            obstacles=tuple(
                Closure.of(index, each)
                for index, each in obstacles(question, free.without, ())
                if isinstance(each, ReservationSpan)
            ),
            reason=None if free.free else f"no {format_duration(duration)} free",
        )
        return Offer(self.name, free.free, free.free), proposal


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


def _free(
    spans: Sequence[ReservationSpan], slots: Sequence[Slot], duration: int
) -> tuple[TimelineQuestion, FreeRanges]:
    question = TimelineQuestion(
        windows=[(slot.start, slot.end) for slot in slots],
        scheduling_class=SchedulingClass.EXCLUSIVE,
        duration=duration,
        priority=0,
        earliest=min(slot.start for slot in slots),
        latest=max(slot.end for slot in slots),
        closed=spans,
    )
    return question, free_ranges(question, Occupation([]))
