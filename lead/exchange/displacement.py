"""Finds out what more an urgent task, or one of a preemptor, may displace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from lead.exchange.campaign_limits import campaign_name, campaign_views
from lead.planning.agenda import Slot
from lead.planning.displacement import DisplacementTerms, DisplacementWish, displaceable
from lead.policy.preempt.score import Urgency
from lead.policy.verdict import PolicyRefusal
from lead.store import episodes
from node.model.task_terms import TaskTerms
from node.store.database import Connection

_RUNS_MAX = 20_000


@dataclass(frozen=True)
class CampaignDisplacement:
    """The rules of displacement by campaign; ``nodes()`` returns the identities of all nodes."""

    nodes: Callable[[], Collection[str]]
    urgency: Urgency

    async def for_slots(
        self, connection: Connection, terms: TaskTerms, slots: Sequence[Slot], waited: int
    ) -> DisplacementTerms | PolicyRefusal | None:
        """Return what else may be displaced for these slots, why nothing may, or None.

        ``waited`` is for how long the task has waited (µs).
        """
        identities = sorted(self.nodes())
        since, until = min(slot.start for slot in slots), max(slot.end for slot in slots)
        booked = await episodes.led_runs(connection, since, until, identities, _RUNS_MAX)
        views = await campaign_views(connection)
        wish = DisplacementWish(
            campaign_name(terms),
            terms.priority,
            terms.scheduling_class,
            [participant.node for participant in terms.participants],
            waited,
        )
        return displaceable(wish, views, booked, self.urgency, len(identities))
