"""What would come of a task if it were posted now. Pure: what was asked and answered comes in.

A plan is made of the same pieces as real planning: :mod:`lead.planning.agenda` says which slots
are asked for, :mod:`lead.planning.placement` chooses. This module words and counts what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lead.planning.agenda import Agenda, Limits, PlanningProgress, Slot, agenda
from lead.planning.placement import ChosenStart
from node.model import times
from node.model.scheduling import first_slot, recurrence_of
from node.model.times import to_the_second
from node.model.wire.impacts import Hour, Impact
from node.model.wire.plans import Displaced, HourShare, Occupancy, Outcome
from node.model.wire.tasks import Schedule

_NOTHING = Agenda((), (), None, None, full=False)


@dataclass(frozen=True)
class ForecastPlacement:
    """The slots asked for, the starts chosen for them, and by nominal start why others have none.

    ``failure`` is set where nothing could be asked: the outcome, and why.
    """

    asked: Agenda = _NOTHING
    choices: Sequence[ChosenStart] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    failure: tuple[Outcome, str] | None = None

    @property
    def windows(self) -> tuple[Slot, ...]:
        """The slots that are due now, those for which it is too late included."""
        return (*self.asked.too_late, *self.asked.slots)

    @property
    def outcome(self) -> Outcome:
        """What came of it."""
        if self.failure is not None:
            return self.failure[0]
        if not self.windows:
            return Outcome.LATER
        if len(self.choices) == len(self.windows):
            return Outcome.FOUND
        return Outcome.PARTLY if self.choices else Outcome.NO_TIME

    def sentence(self) -> str:
        """What came of it, for people."""
        if self.failure is not None:
            return self.failure[1]
        if not self.windows:
            return _later(self.asked.next_slot)
        reason = next(
            (self.reasons[s.nominal] for s in self.windows if s.nominal in self.reasons), None
        )
        if not self.choices:
            return reason or "its window is over"
        first = to_the_second(min(choice.starts_at for choice in self.choices))
        counted = (
            f"{len(self.choices)} of {len(self.windows)} runs would be booked, the first at {first}"
        )
        if displacing := sum(choice.displacing for choice in self.choices):
            counted += f", {displacing} of them displacing runs of lower priority"
        return counted if reason is None else f"{counted}; the others would wait: {reason}"


def _later(next_slot: int | None) -> str:
    if next_slot is None:
        return "it leaves no run to come"
    return (
        f"its first run, at {to_the_second(next_slot)}, lies beyond the horizon: nobody can say "
        "yet; it is planned when it comes closer"
    )


def fresh_agenda(
    schedule: Schedule, created_at: int, duration: int, limits: Limits, now: int
) -> Agenda:
    """What is asked for first for a task of this schedule, created then; as its lead would."""
    recurrence = recurrence_of(schedule, created_at)
    first = first_slot(recurrence, now)
    if first is None:
        return _NOTHING
    return agenda(
        recurrence, duration, PlanningProgress(first, None, (), schedule.max_runs), limits, now
    )


def displaced_runs(name: str, choices: Sequence[ChosenStart], outlook: Impact) -> list[Displaced]:
    """The runs that would give way on one node; the outlook was asked for these choices."""
    return [
        Displaced(
            name=name,
            run=lost.run,
            task=lost.task,
            test=lost.test,
            scheduling_class=lost.scheduling_class,
            priority=lost.priority,
            starts_at=lost.starts_at,
            ends_at=lost.ends_at,
            by=choices[lost.window].starts_at,
        )
        for lost in outlook.displaced
        if 0 <= lost.window < len(choices)
    ]


def occupancy(name: str, since: int, hours: Sequence[Hour]) -> Occupancy:
    """How full one node is hour by hour from ``since`` on, and would be."""
    before, after = sum(hour.before for hour in hours), sum(hour.after for hour in hours)
    whole = len(hours) * times.HOUR or 1
    return Occupancy(
        name=name,
        added_s=(after - before) / times.SECOND,
        before=before / whole,
        after=after / whole,
        others=sum(hour.others for hour in hours) / whole,
        hours=tuple(
            HourShare(
                starts_at=since + index * times.HOUR,
                before=hour.before / times.HOUR,
                after=hour.after / times.HOUR,
            )
            for index, hour in enumerate(hours)
        ),
    )
