"""The time that the limits of campaigns leave for the runs of one task. Pure.

Limits bind every task, whoever chose its nodes. Time is closed while the campaign, or one above it,
has all that it may have at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from lead.planning.agenda import Slot
from lead.planning.closures import ClosedSpan, OwnOffer, offer_outside
from lead.planning.placement import ChosenStart
from lead.policy.limit_counting import (
    DELIVERED,
    DELIVERED_PERCENT,
    CountedRun,
    HourlySum,
    RunDemand,
    SumLimit,
    full_at_once,
    hourly_sums,
    is_bounded,
    lineage_of,
    sum_limits,
)
from lead.policy.share.decayed_windows import DecayWindows
from lead.policy.throttle import active_limits, delivered_cap
from lead.policy.throttle.active_limits import LimitLevel
from lead.policy.throttle.full_time import FullTime
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import CampaignView, Charge
from node.model import times
from node.model.reason import Reason
from node.model.task_terms import TaskTerms
from node.model.wire.participants import LimitReached

_DELIVERED = (DELIVERED_PERCENT, DELIVERED)


@dataclass(frozen=True)
class CampaignRoom:
    """The room that the limits of a campaign, and of those above it, leave for runs of a task.

    ``full`` is the time in which another run would exceed a limit. ``runs_max`` is the number of
    runs that limits on booked time still permit, None without such a limit; ``exhausted`` refuses
    the next one. ``sums`` has what counts toward quotas of bytes and budgets, each with what a run
    takes of it.
    """

    campaign: str
    full: Sequence[FullTime] = ()
    runs_max: int | None = None
    exhausted: PolicyRefusal | None = None
    sums: Sequence[tuple[HourlySum, int | None]] = ()

    @property
    def name(self) -> str:
        """Return the name under which it appears among the participants."""
        return f"campaign {self.campaign}"

    @property
    def binds(self) -> bool:
        """Return whether a limit leaves less time than there would be without it."""
        return bool(self.full) or self.exhausted is not None

    def why_not(self, start: int, end: int) -> Reason | None:
        """Return why a run must not take this time, None if it is within all limits."""
        within = (each for each in self.full if each.start < end and start < each.end)
        return next((each.refusal(start, end).reason for each in within), None)

    def first(self, choices: Sequence[ChosenStart]) -> tuple[list[ChosenStart], dict[int, Reason]]:
        """Return the choices that may be booked, and by nominal start why others may not."""
        admission = RunAdmission(self)
        admitted: list[ChosenStart] = []
        beyond: dict[int, Reason] = {}
        for choice in choices:
            if (why := admission.refuse(choice.starts_at)) is None:
                admitted.append(choice)
            else:
                beyond[choice.slot.nominal] = why.at(self.name)
        return admitted, beyond

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> OwnOffer:
        """Return the time in these slots in which no limit is reached."""
        return offer_outside(
            self.name, list(map(self._closed_span, self.full)), slots, duration, now
        )

    def _closed_span(self, full: FullTime) -> ClosedSpan:
        def reached(window: int, slot: Slot) -> LimitReached:
            return LimitReached(
                window=window,
                campaign=self.campaign,
                sentence=full.refusal(slot.start, slot.end).reason,
                starts_at=max(full.start, slot.start),
                ends_at=min(full.end, slot.end),
            )

        return ClosedSpan(full.start, full.end, reached)


class RunAdmission:
    """Admits runs of a task one after the other, as far as limits leave room for all of them."""

    def __init__(self, room: CampaignRoom) -> None:
        """Begin with the room there is without them."""
        self._room = room
        self._left = room.runs_max
        self._sums = [(each.copy(), own) for each, own in room.sums]

    def refuse(self, start: int) -> Reason | None:
        """Return why a run must not be booked at ``start`` beside those admitted, or admit it."""
        room = self._room
        if self._left == 0 and room.exhausted is not None:
            return room.exhausted.reason
        for each, own in self._sums:
            if (refusal := each.find_refusal(start, own)) is not None:
                return refusal.reason
        if self._left is not None:
            self._left -= 1
        for each, own in self._sums:
            each.add(start, own or 0)
        return None


def bounded_line(campaign: str, campaigns: Mapping[str, CampaignView]) -> list[CampaignView]:
    """Return those of a campaign and the ones above it that have limits on what is booked."""
    return [each for each in lineage_of(campaign, campaigns) if is_bounded(each)]


def limits_time(campaign: CampaignView) -> bool:
    """Return whether a campaign has a limit on all its booked time, however far ahead."""
    kinds = (active_limits.SEAT_TIME, active_limits.TIME, *_DELIVERED)
    return not campaign.limits.keys().isdisjoint(kinds)


def limits_delivered(campaign: CampaignView) -> bool:
    """Return whether a campaign has a limit on what it was delivered within the last days."""
    return not campaign.limits.keys().isdisjoint(_DELIVERED)


@dataclass(frozen=True)
class Counted:
    """Runs that are booked and not over, and the ledger: all that counts toward limits.

    ``delivered`` is what all campaigns were delivered within the last days; ``moved`` has the bytes
    of campaigns by the hours in which runs start, past and booked; ``spent`` what campaigns with a
    budget, and those below each, have used or booked of it (seat-µs).
    """

    runs: Sequence[CountedRun]
    delivered: Iterable[Charge] = ()
    moved: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    spent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Imagined:
    """The difference of a preview to what is booked.

    The booked runs of the task ``left_out`` do not count, except toward quotas of bytes and
    budgets. Runs with these starts, of tasks that would be planned ``before``, count as if they
    were booked. Booked runs that are ``gone``, by task and start, have given way to these.
    """

    left_out: UUID | None = None
    before: Sequence[tuple[TaskTerms, Sequence[int]]] = ()
    gone: Collection[tuple[UUID, int]] = ()

    def counts(self, task: UUID, starts_at: int) -> bool:
        """Return whether a booked run counts."""
        return task != self.left_out and (task, starts_at) not in self.gone


def room_for(
    demand: RunDemand,
    campaigns: Mapping[str, CampaignView],
    booked: Counted,
    level: LimitLevel,
    now: int,
) -> CampaignRoom:
    """Return the room for runs of a task beside what is ``booked``."""
    runs = booked.runs
    line = lineage_of(demand.campaign, campaigns)
    above = {run.campaign: {it.name for it in lineage_of(run.campaign, campaigns)} for run in runs}
    delivered = delivered_cap.Delivered.from_ledger(
        booked.delivered,
        now,
        DecayWindows(),
        lambda name: (each.name for each in lineage_of(name, campaigns)),
    )
    full: list[FullTime] = []
    sums: list[SumLimit] = []
    for holder in line:
        counted = [run for run in runs if holder.name in above[run.campaign]]
        full += full_at_once(holder, demand, counted, level)
        sums += sum_limits(holder, demand, counted, level, delivered, now)
    counted_sums = [
        (each, each.wanted(demand.moves, demand.seat_time))
        for each in hourly_sums(line, campaigns, booked.moved, booked.spent)
    ]
    for each, own in counted_sums:
        full += _full_of_sum(each, own, demand.duration)
    least = min(sums, key=lambda each: each.runs_left, default=None)
    runs_max = None if least is None else least.runs_left
    exhausted = None if least is None else least.find_refusal((least.runs_left + 1) * least.own)
    return CampaignRoom(demand.campaign, full, runs_max, exhausted, counted_sums)


def _full_of_sum(counted: HourlySum, wanted: int | None, duration: int) -> list[FullTime]:
    """Return the time that runs of a task must not touch, so that none starts in full hours."""
    if (never := counted.find_permanent_refusal(wanted)) is not None:
        return [FullTime.always(0, times.LATEST, never)]
    own = wanted or 0
    full = []
    for each in counted.full_hours(own):
        # A run may reach into full hours; but time that is busy must not be empty.
        start = each.start + duration - 1
        start = start if start < each.end else each.start
        full.append(FullTime.always(start, each.end, counted.refusal_in(each, own)))
    return full
