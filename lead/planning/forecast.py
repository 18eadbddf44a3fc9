"""A forecast of what would happen if a task were posted now. Pure: all answers are arguments.

A forecast uses the same parts as real planning: :mod:`lead.planning.agenda` selects the slots, and
:mod:`lead.planning.placement` chooses the starts. This module counts and describes the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lead.model.reasons import (
    first_run_beyond_horizon,
    follows_runs,
    no_run_to_come,
    runs_found,
    window_over,
)
from lead.planning.agenda import Agenda, Limits, PlanningProgress, Slot, agenda
from lead.planning.placement import ChosenStart
from node.model import times
from node.model.reason import Reason
from node.model.scheduling import first_slot, recurrence_of
from node.model.wire.impacts import Hour, Impact
from node.model.wire.plans import Displaced, HourShare, Occupancy, Outcome
from node.model.wire.tasks import Dependency, Schedule

NOTHING_DUE = Agenda((), (), None, None, full=False)
"""The agenda of a task of which nothing is due."""


@dataclass(frozen=True)
class ForecastPlacement:
    """The slots tried, the starts chosen for them, and by nominal start why others have none.

    ``failure`` is set if nothing could be asked: the outcome, and why. ``follows`` says
    whose booked runs the slots follow, if the task has no times of its own.
    """

    asked: Agenda = NOTHING_DUE
    choices: Sequence[ChosenStart] = ()
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    failure: tuple[Outcome, Reason] | None = None
    follows: Dependency | None = None

    @property
    def windows(self) -> tuple[Slot, ...]:
        """Return the slots that are due now, including those for which it is too late."""
        return (*self.asked.too_late, *self.asked.slots)

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of the forecast."""
        if self.failure is not None:
            return self.failure[0]
        if not self.windows:
            return Outcome.LATER
        if len(self.choices) == len(self.windows):
            return Outcome.FOUND
        return Outcome.PARTLY if self.choices else Outcome.NO_TIME

    def summary(self) -> Reason:
        """Describe the outcome in a sentence."""
        if self.failure is not None:
            return self.failure[1]
        if self.follows is not None:
            found = self._of_windows() if self.windows else None
            return follows_runs(self.follows.task, found, self.follows.when)
        return self._of_windows()

    def _of_windows(self) -> Reason:
        if not self.windows:
            first = self.asked.next_slot
            return no_run_to_come() if first is None else first_run_beyond_horizon(first)
        reason = next(
            (self.reasons[s.nominal] for s in self.windows if s.nominal in self.reasons), None
        )
        if not self.choices:
            return reason or window_over()
        first = min(choice.starts_at for choice in self.choices)
        displacing = sum(choice.displacing for choice in self.choices)
        return runs_found(len(self.choices), len(self.windows), first, displacing, reason)


def fresh_agenda(
    schedule: Schedule,
    created_at: int,
    duration: int,
    limits: Limits,
    now: int,
    known: Sequence[int] = (),
) -> Agenda:
    """Return the first agenda of a task with this schedule, created at ``created_at``.

    ``known`` are the booked ends of the runs that it follows, if it follows another task, and else
    instants (sorted) that a search found possible as starts.
    """
    recurrence = recurrence_of(schedule, created_at)
    if recurrence.follows:
        slots = [(end, 1) for end in known]
        return agenda(recurrence, duration, PlanningProgress(now, None, slots, None), limits, now)
    first = first_slot(recurrence, now)
    if first is None:
        return NOTHING_DUE
    progress = PlanningProgress(first, None, (), schedule.max_runs, found=known)
    return agenda(recurrence, duration, progress, limits, now)


def displaced_runs(name: str, choices: Sequence[ChosenStart], impact: Impact) -> list[Displaced]:
    """Return the runs that these choices would displace on one node, from its answer."""
    return [
        Displaced(
            name=name,
            run=run.run,
            task=run.task,
            test=run.test,
            scheduling_class=run.scheduling_class,
            priority=run.priority,
            starts_at=run.starts_at,
            ends_at=run.ends_at,
            by=choices[run.window].starts_at,
        )
        for run in impact.displaced
        if 0 <= run.window < len(choices)
    ]


def occupancy(name: str, since: int, hours: Sequence[Hour]) -> Occupancy:
    """Return a node's load by hour from ``since`` on, before and after the task."""
    before, after = sum(hour.before for hour in hours), sum(hour.after for hour in hours)
    total = len(hours) * times.HOUR or 1
    return Occupancy(
        name=name,
        added_s=(after - before) / times.SECOND,
        before=before / total,
        after=after / total,
        others=sum(hour.others for hour in hours) / total,
        hours=tuple(
            HourShare(
                starts_at=since + index * times.HOUR,
                before=hour.before / times.HOUR,
                after=hour.after / times.HOUR,
            )
            for index, hour in enumerate(hours)
        ),
    )
