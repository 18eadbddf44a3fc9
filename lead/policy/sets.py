"""The named policy sets: compositions of the axes' algorithms, and nothing more.

A pool names one, and may answer single axes otherwise: by other parameters of what the set uses
there, or by another rule (``{"order": {"rule": "next-run"}, "share": {"window": "PT30M"}}``, see
``lead/policy/settings.py``). Both can be changed at any time; the next episode goes by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from lead.policy.axes import feasible, fill, order, preempt, select, share, throttle
from lead.policy.contracts import Feasible, Fill, Order, Preempt, Select, Share, Throttle
from lead.policy.feasible import availability, deferral
from lead.policy.lines import Together
from lead.policy.order import pacing
from lead.policy.order.weighted import Weights
from lead.policy.preempt.score import Urgency
from node.model import times


@dataclass(frozen=True, slots=True)
class PolicySet:
    """What answers each of the seven questions.

    By default: by next run, no shares, the least loaded nodes, lower priorities give way, no
    limits, the earliest gap, and any node that matches and is up.
    """

    order: Order = field(default_factory=order.NextRun)
    share: Share = field(default_factory=share.Unshared)
    select: Select = field(default_factory=select.LeastLoaded)
    preempt: Preempt = field(default_factory=preempt.LowerPriority)
    throttle: Throttle = field(default_factory=throttle.Throttled)
    fill: Fill = field(default_factory=fill.EarliestGap)
    feasible: Feasible = field(default_factory=feasible.Judged)
    apart: int = 0
    """The least time (µs) between the beginnings of two episodes of a pool."""


# -- one mechanism after the other -----------------------------------------------------------------

_PSCHEDULER = PolicySet()

_USAGE = PolicySet(
    order=order.ByCampaign(),
    share=share.ByUsage(),
    select=select.Affinity(),
    throttle=throttle.Throttled(seats=True),
)
_TIME = replace(_USAGE, share=share.ByCreation(), select=select.LeastLoaded())
_SLA = replace(
    _USAGE,
    order=order.ByCampaign(in_turn=True),
    share=share.Promised(),
    select=select.LeastLoaded(),
    preempt=preempt.Never(),
)
_URGENCY = Urgency(percent=Fraction(10), delay=10 * times.SECOND)

_QUEUES = PolicySet(order=order.ByStarts(), preempt=preempt.Never(), apart=pacing.APART)

_SERVICE = {"waiting": 1.0, "expansion": 10.0, "bypass": 5.0}
_PRIORITY = Weights(
    {
        "service": _SERVICE,
        "credential": {"campaign": 1.0, "parent": 1.0, "class": 1.0},
        "size": {"nodes": 1.0},
        "target": {"waiting": 1.0},
    }
)
_FAIRSHARE = Weights({**_PRIORITY.terms, "fairshare": {"campaign": 10.0, "parent": 10.0}})
_ORDERED = PolicySet(order=order.Weighted(), select=select.LastAvailable())
_WHOLE = replace(
    _ORDERED,
    preempt=preempt.Flagged(),
    throttle=throttle.Throttled(limits=True),
    fill=fill.Protected(),
    feasible=feasible.Judged(patience=deferral.PATIENCE),
)

_TURNS = PolicySet(order=order.ByRecentWork(), share=share.ByRecentWork(), preempt=preempt.Never())
_DEADLINES = replace(
    _TURNS, order=order.ByRecentWork(deadlines=True), feasible=feasible.Judged(alone=True)
)

# -- for pools -------------------------------------------------------------------------------------

DEFAULT: Final = "campaign-default"
_PASSED_MAX: Final = 20

_RECOMMENDED = PolicySet(
    order=order.LateFirst(order.Weighted(Weights({"service": _SERVICE}), longest=True)),
    share=share.ByUsage(together=Together.PARENT, entitled=True),
    select=select.Affinity(least_loaded=True),
    preempt=preempt.UrgentByScore(_URGENCY, others=preempt.LowerPriority()),
    throttle=throttle.Throttled(seats=True, quotas=True, limits=True),
    fill=fill.Protected(depth=1, passes=_PASSED_MAX),
    feasible=feasible.Judged(alone=True),
)

SETS: Final[dict[str, PolicySet]] = {
    DEFAULT: _RECOMMENDED,
    "pscheduler": _PSCHEDULER,
    "gridserver-usage": _USAGE,
    "gridserver-usage-aggregated": replace(
        _USAGE, share=share.ByUsage(together=Together.LEVEL, entitled=True)
    ),
    "gridserver-time": _TIME,
    "gridserver-serial-usage": replace(_USAGE, share=share.ByUsage(serial=True)),
    "gridserver-serial-time": replace(_TIME, share=share.ByCreation(serial=True)),
    "gridserver-urgent": replace(
        _USAGE, preempt=preempt.UrgentByScore(_URGENCY, others=preempt.Never())
    ),
    "gridserver-sla": _SLA,
    "gridserver-sla-preempt": replace(_SLA, preempt=preempt.TakenBack()),
    "gridserver-blacklist": replace(_USAGE, feasible=feasible.Judged(failures_max=1)),
    "fbsng-dynamic": _QUEUES,
    "fbsng-quota": replace(_QUEUES, throttle=throttle.Throttled(quotas=True)),
    "fbsng-partition": replace(_QUEUES, feasible=feasible.Judged(partition=True)),
    "fbsng-placement": replace(_QUEUES, select=select.Laid()),
    "maui-fifo": _WHOLE,
    "maui-priority": replace(_WHOLE, order=order.Weighted(_PRIORITY)),
    "maui-fairshare": replace(_WHOLE, order=order.Weighted(_FAIRSHARE), share=share.ByFairshare()),
    "maui-throttle": replace(_ORDERED, throttle=throttle.Throttled(limits=True)),
    "maui-backfill": replace(_ORDERED, order=order.Backfilled(), fill=fill.Protected()),
    "maui-nodes": replace(_ORDERED, select=select.ByFunction()),
    "maui-availability": replace(
        _ORDERED, feasible=feasible.Judged(counted=availability.Counted.COMBINED)
    ),
    "maui-preempt": replace(_ORDERED, preempt=preempt.Flagged()),
    "maui-defer": replace(_ORDERED, feasible=feasible.Judged(patience=deferral.PATIENCE)),
    "maui-reservations": replace(_ORDERED, fill=fill.Protected(depth=4)),
    "boinc-rrsim": _DEADLINES,
    "boinc-wrr": _TURNS,
    "boinc-edf": replace(_DEADLINES, feasible=feasible.Judged()),
    "boinc-fetch": replace(_DEADLINES, select=select.Fetching()),
    "boinc-backoff": replace(_TURNS, feasible=feasible.Judged(alone=True)),
}
"""By name; the first is the one recommended for pools."""
