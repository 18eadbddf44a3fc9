"""A pool in a file: its nodes, its campaigns, and what they want, to be played under policies.

The same runs are wanted whatever the policies are, so that two choices of policies, or nine, can be
compared (``parley simulate FILE --compare A B``, and the pictures of the documentation).
"""

from __future__ import annotations

import random
from typing import Annotated, Self

from pydantic import Field, model_validator

from lead.planning.pool_view import campaigns_of
from lead.policy.settings import configured_recipe
from lead.policy.view import NodeView
from lead.pool.rehearsal.forecast import Rehearsal, compared
from lead.pool.rehearsal.world import DemandStream, Fleet, Placement, Situation
from lead.simulation.clock import START
from node.model import times
from node.model.policysets import parsed
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.fields import Document, Duration, Name
from node.model.wire.policy_plans import PolicyPlan
from node.model.wire.pools import PolicyChoice
from node.sharing.campaigns import settings_of

_OLD = 100 * times.DAY
_STEP = 5 * times.MINUTE


class Want(Document):
    """Recurring runs of one kind that a campaign wants."""

    campaign: Name
    runs: int = Field(1, ge=1, le=1000, description="How many, at each of these times.")
    first: Duration = Field(0, description="When the first are wanted, from the beginning.")
    every: Duration = times.HOUR
    length: Duration
    slip: Duration
    nodes: int = Field(1, ge=1, description="On how many nodes, all at one time.")
    known: Duration | None = Field(
        None,
        description="How long before it a run is known; if not said, by the hour, as far "
        "ahead as the horizon.",
    )


class PoolFile(Document):
    """A pool whose policies are compared."""

    title: str = ""
    pool: bool = True
    seed: int = Field(1, ge=0, lt=2**63)
    nodes: int = Field(3, ge=1, le=300)
    hours: int = Field(6, ge=1, le=48)
    horizon: Duration = Field(times.HOUR, description="Time ahead for which nodes are chosen.")
    campaigns: Annotated[tuple[CampaignDocument, ...], Field(min_length=1, max_length=50)]
    wants: Annotated[tuple[Want, ...], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _require_campaigns(self) -> Self:
        known = {campaign.name for campaign in self.campaigns}
        for want in self.wants:
            if want.campaign not in known:
                raise ValueError(f"there is no campaign {want.campaign}; add it to campaigns")
            if want.nodes > self.nodes:
                raise ValueError(f"{want.nodes} nodes exceed the {self.nodes} of the pool")
        return self


def rehearsed(file: PoolFile, recipe: str) -> Rehearsal:
    """Play a pool under a set with its options, such as ``shares serial=true``.

    :raises ValueError: the recipe cannot be read.
    :raises InvalidDocument: there is no such set or option.
    """
    written = parsed(recipe)
    fleet = Fleet(
        [NodeView(f"n{number}") for number in range(1, file.nodes + 1)],
        list(
            campaigns_of(
                (vars(settings_of(campaign)), START - _OLD + place)
                for place, campaign in enumerate(file.campaigns)
            ).values()
        ),
        list(_streams(file)),
        configured_recipe(recipe),
        horizon=file.horizon,
        step=_STEP,
        rng=random.Random(file.seed),
        situation=Situation(START),
        with_blocked=True,
    )
    choice = PolicyChoice(set=written.set, options=dict(written.options))
    return Rehearsal(fleet, choice, START + file.hours * times.HOUR)


def comparison(before: Rehearsal, after: Rehearsal, file: PoolFile) -> PolicyPlan:
    """Return what came of a pool under two choices of policies."""
    forecasts = compared([before, after])
    until = START + file.hours * times.HOUR
    return PolicyPlan(
        pool=file.title, since=START, until=until, booked=0, before=forecasts[0], after=forecasts[1]
    )


def placements_of(rehearsal: Rehearsal) -> list[Placement]:
    """Return the runs that took place, by their start."""
    return sorted(rehearsal.placements, key=lambda it: (it.run.start, it.run.nodes))


def _streams(file: PoolFile) -> list[DemandStream]:
    return [
        DemandStream(
            f"{want.campaign}-{place}-{number}",
            want.campaign,
            want.first,
            want.every,
            want.length,
            want.slip,
            k=want.nodes,
            together=want.nodes > 1,
            known_for=want.known,
        )
        for place, want in enumerate(file.wants)
        for number in range(want.runs)
    ]
