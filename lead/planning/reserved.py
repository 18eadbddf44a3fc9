"""What is reserved of a pool takes part like somebody who is busy meanwhile. Pure.

So the choice of a time, the reasons and the trace need no words of their own for it: beside the
offers of the participants there is one more, by the name of the pool.
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
    """What of the time of a pool's seats is reserved, and not for these runs; perhaps nothing."""

    pool: str
    spans: Sequence[ReservationSpan] = ()

    @property
    def name(self) -> str:
        """What it is called among the participants."""
        return f"pool {self.pool}"

    def first_open(self, slots: Sequence[Slot], duration: int) -> int | None:
        """The nominal start of the first slot in which a run has time, if there is one."""
        without = set(_free(self.spans, slots, duration)[1].without)
        return next((it.nominal for number, it in enumerate(slots) if number not in without), None)

    def why(self, slots: Sequence[Slot], duration: int) -> str:
        """Why no run has time in the first of these slots, which is closed."""
        obstacle = self.offer(slots[:1], duration, 0)[1].obstacles[0]
        return f"no {format_duration(duration)} free: {obstacle.why()}"

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> tuple[Offer, Proposal]:
        """What it leaves of these slots, and in the way of those that it leaves nothing of."""
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
    """A task as far as a reservation asks about it."""

    @property
    def test(self) -> str:
        """What is measured."""

    @property
    def campaign(self) -> str | None:
        """Whom it is for."""

    @property
    def scheduling_class(self) -> str:
        """Of its runs."""

    @property
    def priority(self) -> int:
        """Of its runs."""


def applicant(asking: ReservationUser, task: UUID) -> Applicant:
    """Whose runs they are: ``task`` is the pool task. The lead of all of them is this node."""
    return Applicant(
        task=task,
        lead="",
        own=True,
        campaign=asking.campaign,
        test=asking.test,
        scheduling_class=SchedulingClass(asking.scheduling_class),
        priority=asking.priority,
    )


def reserved_for_others(
    pool: str, reserved: Sequence[ReservationSpan], applicant: Applicant
) -> ReservedTime:
    """What is closed to runs of such a task; ``applicant`` is the pool task itself."""
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
