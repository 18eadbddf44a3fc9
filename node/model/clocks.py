"""How far two clocks can be apart. Pure."""

from __future__ import annotations

from typing import Protocol


class HostClockState(Protocol):
    """What a host tells of its clock."""

    @property
    def synchronised(self) -> bool | None:
        """Whether its kernel holds it for synchronised; None if it does not tell."""
        ...

    @property
    def error_bound_ms(self) -> float | None:
        """The kernel's bound of its error in milliseconds."""
        ...

    @property
    def identity(self) -> str:
        """Equal on two hosts that share one clock; empty where that cannot be told."""
        ...


def combined_bound_ms(one: HostClockState, other: HostClockState) -> float | None:
    """The bound of a one-way value's error: the sum of both bounds, in milliseconds.

    It is 0 on one and the same clock, and None if one of the two is not synchronised.
    """
    if one.identity and one.identity == other.identity:
        return 0.0
    if one.synchronised and other.synchronised:
        bounds = (one.error_bound_ms, other.error_bound_ms)
        return round(sum(bound for bound in bounds if bound is not None), 3)
    return None
