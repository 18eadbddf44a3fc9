"""Bounds on the difference between two clocks. Pure."""

from __future__ import annotations

from typing import Protocol


class HostClockState(Protocol):
    """The state of a host's clock, as the host reports it."""

    @property
    def synchronised(self) -> bool | None:
        """True if the kernel considers the clock synchronised; None if unknown."""
        ...

    @property
    def error_bound_ms(self) -> float | None:
        """The kernel's bound on its error, in milliseconds."""
        ...

    @property
    def identity(self) -> str:
        """A text that is equal on two hosts with the same clock; empty if unknown."""
        ...


def combined_bound_ms(one: HostClockState, other: HostClockState) -> float | None:
    """Return the error bound of a one-way value: the sum of both bounds, in milliseconds.

    It is 0 if both hosts share one clock, and None if either clock is not synchronised.
    """
    if one.identity and one.identity == other.identity:
        return 0.0
    if one.synchronised and other.synchronised:
        bounds = (one.error_bound_ms, other.error_bound_ms)
        return round(sum(bound for bound in bounds if bound is not None), 3)
    return None
