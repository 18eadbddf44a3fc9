"""Displacement by tasks that name their participants. Pure.

Any run may displace runs of lower priority. A run of an urgent campaign may also displace runs of
campaigns that are not urgent, whatever their priority: after a delay, and on a part of all nodes. A
run of a preemptor may displace runs of preemptees of lower priority, where the priority of the
campaign counts too. Runs in progress are never displaced, and neither are those of other leads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from lead.model.records import LedRun
from lead.policy.preempt import flagged
from lead.policy.preempt.score import TOO_EARLY, Urgency
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import URGENT, CampaignView
from node.model.classes import SchedulingClass, blockers
from node.model.reason import Reason
from node.model.wire.participants import YIELDING_MAX
from node.model.wire.tasks import PRIORITY_MAX

BUDGET = RefusalRule(
    Axis.PREEMPT,
    "preempt-budget",
    "{campaign} is urgent, but may displace runs on {allowed} more of {seats} nodes (settings: "
    "urgent_percent {percent}), and its task has {wanted}",
    "nodes",
)


@dataclass(frozen=True, slots=True)
class DisplacementTerms:
    """The priority of a request for time, and the runs of lower priority that may give way.

    None for ``yielding`` is any run. Nothing is asked in this way for starts before ``earliest``;
    ``too_early`` is why, until then.
    """

    priority: int
    yielding: tuple[UUID, ...] | None = None
    earliest: int = 0
    too_early: Reason | None = None


@dataclass(frozen=True, slots=True)
class DisplacementWish:
    """A task that found no time, its nodes, and how long it has waited (µs)."""

    campaign: str
    priority: int
    scheduling_class: SchedulingClass
    nodes: Sequence[str]
    waited: int


def displaceable(
    wish: DisplacementWish,
    campaigns: Mapping[str, CampaignView],
    booked: Sequence[LedRun],
    urgency: Urgency,
    seats: int,
) -> DisplacementTerms | PolicyRefusal | None:
    """Return what else may be displaced for a task, why nothing may, or None if that is no use.

    Nodes displace only runs of lower priority, so the terms offer one above the highest of those
    that may give way. ``booked`` are the runs led here in its windows, on any node; ``seats`` is
    the number of all known nodes.
    """
    own = campaigns[wish.campaign]
    in_the_way = [run for run in booked if _is_in_the_way(run, wish)]
    if own.level < URGENT:
        victims = [run for run in in_the_way if _gives_way(run, wish, campaigns)]
    else:
        victims = [run for run in in_the_way if campaigns[run.campaign].level < URGENT]
        refusal = _find_budget_refusal(wish, campaigns, booked, urgency, seats) if victims else None
        if refusal is not None:
            return refusal
    # Those of lower priority may give way in any case, and may be in the way together with others.
    lower = [run for run in in_the_way if run.priority < wish.priority and run not in victims]
    if not victims:
        return None
    above = max(run.priority for run in victims) + 1
    named = tuple(run.id for run in [*victims, *lower][:YIELDING_MAX])
    return DisplacementTerms(min(max(wish.priority, above), PRIORITY_MAX), named)


def _is_in_the_way(run: LedRun, wish: DisplacementWish) -> bool:
    return (
        not run.running
        and SchedulingClass(run.scheduling_class) in blockers(wish.scheduling_class)
        and not set(wish.nodes).isdisjoint(run.nodes)
    )


def _find_budget_refusal(
    wish: DisplacementWish,
    campaigns: Mapping[str, CampaignView],
    booked: Sequence[LedRun],
    urgency: Urgency,
    seats: int,
) -> PolicyRefusal | None:
    urgent = {
        node for run in booked if campaigns[run.campaign].level >= URGENT for node in run.nodes
    }
    refusal = urgency.find_refusal(wish.campaign, wish.waited, seats, 0)
    if refusal is not None and refusal.rule is TOO_EARLY:
        return refusal
    allowed = urgency.allowance(wish.waited, seats, len(urgent))
    if len(wish.nodes) <= allowed:
        return None
    return BUDGET.refuse(
        campaign=wish.campaign,
        allowed=allowed,
        seats=seats,
        percent=urgency.percent,
        wanted=len(wish.nodes),
    )


def _gives_way(run: LedRun, wish: DisplacementWish, campaigns: Mapping[str, CampaignView]) -> bool:
    own, other = campaigns[wish.campaign], campaigns[run.campaign]
    refusal = flagged.find_preemption_refusal(
        (own.name, wish.priority + own.priority),
        (other.name, run.priority + other.priority),
        preemptor=own.preemptor,
        preemptee=other.preemptee,
    )
    return refusal is None
