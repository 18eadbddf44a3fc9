"""What a host's kernel says of its clock, as tests store it. Pure."""

from __future__ import annotations

from pydantic import Field

from node.model.wire.fields import Document
from node.plugins.fields import Finite, NonNegative


class Clock(Document):
    """What a host's kernel says of its clock."""

    synchronised: bool | None = Field(
        description="Whether the kernel holds its clock for synchronised; null if it does not tell."
    )
    error_bound_ms: NonNegative | None = Field(
        description="The kernel's bound of the clock's error in milliseconds, if synchronised."
    )
    stepped_ms: Finite = Field(
        description="By how much the clock moved against steady time during the run, milliseconds."
    )
    identity: str = Field(
        max_length=64, description="Equal on two participants that share one and the same clock."
    )
