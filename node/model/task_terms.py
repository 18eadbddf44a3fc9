"""The terms of a task: the facts that every record of the task holds.

A task is introduced to its participants, stored, claimed by a worker, and shown by the API. Each of
these records holds one :class:`TaskTerms` and adds its own fields. The wire document
:class:`Introduction` has the same fields side by side; it is converted here, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.recurrence import Recurrence
from node.model.scheduling import recurrence_of
from node.model.wire.participants import FreedRuns, Introduction
from node.model.wire.tasks import PARTICIPANTS, Participant, Schedule


@dataclass(frozen=True)
class TaskTerms:
    """The terms of a task: what it measures, with whom, when, and for which campaign.

    ``tools`` are the preferred tools, best first; without any, the best tool that all participants
    have is used. ``tool`` is the one agreed on, and ``duration`` the time in microseconds that a
    run with it occupies. ``addresses`` is where each host of the spec is measured. A pool task has
    no participants, tool, or addresses of its own. ``revision`` counts the changes of the task.
    """

    test: str
    spec: dict[str, Any]
    tools: tuple[str, ...]
    scheduling_class: SchedulingClass
    duration: int
    priority: int
    schedule: Schedule
    campaign: str | None
    reference: Any
    created_at: int
    revision: int = 1
    participants: tuple[Participant, ...] = ()
    tool: str | None = None
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def recurrence(self) -> Recurrence:
        """The nominal starts of the task."""
        return recurrence_of(self.schedule, self.created_at)


def take_terms(row: dict[str, Any]) -> TaskTerms:
    """Remove the columns of the terms from a row of the table ``task``, and return their value.

    The row of a pool task may lack the participants, the tool, and the addresses.
    """
    return TaskTerms(
        test=row.pop("test"),
        spec=row.pop("spec"),
        tools=tuple(row.pop("tools")),
        scheduling_class=SchedulingClass(row.pop("scheduling_class")),
        duration=row.pop("duration"),
        priority=row.pop("priority"),
        schedule=Schedule.model_validate(row.pop("schedule")),
        campaign=row.pop("campaign"),
        reference=row.pop("reference"),
        created_at=row.pop("created_at"),
        revision=row.pop("revision"),
        participants=PARTICIPANTS.validate_python(row.pop("participants", ())),
        tool=row.pop("tool", None),
        addresses=row.pop("addresses", {}),
    )


def terms_of(introduction: Introduction) -> TaskTerms:
    """Return the terms in an introduction; the inverse of :func:`introduction_with`."""
    return TaskTerms(**{each.name: getattr(introduction, each.name) for each in fields(TaskTerms)})


def introduction_with(
    task: UUID,
    terms: TaskTerms,
    place: int,
    *,
    pool_task: UUID | None = None,
    paused_at: int | None = None,
    freeing: dict[str, Any] | None = None,
) -> Introduction:
    """Return the introduction of a task to its participant at this ``place`` (from 0).

    How slots are tried again, and on which condition runs follow others, is the lead's business.
    """
    after = terms.schedule.after
    if after is not None:
        after = after.model_copy(update={"when": None, "per_hour": None})
    own = {"retry": None, "after": after}
    alone = replace(terms, schedule=terms.schedule.model_copy(update=own))
    return Introduction(
        task=task,
        participant=place,
        pool_task=pool_task,
        paused_at=paused_at,
        freeing=None if freeing is None else FreedRuns.model_validate(freeing),
        **vars(alone),
    )
