"""Finds out what more an urgent task, or one of a preemptor, may displace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from lead.exchange.campaign_limits import campaign_name, campaign_views
from lead.planning.agenda import Slot
from lead.planning.displacement import DisplacementTerms, DisplacementWish, displaceable
from lead.policy.preempt.score import TOO_EARLY, Urgency
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
        self,
        connection: Connection,
        terms: TaskTerms,
        slots: Sequence[Slot],
        waited: int,
        begun_by: int = 0,
    ) -> DisplacementTerms | PolicyRefusal | None:
        """Return what else may be displaced for these slots, why nothing may, or None.

        ``waited`` is for how long the task has waited (µs). Runs that start before ``begun_by``
        count as in progress.
        """
        identities = sorted(self.nodes())
        since, until = min(slot.start for slot in slots), max(slot.end for slot in slots)
        booked = await episodes.led_runs(connection, since, until, identities, _RUNS_MAX)
        booked = [it if it.starts_at >= begun_by else replace(it, running=True) for it in booked]
        views = await campaign_views(connection)
        wish = DisplacementWish(
            campaign_name(terms),
            terms.priority,
            terms.scheduling_class,
            [participant.node for participant in terms.participants],
            waited,
        )
        return displaceable(wish, views, booked, self.urgency, len(identities))

    async def once_waited(
        self, connection: Connection, terms: TaskTerms, slots: Sequence[Slot], now: int
    ) -> DisplacementTerms | PolicyRefusal | None:
        """Return the same for a new task that has waited for as long as an urgent one must.

        Where nothing may give way even then, the refusal has that as what comes afterwards.
        """
        at_once = await self.for_slots(connection, terms, slots, 0)
        if not isinstance(at_once, PolicyRefusal) or at_once.rule is not TOO_EARLY:
            return at_once
        delay = self.urgency.delay
        later = await self.for_slots(connection, terms, slots, delay, now + delay)
        if isinstance(later, PolicyRefusal):
            return replace(at_once, afterwards=later)
        if later is None:
            return at_once
        return replace(later, earliest=now + delay, too_early=at_once.reason)
