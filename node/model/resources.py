"""Counted resources of the whole fleet: what there is so many of, and runs take of it. Pure.

"One throughput at a time over link X, whoever leads it" is nothing that one of the hosts of a run
can decide alone: the two nodes of the one run and the two of the other may have nothing in common
but the link. So a resource has a *keeper*: one node of the fleet, whose owner states a name and a
number in the file of its limits. The name of the keeper is part of the name of the resource,
``link-x@keeper``, as it is known in the whole fleet; a task says what each of its runs takes
(``"takes": ["link-x@keeper"]``, or ``link-x@keeper:2``).

The keeper is a participant of the booking. It is introduced to the task, makes proposals, holds,
commits, releases, is compared with, and is told of ends like every participant, with one
difference: its part runs nothing and occupies no time of its host. A node that measures as well is
asked once, for both. So there is no second protocol, and on each failure what is true of a
participant is true of a keeper:

* *It is unknown to the lead, does not keep the resource, or has fewer*: the task is refused, and
  the reason says so. *It is of a release without resources*: likewise.
* *It is away*: the task waits for it as for any participant, with that as its reason, and no run is
  booked: nobody else may count instead. What is booked stays, and starts, since the keeper runs
  nothing; but a run whose commit it never confirmed is taken back before its start.
* *It stops and starts*: what is held and committed is in its database. A hold that expired
  meanwhile is asked about at the lead, and kept or dropped as the lead decided.
* *It is cut off*: a hold that cannot be decided ends after twice its life; until then its amount
  counts. Too little is used for a moment, never too much.
* *The lead dies*: its holds end like those on nodes. *It is restored*: the comparison of runs to
  come repairs the keeper's view like that of each participant.
* *A lead of the last release* cannot name what its tasks take, and so takes nothing.

Counting: at an instant, a resource is used by the amounts of all runs that are held or booked then,
until their booked end, or until they end early without having been measured. The transaction of a
hold locks the resources that it takes, counts one run after another, and writes what they take; a
trigger has the last word (``run_within_resources`` in ``schema.sql``). A run of higher priority may
displace others that take of the resource, as on a node: of those of lower precedence which are not
about to start as few as suffice, the lowest first. They are set aside with the hold, displaced with
the commit, and come back with a release, if there is enough left.

A plan sees the time in which too little is left as closed, beside reservations and quotas, and a
preview of several tasks counts what each of them would take (``HostLoad``), since two runs of the
same list may want the same link on different nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.quotas import load_steps, loaded_spans
from node.model.reasons import resource_taken
from node.model.spans import Span

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
TAKING = rf"^{_NAME}@[^\s@]{{1,253}}(:[1-9][0-9]{{0,5}})?$"
"""Pattern of what a task takes: a resource, its keeper, and the amount if it is not 1."""

RESOURCE = rf"^{_NAME}$"
"""Pattern of the name of a resource at its keeper."""

NUMBER_MAX = 1_000_000
"""Maximum number that there may be of a resource."""

_AMOUNT = re.compile(r":([1-9][0-9]{0,5})$")


def parse_taking(text: str) -> tuple[str, str, int]:
    """Return resource, keeper, and amount of a text in the form of :data:`TAKING`."""
    name, _, keeper = text.partition("@")
    amount = _AMOUNT.search(keeper)
    return (name, keeper, 1) if amount is None else (name, keeper[: amount.start()], int(amount[1]))


def taking_text(name: str, keeper: str, amount: int) -> str:
    """Return the text of what a task takes; the inverse of :func:`parse_taking`."""
    return f"{name}@{keeper}" if amount == 1 else f"{name}@{keeper}:{amount}"


def occupied_class(scheduling_class: SchedulingClass, *, keeps_only: bool) -> SchedulingClass:
    """Return the class as which runs occupy a host; they take no time of one that only keeps."""
    return SchedulingClass.BACKGROUND if keeps_only else scheduling_class


@dataclass(frozen=True)
class Use:
    """The amount that a run takes of a resource; ``fixed`` if it does not give way. Instants in µs.

    ``test`` and ``lead`` are of its task, and so is ``series``, if it has a budget of
    displacements: no two runs of it give way at once.
    """

    run: UUID
    starts_at: int
    ends_at: int
    amount: int
    rank: int
    priority: int
    fixed: bool = False
    test: str = ""
    lead: str = ""
    series: UUID | None = None

    @property
    def load(self) -> tuple[int, int, int]:
        """The span and the amount."""
        return self.starts_at, self.ends_at, self.amount


@dataclass(frozen=True)
class FullResource(LimitedTime):
    """Time in which too little is left of a resource, of which ``used`` of ``number`` are taken.

    A run takes ``amount``. ``by`` takes most of this time, if anything is taken.
    """

    resource: str = ""
    used: int = 0
    number: int = 0
    amount: int = 1
    by: Use | None = None


def full_spans(uses: Iterable[Use], number: int, amount: int) -> list[Span]:
    """Return where less than ``amount`` is left of a resource; everywhere is for the caller."""
    return loaded_spans((use.load for use in uses), max(1, number - amount + 1))


def full_time(name: str, number: int, amount: int, uses: Sequence[Use], span: Span) -> FullResource:
    """Return why a span, in which too little is left for this amount, is closed."""
    within = [use for use in uses if use.starts_at < span[1] and span[0] < use.ends_at]
    used = peak(within, span)
    by = max(
        within,
        key=lambda use: min(use.ends_at, span[1]) - max(use.starts_at, span[0]),
        default=None,
    )
    return FullResource(
        *span,
        rule=None,
        why=resource_taken(name, used, number, span[1], amount),
        reached=True,
        resource=name,
        used=used,
        number=number,
        amount=amount,
        by=by,
    )


def peak(uses: Iterable[Use], span: Span) -> int:
    """Return the most that is taken at an instant of a span."""
    steps = load_steps(use.load for use in uses)
    return max((load for at, end, load in steps if at < span[1] and span[0] < end), default=0)


def admit(
    uses: Sequence[Use], number: int, wanted: Use, gives_way: Callable[[Use], bool]
) -> list[UUID] | None:
    """Return the runs that have to give way for a run; None if it finds too little even then.

    Those of the lowest precedence go first; of what turns out needless, the highest stays.
    """
    span, most = (wanted.starts_at, wanted.ends_at), number - wanted.amount
    near = [use for use in uses if use.starts_at < span[1] and span[0] < use.ends_at]
    if peak(near, span) <= most:
        return []
    yielding = sorted((use for use in near if gives_way(use)), key=_precedence)
    gone: list[Use] = []
    for use in yielding:
        counted = use.series is not None and use.rank == wanted.rank
        if counted and any(it.series == use.series for it in gone):
            continue
        near.remove(use)
        gone.append(use)
        if peak(near, span) <= most:
            break
    else:
        return None
    for use in reversed(gone[:-1]):
        if peak([*near, use], span) <= most:
            near.append(use)
            gone.remove(use)
    return [use.run for use in gone]


def _precedence(use: Use) -> tuple[int, int, int, UUID]:
    return use.rank, use.priority, -use.starts_at, use.run
