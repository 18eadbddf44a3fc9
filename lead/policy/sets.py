"""The named policy sets: compositions of the axes' algorithms, and nothing more.

A pool names one, and may give it options, and override single axes: by other parameters of the
set's rule, or by another rule (``{"order": {"rule": "next-run"}, "share": {"window": "PT30M"}}``,
see ``lead/policy/settings.py``). All can be changed at any time and take effect with the next
episode.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from lead.policy.axes import feasible, fill, order, preempt, select, share, throttle
from lead.policy.campaign_grouping import CampaignGrouping
from lead.policy.contracts import Feasible, Fill, Order, Preempt, Select, Share, Throttle
from lead.policy.order import pacing
from lead.policy.order.weighted import Weights
from lead.policy.preempt.score import Urgency
from node.model import times


@dataclass(frozen=True, slots=True)
class PolicyComposition:
    """The algorithm for each of the seven axes.

    By default: ordered by next run, no shares, the least loaded nodes, lower priorities may be
    displaced, the limits of campaigns, the earliest gap, and any node that matches and is up.
    """

    order: Order = field(default_factory=order.NextRun)
    share: Share = field(default_factory=share.Unshared)
    select: Select = field(default_factory=select.LeastLoaded)
    preempt: Preempt = field(default_factory=preempt.LowerPriority)
    throttle: Throttle = field(default_factory=throttle.LimitRules)
    fill: Fill = field(default_factory=fill.EarliestGap)
    feasible: Feasible = field(default_factory=feasible.FeasibilityRules)
    apart: int = 0
    """The minimum time (µs) between the beginnings of two episodes of a pool."""
    keeps_nodes: bool = True
    """The permission for pools to have nodes that measured before measure again."""

    @property
    def holds_others(self) -> bool:
        """Return whether a blocked candidate may keep others from starting at all."""
        return isinstance(self.order, order.ByStarts)

    @property
    def takes_turns(self) -> bool:
        """Return whether campaigns take turns in contested time: unless deadlines come first."""
        return not (isinstance(self.order, order.ByRecentWorkOrder) and self.order.deadlines)

    @property
    def forecast_half_life(self) -> int | None:
        """Return the half-life of recent work in forecasts; None if the set minds no deadlines."""
        match self.order:
            case order.LateFirst(half_life=half_life):
                return half_life
            case order.ByRecentWorkOrder(deadlines=True, half_life=half_life):
                return half_life
            case _:
                return None

    @property
    def minds_blocked(self) -> bool:
        """Return whether a blocked candidate affects others in later episodes too."""
        return self.holds_others or self.fill.awaits_outcomes


# -- one mechanism after the other -----------------------------------------------------------------

_PSCHEDULER = PolicyComposition()

_SHARES = PolicyComposition(
    order=order.ByCampaign(),
    share=share.ByUsage(),
    select=select.Affinity(),
)
_IN_ORDER = replace(
    _SHARES, share=share.ByCreation(), select=select.LeastLoaded(), keeps_nodes=False
)
_PROMISED = replace(
    _SHARES,
    order=order.ByCampaign(in_turn=True),
    share=share.ByPromise(),
    select=select.LeastLoaded(),
    preempt=preempt.Never(),
    keeps_nodes=False,
)
URGENT_DELAY: Final = 10 * times.SECOND
"""The time (µs) that the urgent wait before they displace others, unless it is stated."""

_TURNS = PolicyComposition(
    order=order.ByStarts(),
    share=share.ByStartCounts(),
    preempt=preempt.Never(),
    apart=pacing.EPISODE_SPACING,
)

_SERVICE = {"waiting": 1.0, "expansion": 10.0, "bypass": 5.0}
USUAL_WEIGHTS: Final = Weights(
    {
        "service": _SERVICE,
        "credential": {"campaign": 1.0, "parent": 1.0, "class": 1.0},
        "size": {"nodes": 1.0},
        "target": {"waiting": 1.0},
    }
)
"""Several criteria at once, as a start for weights of one's own."""
FAIRSHARE_WEIGHTS: Final = {"campaign": 10.0, "parent": 10.0}
"""The terms of fairshare in a weighted sum."""
_PRIORITY = PolicyComposition(order=order.Weighted(), select=select.LastAvailable())

_LONG_TERM = PolicyComposition(
    order=order.ByRecentWorkOrder(), share=share.ByRecentWorkShare(), preempt=preempt.Never()
)

# -- for pools -------------------------------------------------------------------------------------

DEFAULT: Final = "campaign-default"
_PASSED_MAX: Final = 20

_RECOMMENDED = PolicyComposition(
    order=order.LateFirst(order.Weighted(Weights({"service": _SERVICE}), longest=True)),
    share=share.ByUsage(together=CampaignGrouping.PARENT, entitled=True),
    select=select.Affinity(least_loaded=True),
    preempt=preempt.UrgentByScore(
        Urgency(Fraction(10), URGENT_DELAY), others=preempt.LowerPriority()
    ),
    fill=fill.Protected(depth=1, passes=_PASSED_MAX),
    feasible=feasible.FeasibilityRules(alone=True),
)

SETS: Final[dict[str, PolicyComposition]] = {
    DEFAULT: _RECOMMENDED,
    "pscheduler": _PSCHEDULER,
    "shares": _SHARES,
    "in-order": _IN_ORDER,
    "promised": _PROMISED,
    "turns": _TURNS,
    "priority": _PRIORITY,
    "backfill": replace(_PRIORITY, order=order.BackfillOrder(), fill=fill.Protected()),
    "long-term": _LONG_TERM,
}
"""By name, without options; the first is the one recommended for pools."""
