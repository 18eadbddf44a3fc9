"""The rules by which runs count toward the limits of a campaign, and of those above it. Pure.

Episodes, bookings, and the overview of what is used all count by these functions: they differ in
the runs that they count. Limits on what runs have together at an instant leave time that is full;
limits on a sum, of booked time or of deliveries, leave an amount.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from lead.policy.throttle import active_limits, delivered_cap, quota
from lead.policy.throttle.active_limits import LimitLevel
from lead.policy.throttle.byte_quota import MovedBytes
from lead.policy.throttle.full_time import FullTime, full_times
from lead.policy.throttle.seat_budget import SpentTime
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import CampaignView, Charge
from node.model.seat_weights import SEAT
from node.model.spans import Span

SEATS_MAX = RefusalRule(
    Axis.THROTTLE,
    "seats",
    "{campaign} would hold {wanted} seats at once, of at most {most}",
)

DELIVERED_PERCENT = "delivered_percent"
DELIVERED = "delivered"
"""Limits on what is delivered within the fairshare windows: in percent, or in seat-µs."""
_BOOKED_TIME = {active_limits.SEAT_TIME: True, active_limits.TIME: False}
"""The limits on booked time, and whether it counts on each node."""


@dataclass(frozen=True, slots=True)
class CountedRun:
    """A booked run as limits count it.

    ``seats`` (thousandths) and ``needs`` (by counted resource) are those of all its nodes together.
    What it moves is in the ledger. If each node has a run of its own, these are ``runs``.
    """

    campaign: str
    start: int
    end: int
    nodes: int
    seats: int
    needs: Mapping[str, int] = field(default_factory=dict)
    runs: int = 1


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
    runs: int = 1

    @property
    def seat_time(self) -> int:
        """Return the seat-µs of a run."""
        return self.seats * self.duration // SEAT

    def run_at(self, start: int) -> CountedRun:
        """Return a run of the task as limits count it."""
        return self.over((start, start + self.duration))

    def over(self, span: Span) -> CountedRun:
        """Return a run that takes this time, as limits count it."""
        return CountedRun(self.campaign, *span, self.nodes, self.seats, self.needs, self.runs)


def lineage_of(campaign: str, campaigns: Mapping[str, CampaignView]) -> list[CampaignView]:
    """Return a campaign and those above it."""
    line = []
    name: str | None = campaign
    while name is not None and name in campaigns:
        line.append(campaigns[name])
        name = campaigns[name].parent
    return line


def descendants_of(holders: Collection[str], campaigns: Mapping[str, CampaignView]) -> list[str]:
    """Return the campaigns that are, or are below, one of these."""
    return [
        name
        for name in campaigns
        if any(each.name in holders for each in lineage_of(name, campaigns))
    ]


HourlySum = MovedBytes | SpentTime
"""A counter of what a campaign, with those below it, has within a period, past and booked."""


def bounded_over_time(campaign: CampaignView) -> bool:
    """Return whether a campaign has a quota or a budget of what it has within a period."""
    return campaign.byte_quota is not None or campaign.budget is not None


def bounded_at_once(campaign: CampaignView) -> bool:
    """Return whether a campaign has a limit on what its bookings have or take, but for sums."""
    return bool(campaign.limits or campaign.quotas) or campaign.seats_max is not None


def is_bounded(campaign: CampaignView) -> bool:
    """Return whether a campaign has a limit on what is booked, of any kind."""
    return bounded_at_once(campaign) or bounded_over_time(campaign)


def budget_periods(
    line: Iterable[CampaignView], campaigns: Mapping[str, CampaignView]
) -> list[tuple[str, str, int, int]]:
    """Return what to sum up for the budgets of these campaigns.

    For each of them with a budget: its name, and the name of itself or of one below, with the
    beginning and the end of the period.
    """
    return [
        (holder.name, name, budget.since, budget.until)
        for holder in line
        if (budget := holder.budget) is not None
        for name in descendants_of({holder.name}, campaigns)
    ]


def spent_with(
    spent: Mapping[str, int], charges: Iterable[Charge], campaigns: Mapping[str, CampaignView]
) -> dict[str, int]:
    """Return what is spent of budgets if these charges count as well."""
    total = dict(spent)
    for charge in charges:
        for holder in lineage_of(charge.campaign, campaigns):
            budget = holder.budget
            if budget is not None and budget.since <= charge.start < budget.until:
                total[holder.name] = total.get(holder.name, 0) + charge.amount
    return total


def hourly_sums(
    line: Iterable[CampaignView],
    campaigns: Mapping[str, CampaignView],
    moved: Mapping[str, Mapping[int, int]],
    spent: Mapping[str, int],
) -> Iterator[HourlySum]:
    """Yield what counts toward quotas of bytes and budgets of these campaigns."""
    for holder in line:
        if holder.budget is not None:
            yield SpentTime(holder.name, holder.budget, spent.get(holder.name, 0))
        yield from moved_bytes([holder], campaigns, moved)


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


@dataclass(frozen=True)
class _Bound:
    """A limit on what runs have together at each instant.

    ``amount`` is what a booked run has of it, ``own`` what the task's run would have.
    """

    most: int
    own: int
    amount: Callable[[CountedRun], int]
    refuse: Callable[[int], PolicyRefusal]


def full_at_once(
    holder: CampaignView, demand: RunDemand, runs: Sequence[CountedRun], level: LimitLevel
) -> Iterator[FullTime]:
    """Yield when a run would exceed what a holder may have at an instant, beside its ``runs``."""
    for bound in _bounds(holder, demand, level):
        uses = ((run.start, run.end, bound.amount(run)) for run in runs)
        yield from full_times(uses, bound.own, bound.most, bound.refuse)


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
        active_limits.RUNS: run.runs,
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


@dataclass(frozen=True)
class SumLimit:
    """A limit on a sum: what is used of it, and what each run of a task would take.

    ``find_refusal(amount)`` returns why so much more may not be booked, None if it may.
    """

    most: Fraction | int
    used: Fraction | int
    own: Fraction | int
    find_refusal: Callable[[Fraction | int], PolicyRefusal | None]

    @property
    def runs_left(self) -> int:
        """Return how many more runs it permits."""
        return max(0, int((self.most - self.used) // self.own))


def sum_limits(
    holder: CampaignView,
    demand: RunDemand,
    runs: Sequence[CountedRun],
    level: LimitLevel,
    delivered: delivered_cap.Delivered,
    now: int,
) -> Iterator[SumLimit]:
    """Yield the limits of a holder on booked time and on deliveries, beside its ``runs``."""
    name = holder.name
    for kind, by_node in _BOOKED_TIME.items():
        most = _ceiling(holder, kind, level)
        if most is not None:
            used = booked_time(runs, now, by_node=by_node)
            own = demand.duration * (demand.nodes if by_node else demand.runs)
            limited = active_limits.Holder(name, {kind: holder.limits[kind]}, {kind: used})
            yield SumLimit(most, used, own, partial(_find_time_refusal, limited, kind, level))
    percent, amount = (_ceiling(holder, kind, level) for kind in (DELIVERED_PERCENT, DELIVERED))
    seats = Fraction(demand.seats * demand.duration, SEAT)
    if not seats or (percent is None and amount is None):
        return
    had, total = seat_time(name, runs, delivered), delivered.total
    if percent is not None and total:
        cap = Fraction(percent, 100)
        find = partial(_find_part_refusal, name, had, total, cap)
        yield SumLimit(total * cap, had, seats, find)
    if amount is not None:
        find = partial(_find_amount_refusal, name, had, Fraction(amount))
        yield SumLimit(amount, had, seats, find)


def _find_time_refusal(
    holder: active_limits.Holder, kind: str, level: LimitLevel, more: Fraction | int
) -> PolicyRefusal | None:
    return active_limits.find_limit_refusal({kind: int(more)}, [holder], level)


def _find_part_refusal(
    holder: str, used: Fraction, total: Fraction, cap: Fraction, more: Fraction | int
) -> PolicyRefusal | None:
    return delivered_cap.find_part_refusal(holder, used, Fraction(more), total, cap)


def _find_amount_refusal(
    holder: str, used: Fraction, cap: Fraction, more: Fraction | int
) -> PolicyRefusal | None:
    return delivered_cap.find_amount_refusal(holder, used, Fraction(more), cap)


def booked_time(runs: Iterable[CountedRun], now: int, *, by_node: bool) -> int:
    """Return the time (µs) that booked runs still take, or with ``by_node`` on all their nodes."""
    return active_limits.outstanding_time(
        [(run.nodes if by_node else run.runs, run.end - max(run.start, now)) for run in runs]
    )


def seat_time(
    holder: str, runs: Iterable[CountedRun], delivered: delivered_cap.Delivered
) -> Fraction:
    """Return what a holder was delivered, and what its booked runs will deliver (seat-µs)."""
    booked = sum(run.seats * (run.end - run.start) for run in runs)
    return delivered.amount_of(holder) + Fraction(booked, SEAT)
