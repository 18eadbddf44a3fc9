"""The terms of a task: the facts that every record of the task holds.

A task is introduced to its participants, stored, claimed by a worker, and shown by the API. Each of
these records holds one :class:`TaskTerms` and adds its own fields. The wire document
:class:`Introduction` has the same fields side by side; it is converted here, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.recurrence import Recurrence
from node.model.resources import taking_text
from node.model.scheduling import recurrence_of
from node.model.wire.participants import FreedRuns, Introduction
from node.model.wire.tasks import KEEPERS, PARTICIPANTS, Keeper, Participant, Schedule

Relocate = Callable[[Sequence[Participant]], tuple[Participant, ...]]
"""Returns participants at the addresses that their cards have today."""


@dataclass(frozen=True)
class TaskTerms:
    """The terms of a task: what it measures, with whom, when, and for which campaign.

    ``tools`` are the preferred tools, best first; without any, the best tool that all participants
    have is used. ``tool`` is the one agreed on, and ``duration`` the time in microseconds that a
    run with it occupies. ``addresses`` is where each host of the spec is measured. A pool task has
    no participants, tool, or addresses of its own. ``revision`` counts the changes of the task.
    ``keepers`` keep the resources that its runs take (``model/resources.py``); some of them may be
    participants as well.
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
    keepers: tuple[Keeper, ...] = ()

    @property
    def parties(self) -> tuple[Participant, ...]:
        """The participants, then the nodes that keep resources only: all that book its runs.

        A pool task has none: its seats have.
        """
        if not self.keepers or not self.participants:
            return self.participants
        measuring = {each.node for each in self.participants}
        return (*self.participants, *(it for it in self.keepers if it.node not in measuring))

    def with_parties(self, parties: Sequence[Participant]) -> TaskTerms:
        """Return the terms with these parties, in their order, for example with their answers."""
        count = len(self.participants)
        alone = {each.node: each for each in parties[count:] if isinstance(each, Keeper)}
        keepers = tuple(alone.get(each.node, each) for each in self.keepers)
        return replace(self, participants=tuple(parties[:count]), keepers=keepers)

    def located(self, relocate: Relocate) -> TaskTerms:
        """Return the terms with the participants at the addresses of today."""
        return replace(self, participants=relocate(self.participants))

    def taken_at(self, node: str) -> Mapping[str, int]:
        """Return what a run takes of the resources that a node keeps."""
        return next((each.takes for each in self.keepers if each.node == node), {})

    @property
    def takes(self) -> tuple[str, ...]:
        """The resources that a run takes, as a document says it."""
        return tuple(
            taking_text(name, each.name, amount)
            for each in self.keepers
            for name, amount in each.takes.items()
        )

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
        keepers=KEEPERS.validate_python(row.pop("keepers", ())),
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
    """Return the introduction of a task to the party at this ``place`` (from 0).

    A keeper learns what is taken of its own resources; one that does not measure has no place among
    the participants. How slots are tried again, and on which condition runs follow others, is the
    lead's business.
    """
    after = terms.schedule.after
    if after is not None:
        after = after.model_copy(update={"when": None, "per_hour": None})
    own = {"retry": None, "after": after}
    node = terms.parties[place].node
    alone = replace(
        terms,
        schedule=terms.schedule.model_copy(update=own),
        keepers=tuple(each for each in terms.keepers if each.node == node),
    )
    return Introduction(
        task=task,
        participant=place if place < len(terms.participants) else None,
        pool_task=pool_task,
        paused_at=paused_at,
        freeing=None if freeing is None else FreedRuns.model_validate(freeing),
        **vars(alone),
    )
