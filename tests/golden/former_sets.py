"""The thirty sets that there were, as compositions of rules: what their names still stand for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final

from lead.policy.axes import feasible, fill, order, preempt, select, share
from lead.policy.campaign_grouping import CampaignGrouping
from lead.policy.feasible import availability, deferral
from lead.policy.order import pacing
from lead.policy.order.weighted import Weights
from lead.policy.preempt.score import Urgency
from lead.policy.sets import PolicyComposition
from node.model import times

_PSCHEDULER = PolicyComposition()

_USAGE = PolicyComposition(
    order=order.ByCampaign(),
    share=share.ByUsage(),
    select=select.Affinity(),
)
_TIME = replace(_USAGE, share=share.ByCreation(), select=select.LeastLoaded(), keeps_nodes=False)
_SLA = replace(
    _USAGE,
    order=order.ByCampaign(in_turn=True),
    share=share.ByPromise(),
    select=select.LeastLoaded(),
    preempt=preempt.Never(),
    keeps_nodes=False,
)
_URGENCY = Urgency(percent=Fraction(10), delay=10 * times.SECOND)

_QUEUES = PolicyComposition(
    order=order.ByStarts(),
    share=share.ByStartCounts(),  # since contested time is divided
    preempt=preempt.Never(),
    apart=pacing.EPISODE_SPACING,
)

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
_ORDERED = PolicyComposition(order=order.Weighted(), select=select.LastAvailable())
_WHOLE = replace(
    _ORDERED,
    preempt=preempt.Flagged(),
    fill=fill.Protected(),
    feasible=feasible.FeasibilityRules(patience=deferral.PATIENCE),
)

_TURNS = PolicyComposition(
    order=order.ByRecentWorkOrder(), share=share.ByRecentWorkShare(), preempt=preempt.Never()
)
_DEADLINES = replace(
    _TURNS,
    order=order.ByRecentWorkOrder(deadlines=True),
    feasible=feasible.FeasibilityRules(alone=True),
)

_PASSED_MAX: Final = 20

_RECOMMENDED = PolicyComposition(
    order=order.LateFirst(order.Weighted(Weights({"service": _SERVICE}), longest=True)),
    share=share.ByUsage(together=CampaignGrouping.PARENT, entitled=True),
    select=select.Affinity(least_loaded=True),
    preempt=preempt.UrgentByScore(_URGENCY, others=preempt.LowerPriority()),
    fill=fill.Protected(depth=1, passes=_PASSED_MAX),
    feasible=feasible.FeasibilityRules(alone=True),
)

FORMER_SETS: Final[dict[str, PolicyComposition]] = {
    "campaign-default": _RECOMMENDED,
    "pscheduler": _PSCHEDULER,
    "gridserver-usage": _USAGE,
    "gridserver-usage-aggregated": replace(
        _USAGE, share=share.ByUsage(together=CampaignGrouping.LEVEL, entitled=True)
    ),
    "gridserver-time": _TIME,
    "gridserver-serial-usage": replace(_USAGE, share=share.ByUsage(serial=True)),
    "gridserver-serial-time": replace(_TIME, share=share.ByCreation(serial=True)),
    "gridserver-urgent": replace(
        _USAGE, preempt=preempt.UrgentByScore(_URGENCY, others=preempt.Never())
    ),
    "gridserver-sla": _SLA,
    "gridserver-sla-preempt": replace(_SLA, preempt=preempt.GroupReclaim()),
    "gridserver-blacklist": replace(_USAGE, feasible=feasible.FeasibilityRules(failures_max=1)),
    "fbsng-dynamic": _QUEUES,
    "fbsng-quota": _QUEUES,
    "fbsng-partition": replace(_QUEUES, feasible=feasible.FeasibilityRules(partition=True)),
    "fbsng-placement": replace(_QUEUES, select=select.NodeLayout()),
    "maui-fifo": _WHOLE,
    "maui-priority": replace(_WHOLE, order=order.Weighted(_PRIORITY)),
    "maui-fairshare": replace(_WHOLE, order=order.Weighted(_FAIRSHARE), share=share.ByFairshare()),
    "maui-throttle": _ORDERED,
    "maui-backfill": replace(_ORDERED, order=order.BackfillOrder(), fill=fill.Protected()),
    "maui-nodes": replace(_ORDERED, select=select.ByFunction()),
    "maui-availability": replace(
        _ORDERED, feasible=feasible.FeasibilityRules(counted=availability.CapacityBasis.COMBINED)
    ),
    "maui-preempt": replace(_ORDERED, preempt=preempt.Flagged()),
    "maui-defer": replace(_ORDERED, feasible=feasible.FeasibilityRules(patience=deferral.PATIENCE)),
    "maui-reservations": replace(_ORDERED, fill=fill.Protected(depth=4)),
    "boinc-rrsim": _DEADLINES,
    "boinc-wrr": _TURNS,
    "boinc-edf": replace(_DEADLINES, feasible=feasible.FeasibilityRules()),
    "boinc-fetch": replace(_DEADLINES, select=select.NeediestNodes()),
    "boinc-backoff": replace(_TURNS, feasible=feasible.FeasibilityRules(alone=True)),
}
