"""The time that the limits of campaigns leave for the runs of one task. Pure.

Limits bind every task, whoever chose its nodes. To the choice of a time they are one more
participant, which is busy while the campaign, or one above it, has all that it may have at once.
So the choice, the reasons, and the trace need nothing special for limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from uuid import UUID

from lead.planning.agenda import Slot
from lead.planning.placement import ChosenStart, Offer
from lead.policy.axes.throttle import DELIVERED, DELIVERED_PERCENT, SEATS_MAX
from lead.policy.share.decayed_windows import DecayWindows
from lead.policy.throttle import active_limits, delivered_cap, quota
from lead.policy.throttle.active_limits import LimitLevel
from lead.policy.throttle.byte_quota import MovedBytes
from lead.policy.throttle.full_time import FullTime, full_times
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import CampaignView, Charge
from node.model import times
from node.model.reason import Reason
from node.model.reasons import no_time_free
from node.model.seat_weights import SEAT
from node.model.spans import at_least, normalise, subtract
from node.model.task_terms import TaskTerms
from node.model.wire.participants import LimitReached, Proposal

_DELIVERED = (DELIVERED_PERCENT, DELIVERED)


@dataclass(frozen=True, slots=True)
class CountedRun:
    """A booked run as limits count it.

    ``seats`` (thousandths) and ``needs`` (by counted resource) are those of all its nodes together.
    What it moves is in the ledger.
    """

    campaign: str
    start: int
    end: int
    nodes: int
    seats: int
    needs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunDemand:
    """The demand of each run of a task, on all its nodes.

    ``duration`` is in microseconds; ``moves`` is in bytes, None if it is unknown.
    """

    campaign: str
    duration: int
    nodes: int
    seats: int
    needs: Mapping[str, int] = field(default_factory=dict)
    moves: int | None = 0

    def run_at(self, start: int) -> CountedRun:
        """Return a run of the task as limits count it."""
        end = start + self.duration
        return CountedRun(self.campaign, start, end, self.nodes, self.seats, self.needs)


@dataclass(frozen=True)
class CampaignRoom:
    """The room that the limits of a campaign, and of those above it, leave for runs of a task.

    ``full`` is the time in which another run would exceed a limit. ``runs_max`` is the number of
    runs that limits on booked time still permit, None without such a limit; ``exhausted`` refuses
    the next one. ``moved`` has what counts toward quotas of bytes, of which each run takes
    ``moves``.
    """

    campaign: str
    full: Sequence[FullTime] = ()
    runs_max: int | None = None
    exhausted: PolicyRefusal | None = None
    moved: Sequence[MovedBytes] = ()
    moves: int | None = 0

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

    def offer(self, slots: Sequence[Slot], duration: int, now: int) -> tuple[Offer, Proposal]:
        """Return the time left in these slots, and the limits reached in slots without any."""
        full = normalise([(each.start, each.end) for each in self.full])
        by_slot = [at_least(subtract([(slot.start, slot.end)], full), duration) for slot in slots]
        free = list(chain.from_iterable(by_slot))
        proposal = Proposal(
            now=now,
            horizon=max(slot.end for slot in slots),
            free=tuple(free),
            obstacles=tuple(
                self._reached(index, slots[index])
                for index, ranges in enumerate(by_slot)
                if not ranges
            ),
            reason=None if free else no_time_free(duration),
        )
        return Offer(self.name, free, free), proposal

    def _reached(self, window: int, slot: Slot) -> LimitReached:
        """Return the limit that is reached for longest in a slot."""
        longest = max(
            self.full,
            key=lambda each: min(each.end, slot.end) - max(each.start, slot.start),
        )
        return LimitReached(
            window=window,
            campaign=self.campaign,
            sentence=longest.refusal(slot.start, slot.end).reason,
            starts_at=max(longest.start, slot.start),
            ends_at=min(longest.end, slot.end),
        )


class RunAdmission:
    """Admits runs of a task one after the other, as far as limits leave room for all of them."""

    def __init__(self, room: CampaignRoom) -> None:
        """Begin with the room there is without them."""
        self._room = room
        self._left = room.runs_max
        self._moved = [each.copy() for each in room.moved]

    def refuse(self, start: int) -> Reason | None:
        """Return why a run must not be booked at ``start`` beside those admitted, or admit it."""
        room = self._room
        if self._left == 0 and room.exhausted is not None:
            return room.exhausted.reason
        for each in self._moved:
            if (refusal := each.find_refusal(start, room.moves)) is not None:
                return refusal.reason
        if self._left is not None:
            self._left -= 1
        for each in self._moved:
            each.add(start, room.moves or 0)
        return None


@dataclass(frozen=True)
class _Bound:
    """A limit on what runs have together at each instant.

    ``amount`` is what a booked run has of it, ``own`` what the task's run would have.
    """

    most: int
    own: int
    amount: Callable[[CountedRun], int]
    refuse: Callable[[int], PolicyRefusal]


def lineage_of(campaign: str, campaigns: Mapping[str, CampaignView]) -> list[CampaignView]:
    """Return a campaign and those above it."""
    line = []
    name: str | None = campaign
    while name is not None and name in campaigns:
        line.append(campaigns[name])
        name = campaigns[name].parent
    return line


def bounded_line(campaign: str, campaigns: Mapping[str, CampaignView]) -> list[CampaignView]:
    """Return those of a campaign and the ones above it that have limits on what is booked."""
    return [
        each
        for each in lineage_of(campaign, campaigns)
        if each.limits or each.quotas or each.byte_quota or each.seats_max is not None
    ]


def descendants_of(holders: Collection[str], campaigns: Mapping[str, CampaignView]) -> list[str]:
    """Return the campaigns that are, or are below, one of these."""
    return [
        name
        for name in campaigns
        if any(each.name in holders for each in lineage_of(name, campaigns))
    ]


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
    of campaigns by the hours in which runs start, past and booked.
    """

    runs: Sequence[CountedRun]
    delivered: Iterable[Charge] = ()
    moved: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Imagined:
    """The difference of a preview to what is booked.

    The booked runs of the task ``left_out`` do not count, except toward quotas of bytes. Runs with
    these starts, of tasks that would be planned ``before``, count as if they were booked.
    """

    left_out: UUID | None = None
    before: Sequence[tuple[TaskTerms, Sequence[int]]] = ()


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
    on_time: list[_RunsLeft] = []
    on_deliveries: list[_RunsLeft] = []
    for holder in line:
        counted = [run for run in runs if holder.name in above[run.campaign]]
        for bound in _bounds(holder, demand, level):
            uses = ((run.start, run.end, bound.amount(run)) for run in counted)
            full += full_times(uses, bound.own, bound.most, bound.refuse)
        on_time += _time_left(holder, demand, counted, level, now)
        on_deliveries += _deliveries_left(holder, demand, counted, level, delivered)
    moved = list(moved_bytes(line, campaigns, booked.moved))
    for each in moved:
        full += _full_of_bytes(each, demand)
    left = on_time + on_deliveries
    runs_max, exhausted = min(left, key=lambda each: each[0], default=(None, None))
    return CampaignRoom(demand.campaign, full, runs_max, exhausted, moved, demand.moves)


def moved_bytes(
    line: Iterable[CampaignView],
    campaigns: Mapping[str, CampaignView],
    moved: Mapping[str, Mapping[int, int]],
) -> Iterator[MovedBytes]:
    """Yield what counts toward the quotas of bytes of these campaigns, with those below each."""
    for holder in line:
        if holder.byte_quota is not None:
            hours: Counter[int] = Counter()
            for name in descendants_of({holder.name}, campaigns):
                hours.update(moved.get(name, {}))
            yield MovedBytes(holder.name, holder.byte_quota, hours)


def _full_of_bytes(moved: MovedBytes, demand: RunDemand) -> list[FullTime]:
    """Return the time that runs of a task must not touch, so that none starts in full hours."""
    if (never := moved.find_permanent_refusal(demand.moves)) is not None:
        return [FullTime.always(0, times.LATEST, never)]
    own = demand.moves or 0
    full = []
    for each in moved.full_hours(own):
        # A run may reach into full hours; but time that is busy must not be empty.
        start = each.start + demand.duration - 1
        start = start if start < each.end else each.start
        full.append(FullTime.always(start, each.end, moved.refusal_in(each, own)))
    return full


def _bounds(holder: CampaignView, demand: RunDemand, level: LimitLevel) -> Iterator[_Bound]:
    own_only = holder.name == demand.campaign
    if own_only and holder.seats_max is not None and demand.seats:
        yield _seats_bound(holder.name, holder.seats_max, demand)
    for resource, most in holder.quotas.items() if own_only else ():
        if demand.needs.get(resource):
            yield _quota_bound(holder.name, resource, most, demand)
    for kind, own in at_once(demand).items():
        if (ceiling := _ceiling(holder, kind, level)) is not None:
            yield _limit_bound(holder.name, kind, ceiling, own, level)


def _ceiling(holder: CampaignView, kind: str, level: LimitLevel) -> int | None:
    limit = holder.limits.get(kind)
    return None if limit is None else active_limits.limit_at(limit, level)


def at_once(run: RunDemand | CountedRun) -> dict[str, int]:
    """Return what a run takes of the kinds that count at an instant."""
    return {
        active_limits.RUNS: 1,
        active_limits.NODES: run.nodes,
        active_limits.SEATS: run.nodes,
    }


def _seats_bound(campaign: str, most: int, demand: RunDemand) -> _Bound:
    return _Bound(
        most * SEAT,
        demand.seats,
        lambda run: run.seats if run.campaign == campaign else 0,
        lambda wanted: SEATS_MAX.refuse(campaign=campaign, wanted=wanted / SEAT, most=most),
    )


def _quota_bound(campaign: str, resource: str, most: int, demand: RunDemand) -> _Bound:
    own = demand.needs[resource]
    return _Bound(
        most,
        own,
        lambda run: run.needs.get(resource, 0) if run.campaign == campaign else 0,
        lambda wanted: quota.QUOTA.refuse(
            campaign=campaign, resource=resource, used=wanted - own, wanted=own, quota=most
        ),
    )


def _limit_bound(holder: str, kind: str, most: int, own: int, level: LimitLevel) -> _Bound:
    return _Bound(
        most,
        own,
        lambda run: at_once(run)[kind],
        lambda wanted: active_limits.refusal_over(holder, kind, wanted, most, level),
    )


def booked_time(runs: Iterable[CountedRun], now: int, *, by_node: bool) -> int:
    """Return the time (µs) that booked runs still take, or with ``by_node`` on all their nodes."""
    left = ((max(0, run.end - max(run.start, now)), run.nodes if by_node else 1) for run in runs)
    return sum(time * count for time, count in left)


def seat_time(
    holder: str, runs: Iterable[CountedRun], delivered: delivered_cap.Delivered
) -> Fraction:
    """Return what a holder was delivered, and what its booked runs will deliver (seat-µs)."""
    booked = (Fraction(run.seats * (run.end - run.start), SEAT) for run in runs)
    return delivered.amount_of(holder) + sum(booked, Fraction())


_RunsLeft = tuple[int, PolicyRefusal]
"""The number of runs that a limit still permits, and the refusal of the next one."""


def _time_left(
    holder: CampaignView,
    demand: RunDemand,
    runs: Sequence[CountedRun],
    level: LimitLevel,
    now: int,
) -> Iterator[_RunsLeft]:
    """Yield how many more runs a holder's limits on booked time permit beside its ``runs``."""
    for kind, by_node in ((active_limits.SEAT_TIME, True), (active_limits.TIME, False)):
        most = _ceiling(holder, kind, level)
        if most is None:
            continue
        used = booked_time(runs, now, by_node=by_node)
        own = demand.duration * (demand.nodes if by_node else 1)
        left = max(0, most - used) // own
        wanted = used + (left + 1) * own
        yield left, active_limits.refusal_over(holder.name, kind, wanted, most, level)


def _deliveries_left(
    holder: CampaignView,
    demand: RunDemand,
    runs: Sequence[CountedRun],
    level: LimitLevel,
    delivered: delivered_cap.Delivered,
) -> Iterator[_RunsLeft]:
    """Yield how many more runs a holder's caps on deliveries permit; its booked ``runs`` count."""
    percent, amount = (_ceiling(holder, kind, level) for kind in _DELIVERED)
    own = Fraction(demand.seats * demand.duration, SEAT)
    if not own or (percent is None and amount is None):
        return
    used = seat_time(holder.name, runs, delivered)
    if percent is not None and delivered.total:
        cap = Fraction(percent, 100)
        left = max(0, int((delivered.total * cap - used) // own))
        part = (used + (left + 1) * own) / delivered.total
        yield left, delivered_cap.PART.refuse(campaign=holder.name, part=part, cap=cap)
    if amount is not None:
        left = max(0, int((amount - used) // own))
        wanted = used + (left + 1) * own
        refusal = delivered_cap.AMOUNT.refuse(campaign=holder.name, amount=wanted, cap=amount)
        yield left, refusal
