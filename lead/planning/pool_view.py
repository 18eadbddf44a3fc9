"""The view of a pool that policies decide on, made of what the lead has stored. Pure.

A term of a pool task is one candidate: its empty seats. What it takes of an hour is the time of all
its slots in the first hour of those that are still open.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from lead.model import OpenTerm, PoolTask, UnplannedSeatTask
from lead.planning.agenda import Slot
from lead.planning.node_views import comparable_value, exact_number
from lead.planning.reserved import ReservedTime
from lead.policy.view import (
    BUCKET,
    CampaignView,
    Candidate,
    Charge,
    FairshareKind,
    FairshareView,
    LimitView,
    Needs,
    PostedRun,
    QueueView,
    RememberedState,
    ReservationView,
)
from node.model import times
from node.model.classes import SchedulingClass
from node.model.recurrence import Recurrence, nominal_starts, slip_of
from node.model.reservations import Applicant, ReservationSpan, admits
from node.model.scheduling import recurrence_of
from node.model.terms import due_at
from node.model.wire.seats import WORTH, SeatRequest
from node.model.wire.tasks import Schedule

_THOUSANDTHS = 1000
_FORGOTTEN = 7 * times.DAY


@dataclass(frozen=True)
class SeatCase:
    """One term of a pool task that wants nodes; they are known by their names.

    ``slots`` are those still open, ``begins`` is the first of them that is not ``closed``, if there
    is one. ``empty`` are the numbers of its empty seats; ``sitting`` have the others, as far as
    they are known here: so many are ``held``. ``before`` had the seats last, ``used_at`` is the
    start of the last term in which each node had one. ``able`` could have a seat, ``unable`` could
    not, and why.
    """

    whole: PoolTask
    request: SeatRequest
    open: OpenTerm
    recurrence: Recurrence
    slots: Sequence[int]
    empty: Sequence[int]
    able: Sequence[str]
    closed: ReservedTime
    begins: int | None
    unable: Mapping[str, str] = field(default_factory=dict)
    sitting: Mapping[int, str] = field(default_factory=dict)
    held: int = 0
    before: Mapping[int, str] = field(default_factory=dict)
    measured_to: Mapping[int, int] = field(default_factory=dict)
    used_at: Mapping[str, int] = field(default_factory=dict)
    sticky: bool = True

    @property
    def name(self) -> str:
        """What it is called among candidates: its task and its first slot."""
        return f"{self.whole.id} {times.format_instant(self.open.term.starts_at)}"

    @property
    def windows(self) -> list[Slot]:
        """The slots, as nodes are asked for them."""
        return windows_of(self.slots, self.recurrence, self.whole.terms.duration)

    @property
    def least(self) -> int:
        """How many nodes it must be given now, to have as many as suffice."""
        if self.request.together:
            return len(self.empty)
        return max(1, self.request.suffices - len(self.sitting))

    @property
    def usual(self) -> frozenset[str]:
        """The nodes that had its seats before and are to have them again."""
        return frozenset(self.before.values()) if self.sticky else frozenset()

    def in_order(self, ranked: Sequence[str]) -> list[str]:
        """Nodes as policies rank them; but who had a seat stays, or is last where they rotate."""
        if self.sticky:
            return sorted(ranked, key=lambda name: name not in self.usual)
        return sorted(ranked, key=lambda name: self.used_at.get(name, 0))


def windows_of(slots: Sequence[int], recurrence: Recurrence, duration: int) -> list[Slot]:
    """Where the runs of these slots may be placed."""
    return [Slot(at, 1, at, at + duration + slip_of(recurrence, duration, at)) for at in slots]


def candidate_of(case: SeatCase, horizon: int, needs: Needs | None = None) -> Candidate:
    """A case as policies see it. All nodes are to be ranked, so all are ``spare``.

    It waits since its term became due, which is known of the ``horizon``. What it needs its test
    says. Spread is not its affair: that goes by who has time, which only those who are asked know.
    """
    whole, first = case.whole, case.slots[0] if case.begins is None else case.begins
    hour = first // BUCKET * BUCKET
    coming = [slot for slot in case.slots if slot >= first]
    in_hour = sum(slot < hour + BUCKET for slot in coming)
    slip = slip_of(case.recurrence, whole.terms.duration, first)
    return Candidate(
        task=case.name,
        campaign=whole.campaign,
        next_run_at=first,
        duration=whole.terms.duration
        if in_hour == 1
        else min(BUCKET, in_hour * whole.terms.duration),
        nodes=tuple(case.able),
        slip=slip,
        added_at=whole.terms.created_at,
        scheduling_class=whole.terms.scheduling_class,
        priority=whole.terms.priority,
        k=len(case.empty),
        k_min=min(case.least, len(case.empty)),
        spare=len(case.able),
        together=case.request.together,
        prefer={
            (attribute, comparable_value(value)): WORTH
            for attribute, values in case.request.prefer.items()
            for value in values
        },
        needs=needs or {},
        target=str(whole.id) if case.sticky else "",
        affinity_wait=slip if case.sticky else 0,
        waits_since=max(whole.terms.created_at, due_at(case.open.term, horizon)),
        runs=tuple((slot, slot + whole.terms.duration) for slot in coming),
    )


def reservations_of(
    reserved: Sequence[ReservationSpan], nodes: Sequence[str], applicants: Mapping[str, Applicant]
) -> list[ReservationView]:
    """Reserved time of these nodes as policies see it; the rule of bookings says whom it admits."""
    return [
        ReservationView(
            name=str(each.reservation),
            nodes=tuple(nodes),
            start=each.starts_at,
            end=each.ends_at,
            tasks=frozenset(
                name for name, whose in applicants.items() if admits(each.access, whose)
            ),
        )
        for each in reserved
    ]


def campaign_of(settings: Mapping[str, Any], created_at: int) -> CampaignView:
    """A campaign as policies see it, from what was said of it."""
    seats, share = settings["target_seats"], settings["target_share"]
    fairshare, queue = settings["fairshare"], settings["queue"]
    return CampaignView(
        name=settings["name"],
        parent=settings["parent"],
        weight=exact_number(settings["weight"]),
        level=settings["level"],
        created_at=created_at,
        seats_max=settings["seats_max"],
        target=seats if share is None else Fraction(share),
        fairshare=None
        if fairshare is None
        else FairshareView(exact_number(fairshare["part"]), FairshareKind(fairshare["kind"])),
        preemptor=settings["preemptor"],
        preemptee=settings["preemptee"],
        priority=settings["priority"],
        limits={word: LimitView(it["soft"], it["hard"]) for word, it in settings["limits"].items()},
        quotas=dict(settings["quotas"]),
        queue=QueueView() if queue is None else _queue_of(queue),
    )


def _queue_of(queue: Mapping[str, Any]) -> QueueView:
    given = {word: value for word, value in queue.items() if value is not None}
    passes = given.pop("passes", None)
    return QueueView(**{word: exact_number(value) for word, value in given.items()}, passes=passes)


def charges_of(used: Iterable[tuple[str, int, int]]) -> list[Charge]:
    """The ledger, hour by hour: campaign, hour, and thousandths of a seat times microseconds."""
    return [
        Charge(campaign, hour, hour + BUCKET, amount // _THOUSANDTHS)
        for campaign, hour, amount in used
    ]


def runs_to_come(
    given: UnplannedSeatTask, names: Mapping[str, str], ahead: int, needs: Needs, most: int
) -> list[PostedRun]:
    """The first runs of a seat that is given, and not booked yet, up to an instant."""
    recurrence = recurrence_of(Schedule.model_validate(given.schedule), given.created_at)
    slots = nominal_starts(recurrence, recurrence.anchor - 1, ahead, most)
    windows = windows_of(slots, recurrence, given.duration)
    starts = [_start_in(window, given) for window in windows]
    return [
        PostedRun(
            run=f"{given.task} {times.format_instant(slot)}",
            task=str(given.task),
            campaign=given.campaign,
            nodes=tuple(names[node] for node in given.nodes if node in names),
            start=start,
            end=start + given.duration,
            scheduling_class=SchedulingClass(given.scheduling_class),
            priority=given.priority,
            needs=needs,
        )
        for slot, start in zip(slots, starts, strict=True)
    ]


def _start_in(window: Slot, given: UnplannedSeatTask) -> int:
    """When the run of a slot is to start: as was found, else as early as it can."""
    at = bisect_left(given.starts, window.start)
    found = given.starts[at : at + 1]
    return found[0] if found and found[0] + given.duration <= window.end else window.start


def charges_to_come(runs: Iterable[PostedRun], lanes: int) -> list[Charge]:
    """What they will be charged for: ``lanes`` normal ones side by side are a seat."""
    parts = {SchedulingClass.EXCLUSIVE: 1, SchedulingClass.NORMAL: lanes}
    return [
        Charge(run.campaign, run.start, run.end, (run.end - run.start) * len(run.nodes) // part)
        for run in runs
        if (part := parts.get(run.scheduling_class)) is not None
    ]


def remembered_state(state: RememberedState, cases: Sequence[SeatCase]) -> RememberedState:
    """What policies remember, with who measured what before: that is said by the seats."""
    measured = {
        (case.whole.campaign, name, str(case.whole.id)): case.whole.terms.created_at
        for case in cases
        for name in case.usual
    }
    return replace(state, measured=measured)


def state_to_keep(state: RememberedState, now: int) -> RememberedState:
    """What is remembered until the next episode: nothing that is over, or said by the seats."""

    def recent(name: str) -> bool:
        instant = name.rpartition(" ")[2]
        return times.parse_instant(instant) > now - _FORGOTTEN

    return replace(
        state,
        measured={},
        passes={name: it for name, it in state.passes.items() if recent(name)},
        deferrals={name: it for name, it in state.deferrals.items() if recent(name)},
        eligible_since={name: it for name, it in state.eligible_since.items() if recent(name)},
        slots={name: it for name, it in state.slots.items() if it.start >= now},
        backoffs={key: it for key, it in state.backoffs.items() if it.until > now - _FORGOTTEN},
    )
