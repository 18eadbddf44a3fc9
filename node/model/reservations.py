"""Time that is set apart on a node: for whom, when, and how it says so. Pure.

A reservation admits a run that meets one criterion of its access list; where several overlap, each
must admit it. Campaign and priority are what a lead says of itself, so they count only where this
node is the lead; another lead is named. A pool task is named for all its seats, with its lead if
that is another node: whose a seat is says who gives it, and not who comes first. The rule is said
once more in SQL (``schema.sql``, ``admits``), where it has the last word; a test compares the two.
Instants and durations are microseconds, spans half-open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.recurrence import Recurrence, nominal_starts
from node.model.spans import Span, normalise
from node.model.times import to_the_second

NO_CAMPAIGN = "default"
"""What an access list calls tasks that name no campaign."""

_TITLES = {"maintenance": "maintenance", "demo": "demo", "quiet": "quiet period"}


@dataclass(frozen=True)
class AccessList:
    """Who may use reserved time. ``leads`` are identities of nodes; a ``priority`` is the least.

    ``led`` are tasks and pool tasks with the identity of the node that leads them.
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
    """Whose run it is that wants the time: its task, the node that leads it, and what it is.

    ``own``: it is led by the very node whose reservations are asked. ``pool_task`` is that in which
    its task has seats, if it has any.
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
    """An access list as it is kept, in the words of the API but for identities of leads."""
    named = [split_task(task) for task in document.get("tasks", ())]
    return AccessList(
        campaigns=frozenset(document.get("campaigns", ())),
        tasks=frozenset(task for task, lead in named if lead is None),
        led=frozenset((task, lead) for task, lead in named if lead is not None),
        leads=frozenset(document.get("leads", ())),
        tests=frozenset(document.get("tests", ())),
        classes=frozenset(SchedulingClass(name) for name in document.get("classes", ())),
        priority=document.get("priority"),
    )


def split_task(written: str) -> tuple[UUID, str | None]:
    """``ID`` or ``ID@NODE``, for a task as an access list names it.

    :raises ValueError: it is neither.
    """
    task, at, lead = written.partition("@")
    if at and not lead:
        msg = "no node is named after the @"
        raise ValueError(msg)
    return UUID(task), lead or None


def joined(task: UUID, lead: str | None) -> str:
    """The inverse of :func:`split_task`."""
    return str(task) if lead is None else f"{task}@{lead}"


def admits(access: AccessList, applicant: Applicant) -> bool:
    """Whether it meets one criterion."""
    return (
        applicant.task in access.tasks
        or (applicant.own and applicant.pool_task in access.tasks)
        or (applicant.task, applicant.lead) in access.led
        or (applicant.pool_task, applicant.lead) in access.led
        or applicant.lead in access.leads
        or applicant.test in access.tests
        or applicant.scheduling_class in access.classes
        or (applicant.own and _word_counts(access, applicant))
    )


def _word_counts(access: AccessList, applicant: Applicant) -> bool:
    """What of the access list a lead could claim of any run."""
    named = (applicant.campaign or NO_CAMPAIGN) in access.campaigns
    return named or (access.priority is not None and applicant.priority >= access.priority)


def is_particular(access: AccessList) -> bool:
    """Whether it may admit one run of a lead and class and not another one."""
    one_of = access.tasks or access.led or access.campaigns or access.tests
    return bool(one_of) or access.priority is not None


def inadmissible_spans(
    applicant: Applicant, reserved: Sequence[ReservationSpan]
) -> list[ReservationSpan]:
    """The spans that are not for it."""
    lists = {each.reservation: each.access for each in reserved}
    closed = {of for of, access in lists.items() if not admits(access, applicant)}
    return [each for each in reserved if each.reservation in closed]


def spans_of(reserved: Iterable[ReservationSpan]) -> list[Span]:
    """A span set: the time of these."""
    return normalise((each.starts_at, each.ends_at) for each in reserved)


def in_words(kind: str, name: str, owner: str, reservation: UUID, ends_at: int) -> str:
    """``reserved for demo 'SC26' by alice until 2026-…Z, reservation 0b5e…``."""
    title = f"{_TITLES.get(kind, kind)} '{name}' by {owner}"
    return f"reserved for {title} until {to_the_second(ends_at)}, reservation {reservation}"


def occurrences(
    recurrence: Recurrence, duration: int, since: int, until: int, limit: int
) -> Sequence[Span]:
    """The spans that end after ``since`` and start before ``until``: the first, up to ``limit``."""
    starts = nominal_starts(recurrence, since - duration, until, limit)
    return [(start, start + duration) for start in starts]
