"""Finding the rejected document of a batch, where only the whole batch gets an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from node.plugins.contracts import DeliveryOutcome, DeliveryStatus

Sent = TypeVar("Sent")


async def deliver_by_bisection(
    batch: Sequence[Sent],
    send: Callable[[Sequence[Sent]], Awaitable[tuple[DeliveryOutcome, bool]]],
    held: DeliveryOutcome | None = None,
) -> list[DeliveryOutcome]:
    """Return each outcome; if one item may have caused a rejection, send halves, older ones first.

    ``send`` returns the outcome of all items that it gets, and whether one of them may have caused
    it. With ``held``, nothing is sent after an item that has to be retried: later ones get
    ``held`` as their outcome.
    """
    outcome, one_is_bad = await send(batch)
    if not one_is_bad or len(batch) == 1:
        return [outcome] * len(batch)
    half = len(batch) // 2
    first = await deliver_by_bisection(batch[:half], send, held)
    if held is not None and any(outcome.status is DeliveryStatus.AGAIN for outcome in first):
        return [*first, *[held] * (len(batch) - half)]
    return [*first, *await deliver_by_bisection(batch[half:], send, held)]
