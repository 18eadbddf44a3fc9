"""The view of a pool on which policies decide, built from what the lead has stored. Pure.

A term of a pool task is one candidate: its empty seats. What it takes of an hour is the duration of
all its slots in the first hour of those that are still open.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import starmap
from typing import Any

from lead.model.records import OpenTerm, PoolTask, UnplannedSeatTask
from lead.planning.agenda import Slot
from lead.planning.limited_time import UserRoom
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
    SeatBudget,
    TimedWeight,
)
from node.model import times
from node.model.byte_quotas import BYTES, byte_quota_of
from node.model.classes import SchedulingClass
from node.model.headline import target_of
from node.model.reason import Reason
from node.model.recurrence import Recurrence, nominal_starts, slip_of
from node.model.reservations import Applicant, ReservationSpan, admits
from node.model.scheduling import recurrence_of
from node.model.seat_weights import SEAT
from node.model.suspension import suspended_in
from node.model.terms import due_at
from node.model.wire.campaigns import SUSPENDED
from node.model.wire.campaigns import TimedWeight as TimedWeightDocument
from node.model.wire.seats import WORTH, SeatRequest
from node.model.wire.tasks import Schedule

LEDGER_LOOKBACK = 8 * times.DAY
"""Length of the ledger that is read; no policy weighs more of it by default."""

_FORGOTTEN_AFTER = 7 * times.DAY

_MEASURED = "target "
"""The beginning of keys of the memory that name what was measured, and not a series."""

_MEASURED_MAX = 500
"""Maximum number of targets and nodes that are remembered from one episode to the next."""


@dataclass(frozen=True)
class SeatCase:
    """One term of a pool task that needs nodes, which are identified by name.

    ``slots`` are those still open; ``begins`` is the first of them that is not ``closed``, or None.
    ``empty`` are the numbers of its empty seats; ``sitting`` has the known nodes of the others, of
    which ``held`` are occupied. ``before`` has each seat's previous node, ``used_at`` is the start
    of the last term in which each node had a seat. ``able`` nodes could have a seat; ``unable``
    nodes could not, with the reason. Nodes that had its seats keep them if it is ``sticky``, and
    come last if it is ``rotating``. ``user`` is what the limits of this host leave to its user.
    """

    pool_task: PoolTask
    request: SeatRequest
    open: OpenTerm
    recurrence: Recurrence
    slots: Sequence[int]
    empty: Sequence[int]
    able: Sequence[str]
    closed: ReservedTime
    begins: int | None
    unable: Mapping[str, Reason] = field(default_factory=dict)
    sitting: Mapping[int, str] = field(default_factory=dict)
    held: int = 0
    before: Mapping[int, str] = field(default_factory=dict)
    measured_to: Mapping[int, int] = field(default_factory=dict)
    used_at: Mapping[str, int] = field(default_factory=dict)
    sticky: bool = True
    rotating: bool = False
    user: UserRoom | None = None

    @property
    def name(self) -> str:
        """Return the name of the candidate: its task and its first slot."""
        return f"{self.pool_task.id} {times.format_instant(self.open.term.starts_at)}"

    @property
    def windows(self) -> list[Slot]:
        """Return the slots as the windows that nodes are asked for."""
        return windows_of(self.slots, self.recurrence, self.pool_task.terms.duration)

    @property
    def least(self) -> int:
        """Return the minimum number of nodes that it must get now."""
        if self.request.together:
            return len(self.empty)
        return max(1, self.request.suffices - len(self.sitting))

    @property
    def usual(self) -> frozenset[str]:
        """Return the nodes that had its seats before and should keep them."""
        return frozenset(self.before.values()) if self.sticky else frozenset()

    def in_order(self, ranked: Sequence[str]) -> list[str]:
        """Order nodes by rank; but seat holders come first if they stay, or last if they rotate."""
        if self.rotating:
            return sorted(ranked, key=lambda name: self.used_at.get(name, 0))
        return sorted(ranked, key=lambda name: name not in self.usual)


def windows_of(slots: Sequence[int], recurrence: Recurrence, duration: int) -> list[Slot]:
    """Return the windows in which the runs of these slots may be placed."""
    return [Slot(at, 1, at, at + duration + slip_of(recurrence, duration, at)) for at in slots]


def candidate_of(
    case: SeatCase, horizon: int, needs: Needs | None = None, moves: int | None = 0
) -> Candidate:
    """Return a case as policies see it. All nodes are to be ranked, so all are ``spare``.

    It has waited since its term became due, that is, since it entered the ``horizon``. Its test
    determines what it ``needs``, and what each of its runs ``moves`` on each node. Spread is left
    out: it depends on which nodes have time, which only asking shows.
    """
    task, starts_at = case.pool_task, case.slots[0] if case.begins is None else case.begins
    hour = starts_at // BUCKET * BUCKET
    coming = [slot for slot in case.slots if slot >= starts_at]
    in_hour = sum(slot < hour + BUCKET for slot in coming)
    terms = task.terms
    slip = slip_of(case.recurrence, terms.duration, starts_at)
    return Candidate(
        task=case.name,
        campaign=task.campaign,
        next_run_at=starts_at,
        duration=terms.duration if in_hour == 1 else min(BUCKET, in_hour * terms.duration),
        nodes=tuple(case.able),
        slip=slip,
        added_at=terms.created_at,
        scheduling_class=terms.scheduling_class,
        priority=terms.priority,
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
        moves=moves,
        series=str(task.id) if case.sticky else "",
        target=_MEASURED + (target_of(terms.spec) or "") if case.sticky else "",
        waits_since=max(terms.created_at, due_at(case.open.term, horizon)),
        runs=tuple((slot, slot + terms.duration) for slot in coming),
        blocked=case.open.blocked,
    )


def reservations_of(
    reserved: Sequence[ReservationSpan], nodes: Sequence[str], applicants: Mapping[str, Applicant]
) -> list[ReservationView]:
    """Return reserved time as policies see it; the rule of bookings decides whom it admits."""
    return [
        ReservationView(
            name=str(each.reservation),
            nodes=tuple(nodes),
            start=each.starts_at,
            end=each.ends_at,
            tasks=frozenset(
                name for name, applicant in applicants.items() if admits(each.access, applicant)
            ),
        )
        for each in reserved
    ]


def campaigns_of(stored: Iterable[tuple[Mapping[str, Any], int]]) -> dict[str, CampaignView]:
    """Return campaigns as policies see them, by name; all below a suspended one are suspended.

    ``stored`` has their settings, and when they were created.
    """
    views = {view.name: view for view in starmap(campaign_of, stored)}
    return {
        name: view if suspended_in(name, views) is None else replace(view, level=SUSPENDED)
        for name, view in views.items()
    }


def campaign_of(settings: Mapping[str, Any], created_at: int) -> CampaignView:
    """Return a campaign as policies see it, from its settings."""
    seats, share, lend = (settings[f"target_{word}"] for word in ("seats", "share", "lend"))
    fairshare, queue = settings["fairshare"], settings["queue"]
    return CampaignView(
        name=settings["name"],
        parent=settings["parent"],
        weight=exact_number(settings["weight"]),
        level=settings["level"],
        created_at=created_at,
        seats_max=settings["seats_max"],
        target=seats if share is None else Fraction(share),
        borrow=settings["target_borrow"],
        lend=Fraction(1 if lend is None else lend),
        fairshare=None
        if fairshare is None
        else FairshareView(exact_number(fairshare["part"]), FairshareKind(fairshare["kind"])),
        preemptor=settings["preemptor"],
        preemptee=settings["preemptee"],
        priority=settings["priority"],
        limits={word: LimitView(it["soft"], it["hard"]) for word, it in settings["limits"].items()},
        quotas={what: most for what, most in settings["quotas"].items() if what != BYTES},
        byte_quota=byte_quota_of(settings["quotas"]),
        budget=_budget_of(settings["budget"], created_at),
        queue=QueueView() if queue is None else _queue_of(queue),
        timed_weights=[
            TimedWeight(exact_number(it.weight), it.opening)
            for it in map(TimedWeightDocument.model_validate, settings["timed_weights"])
        ],
    )


def _budget_of(budget: Mapping[str, Any] | None, created_at: int) -> SeatBudget | None:
    """Return a stored budget; without a beginning it began with its campaign."""
    if budget is None:
        return None
    since = created_at if budget["since"] is None else times.parse_instant(budget["since"])
    most = int(exact_number(budget["seat_hours"]) * times.HOUR)
    return SeatBudget(most, since - since % times.HOUR, times.parse_instant(budget["until"]))


def _queue_of(queue: Mapping[str, Any]) -> QueueView:
    values = {word: value for word, value in queue.items() if value is not None}
    passes = values.pop("passes", None)
    return QueueView(**{word: exact_number(value) for word, value in values.items()}, passes=passes)


def charges_of(used: Iterable[tuple[str, int, int]]) -> list[Charge]:
    """Return the ledger by hour, from campaign, hour, and thousandths of a seat times µs."""
    return [
        Charge(campaign, hour, hour + BUCKET, amount // SEAT) for campaign, hour, amount in used
    ]


def runs_to_come(
    seat_task: UnplannedSeatTask, names: Mapping[str, str], ahead: int, needs: Needs, most: int
) -> list[PostedRun]:
    """Return the first runs, up to ``ahead``, of a seat that is given but not booked yet."""
    recurrence = recurrence_of(Schedule.model_validate(seat_task.schedule), seat_task.created_at)
    slots = nominal_starts(recurrence, recurrence.anchor - 1, ahead, most)
    windows = windows_of(slots, recurrence, seat_task.duration)
    starts = [_start_in(window, seat_task) for window in windows]
    return [
        PostedRun(
            run=f"{seat_task.task} {times.format_instant(slot)}",
            task=str(seat_task.task),
            campaign=seat_task.campaign,
            nodes=tuple(names[node] for node in seat_task.nodes if node in names),
            start=start,
            end=start + seat_task.duration,
            scheduling_class=SchedulingClass(seat_task.scheduling_class),
            priority=seat_task.priority,
            needs=needs,
        )
        for slot, start in zip(slots, starts, strict=True)
    ]


def _start_in(window: Slot, seat_task: UnplannedSeatTask) -> int:
    """Return the start of a slot's run: the one found before, else the earliest."""
    index = bisect_left(seat_task.starts, window.start)
    known_starts = seat_task.starts[index : index + 1]
    if known_starts and known_starts[0] + seat_task.duration <= window.end:
        return known_starts[0]
    return window.start


def charges_to_come(runs: Iterable[PostedRun], lanes: int) -> list[Charge]:
    """Return what these runs will be charged; ``lanes`` normal runs side by side are a seat."""
    parts = {SchedulingClass.EXCLUSIVE: 1, SchedulingClass.NORMAL: lanes}
    return [
        Charge(run.campaign, run.start, run.end, (run.end - run.start) * len(run.nodes) // part)
        for run in runs
        if (part := parts.get(run.scheduling_class)) is not None
    ]


def remembered_state(state: RememberedState, cases: Sequence[SeatCase]) -> RememberedState:
    """Return the policies' state with each seat's previous nodes as earlier measurements."""
    own = {
        (case.pool_task.campaign, name, str(case.pool_task.id)): case.pool_task.terms.created_at
        for case in cases
        for name in case.usual
    }
    return replace(state, measured={**state.measured, **own})


def state_to_keep(state: RememberedState, now: int) -> RememberedState:
    """Return what to store until the next episode: nothing that is over or known from the seats.

    Of what was measured, the newest of each target is kept.
    """
    of_targets = ((key, at) for key, at in state.measured.items() if key[2].startswith(_MEASURED))
    newest = sorted(of_targets, key=lambda it: it[1], reverse=True)[:_MEASURED_MAX]

    def recent(name: str) -> bool:
        instant = name.rpartition(" ")[2]
        return times.parse_instant(instant) > now - _FORGOTTEN_AFTER

    return replace(
        state,
        measured={key: at for key, at in newest if at > now - _FORGOTTEN_AFTER},
        passes={name: it for name, it in state.passes.items() if recent(name)},
        deferrals={name: it for name, it in state.deferrals.items() if recent(name)},
        eligible_since={name: it for name, it in state.eligible_since.items() if recent(name)},
        slots={name: it for name, it in state.slots.items() if it.start >= now},
        held=tuple(filter(recent, state.held)),
        favoured=tuple(filter(recent, state.favoured)),
        backoffs={
            key: it for key, it in state.backoffs.items() if it.until > now - _FORGOTTEN_AFTER
        },
    )
