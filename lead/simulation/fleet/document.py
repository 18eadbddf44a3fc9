"""The document that describes a fleet: its nodes, its campaigns, and how many runs to count."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from lead.policy.settings import configured_recipe
from lead.policy.view import CampaignView, FairshareView, QueueView
from lead.simulation.clock import START
from node.model import times
from node.model.errors import InvalidDocument
from node.model.wire.fields import Document, Duration

_OLD = 100 * times.DAY


class FleetCampaign(Document):
    """A campaign of the fleet; its weight is also its target, fairshare, and inverse price."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
    weight: int = Field(1, ge=1, le=1000)
    level: int = Field(5, ge=1, le=9)
    length: Duration = Field(10 * times.MINUTE, description="Duration of its runs.")

    @field_validator("length")
    @classmethod
    def _fits(cls, length: int) -> int:
        if not times.MINUTE <= length <= times.HOUR or times.HOUR % length:
            raise ValueError("length must divide an hour: PT5M, PT6M, PT10M, PT12M, …")
        return length


class FleetScenario(Document):
    """A fleet whose seats are shared among campaigns by policies."""

    title: str = ""
    fleet: bool = True
    seed: int = Field(1, ge=0, lt=2**63)
    runs: int = Field(
        10_000, ge=100, le=1_000_000, description="Number of runs over which shares are measured."
    )
    nodes: int = Field(20, ge=2, le=300)
    horizon: Duration = Field(times.HOUR, description="Time ahead for which nodes are chosen.")
    sets: tuple[str, ...] = Field(
        (), description="Sets with their options, such as `shares serial=true`."
    )
    campaigns: tuple[FleetCampaign, ...] = Field((), min_length=2, max_length=50)

    @model_validator(mode="after")
    def _known(self) -> Self:
        for recipe in self.sets:
            try:
                configured_recipe(recipe)
            except InvalidDocument as error:
                raise ValueError(f"{recipe}: {error.faults[0].detail}") from None
        return self

    def shared_by(self) -> list[CampaignView]:
        """Return the campaigns as policies see them; their order of age is drawn from the seed."""
        ages = random.Random(f"{self.seed} ages").sample(
            range(len(self.campaigns)), len(self.campaigns)
        )
        total = sum(it.weight for it in self.campaigns)
        most = max(it.weight for it in self.campaigns)
        return [
            CampaignView(
                it.name,
                weight=it.weight,
                level=it.level,
                created_at=START - _OLD + age,
                target=Fraction(it.weight, total),
                fairshare=FairshareView(Fraction(it.weight, total)),
                queue=QueueView(price=Fraction(most, it.weight)),
            )
            for age, it in zip(ages, self.campaigns, strict=True)
        ]
