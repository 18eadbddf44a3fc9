"""Reserved time on a node: for whom, when, and how it is described. Pure.

A reservation admits a run that meets one criterion of its access list; where several reservations
overlap, each must admit it. A lead states campaign and priority itself, so they count only where
this node is the lead; other leads are listed by name. A pool task is listed for all its seats, with
its lead if that is another node: what counts is who assigned a seat, not who asked first.
``schema.sql`` (``admits``) implements the rule again, and is authoritative; a test compares the
two. Instants and durations are microseconds, spans half-open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.recurrence import Recurrence, nominal_starts
from node.model.spans import Span, from_portion, to_portion

NO_CAMPAIGN = "default"
"""The name in access lists for tasks without a campaign."""


@dataclass(frozen=True)
class AccessList:
    """The access list of a reservation: ``leads`` are identities; ``priority`` is the minimum.

    ``led`` are tasks and pool tasks, each with the identity of the node that leads it.
    """

    campaigns: frozenset[str] = frozenset()
    tasks: frozenset[UUID] = frozenset()
    led: frozenset[tuple[UUID, str]] = frozenset()
    leads: frozenset[str] = frozenset()
    tests: frozenset[str] = frozenset()
    classes: frozenset[SchedulingClass] = frozenset()
    priority: int | None = None


@dataclass(frozen=True)
class Applicant:
    """The run that wants the time, by its task, the node that leads it, and its kind.

    ``own``: the node whose reservations are checked leads it. ``pool_task`` is the pool task whose
    seats the task has, if any.
    """

    task: UUID
    lead: str
    own: bool
    campaign: str | None
    test: str | None
    scheduling_class: SchedulingClass
    priority: int
    pool_task: UUID | None = None


@dataclass(frozen=True)
class ReservationSpan:
    """One span of a reservation."""

    reservation: UUID
    kind: str
    name: str
    owner: str
    access: AccessList
    starts_at: int
    ends_at: int


def access_of(document: dict[str, Any]) -> AccessList:
    """Parse an access list as stored: the API's form, but with leads as identities."""
    tasks = [split_task(task) for task in document.get("tasks", ())]
    return AccessList(
        campaigns=frozenset(document.get("campaigns", ())),
        tasks=frozenset(task for task, lead in tasks if lead is None),
        led=frozenset((task, lead) for task, lead in tasks if lead is not None),
        leads=frozenset(document.get("leads", ())),
        tests=frozenset(document.get("tests", ())),
        classes=frozenset(SchedulingClass(name) for name in document.get("classes", ())),
        priority=document.get("priority"),
    )


def split_task(text: str) -> tuple[UUID, str | None]:
    """Split ``ID`` or ``ID@NODE``, the forms in which an access list names a task.

    :raises ValueError: the text has neither form.
    """
    task, at, lead = text.partition("@")
    if at and not lead:
        msg = "no node is given after the @"
        raise ValueError(msg)
    return UUID(task), lead or None


def written_task(task: UUID, lead: str | None) -> str:
    """Return the written form of a task; the inverse of :func:`split_task`."""
    return str(task) if lead is None else f"{task}@{lead}"


def admits(access: AccessList, applicant: Applicant) -> bool:
    """Return whether the applicant meets at least one criterion."""
    return (
        applicant.task in access.tasks
        or (applicant.own and applicant.pool_task in access.tasks)
        or (applicant.task, applicant.lead) in access.led
        or (applicant.pool_task, applicant.lead) in access.led
        or applicant.lead in access.leads
        or applicant.test in access.tests
        or applicant.scheduling_class in access.classes
        or (applicant.own and _is_admitted_by_claim(access, applicant))
    )


def _is_admitted_by_claim(access: AccessList, applicant: Applicant) -> bool:
    """Return whether it meets a criterion that a lead could claim for any run."""
    in_campaign = (applicant.campaign or NO_CAMPAIGN) in access.campaigns
    return in_campaign or (access.priority is not None and applicant.priority >= access.priority)


def is_particular(access: AccessList) -> bool:
    """Return whether the list may admit one run of a lead and class, but not another."""
    one_of = access.tasks or access.led or access.campaigns or access.tests
    return bool(one_of) or access.priority is not None


def inadmissible_spans(
    applicant: Applicant, reserved: Sequence[ReservationSpan]
) -> list[ReservationSpan]:
    """Return the spans that do not admit the applicant."""
    lists = {each.reservation: each.access for each in reserved}
    closed = {reservation for reservation, access in lists.items() if not admits(access, applicant)}
    return [each for each in reserved if each.reservation in closed]


class _Spanned(Protocol):
    @property
    def starts_at(self) -> int: ...
    @property
    def ends_at(self) -> int: ...


def spans_of(reserved: Sequence[_Spanned]) -> list[Span]:
    """Return the time of these spans as a span set."""
    if not reserved:  # the usual case in every proposal
        return []
    return from_portion(to_portion((each.starts_at, each.ends_at) for each in reserved))


def occurrences(
    recurrence: Recurrence, duration: int, since: int, until: int, limit: int
) -> Sequence[Span]:
    """Return the spans that end after ``since`` and start before ``until``, at most ``limit``."""
    starts = nominal_starts(recurrence, since - duration, until, limit)
    return [(start, start + duration) for start in starts]
