"""What the hosts' kernels say of their clocks, and what two of them promise together. Pure."""

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


def combined_error_ms(source: Clock, dest: Clock) -> float | None:
    """The sum of both bounds; 0 on one and the same clock; ``None`` if one is not synchronised."""
    if source.identity and source.identity == dest.identity:
        return 0.0
    if source.synchronised and dest.synchronised:
        bounds = (source.error_bound_ms, dest.error_bound_ms)
        return round(sum(bound for bound in bounds if bound is not None), 3)
    return None
