"""Total loss: a run that measured that nothing arrives. Pure.

Such a run is finished and has a result, which is what archives and meshes want to know. But whoever
waits for it wants to hear that the other end is not reached, as with ping.
"""

from __future__ import annotations

from collections.abc import Iterable

LOSS = "loss"
"""The name of the figure of lost packets, a fraction; in one direction each, if it has labels."""


def is_total_loss(figures: Iterable[tuple[str, float]]) -> bool:
    """Return whether these figures, names with values, tell that a direction lost all packets."""
    return any(name == LOSS and value >= 1 for name, value in figures)
