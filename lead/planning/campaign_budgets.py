"""The use that campaigns make of limits and quotas: now, and at most with what is booked. Pure.

It counts by :mod:`lead.policy.limit_counting`, as all that refuses what exceeds a limit does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lead.planning.campaign_room import Counted
from lead.policy.limit_counting import (
    DELIVERED,
    DELIVERED_PERCENT,
    CountedRun,
    at_once,
    booked_time,
    lineage_of,
    moved_bytes,
    seat_time,
)
from lead.policy.share.decayed_windows import DecayWindows
from lead.policy.throttle import active_limits, delivered_cap
from lead.policy.view import CampaignView
from node.model import times
from node.model.byte_quotas import BYTES
from node.model.limits import to_worded_limits
from node.model.seat_weights import SEAT
from node.model.wire.campaigns import Budget

SEATS_MAX = "seats_max"
SEAT_HOURS = "seat_hours"


def budgets_of(
    campaigns: Mapping[str, CampaignView], booked: Counted, now: int
) -> dict[str, tuple[Budget, ...]]:
    """Return by campaign what it uses of its limits and quotas; those without any are missing.

    Limits on due runs are left out: these are counted when runs are considered.
    """
    above = {name: {each.name for each in lineage_of(name, campaigns)} for name in campaigns}
    delivered = delivered_cap.Delivered.from_ledger(
        booked.delivered, now, DecayWindows(), lambda name: sorted(above.get(name, {name}))
    )
    found = {}
    for name, holder in campaigns.items():
        runs = [run for run in booked.runs if name in above.get(run.campaign, ())]
        each = (
            *_limits(holder, runs, delivered, now),
            *_own(holder, [run for run in runs if run.campaign == name], now),
            *_bytes(holder, campaigns, booked, now),
            *_seat_time(holder, booked, now),
        )
        if each:
            found[name] = each
    return found


def _limits(
    holder: CampaignView, runs: Sequence[CountedRun], delivered: delivered_cap.Delivered, now: int
) -> Iterator[Budget]:
    """Yield the limits that count the campaigns below, too."""
    stored = {kind: {"soft": it.soft, "hard": it.hard} for kind, it in holder.limits.items()}
    for kind in holder.limits:
        ((word, bounds),) = to_worded_limits({kind: stored[kind]}).items()
        if kind in active_limits.AT_ONCE:
            used, peak = _standing(((run.start, run.end, at_once(run)[kind]) for run in runs), now)
            yield Budget(what=word, **bounds, used=used, peak=peak)
        elif (amount := _amount(kind, holder.name, runs, delivered, now)) is not None:
            yield Budget(what=word, **bounds, used=amount, peak=amount)


def _amount(
    kind: str,
    holder: str,
    runs: Sequence[CountedRun],
    delivered: delivered_cap.Delivered,
    now: int,
) -> float | None:
    """Return how much of booked time or of deliveries counts, None for other kinds of limits."""
    if kind in {active_limits.TIME, active_limits.SEAT_TIME}:
        by_node = kind == active_limits.SEAT_TIME
        return booked_time(runs, now, by_node=by_node) / times.SECOND
    used = seat_time(holder, runs, delivered)
    if kind == DELIVERED:
        return float(used / times.SECOND)
    if kind == DELIVERED_PERCENT:
        return float(100 * used / delivered.total) if delivered.total else 0.0
    return None


def _own(holder: CampaignView, runs: Sequence[CountedRun], now: int) -> Iterator[Budget]:
    """Yield the limits that count the campaign's own runs only: its seats, and its quotas."""
    if holder.seats_max is not None:
        used, peak = _standing(((run.start, run.end, run.seats) for run in runs), now)
        yield Budget(
            what=SEATS_MAX, soft=None, hard=holder.seats_max, used=used / SEAT, peak=peak / SEAT
        )
    for resource, most in holder.quotas.items():
        uses = ((run.start, run.end, run.needs.get(resource, 0)) for run in runs)
        used, peak = _standing(uses, now)
        yield Budget(what=resource, soft=None, hard=most, used=used, peak=peak)


def _bytes(
    holder: CampaignView, campaigns: Mapping[str, CampaignView], booked: Counted, now: int
) -> Iterator[Budget]:
    """Yield the quota of bytes: what moves within a period that ends with this hour or later."""
    for moved in moved_bytes([holder], campaigns, booked.moved):
        used, peak = moved.current_and_peak(now)
        quota = moved.quota
        yield Budget(
            what=BYTES, soft=None, hard=quota.most, used=used, peak=peak, period=quota.period
        )


def _seat_time(holder: CampaignView, booked: Counted, now: int) -> Iterator[Budget]:
    """Yield the budget of seat-time, unless it is over."""
    budget = holder.budget
    if budget is not None and now < budget.until:
        used = booked.spent.get(holder.name, 0) / times.HOUR
        yield Budget(
            what=SEAT_HOURS,
            soft=None,
            hard=budget.most / times.HOUR,
            used=used,
            peak=used,
            until=budget.until,
        )


def _standing(uses: Iterable[tuple[int, int, int]], now: int) -> tuple[int, int]:
    """Return how much is in use now, and the most from now on.

    ``uses`` are start, end, and amount.
    """
    changes: Counter[int] = Counter()
    for start, end, amount in uses:
        if end > now:
            changes[max(start, now)] += amount
            changes[end] -= amount
    used = peak = changes.get(now, 0)
    current = 0
    for at in sorted(changes):
        current += changes[at]
        peak = max(peak, current)
    return used, peak
