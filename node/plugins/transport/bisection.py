"""Finding the document of a batch that is refused, where only the batch is answered."""

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
    """Each one's outcome: where one may be to blame for that of all, halves, older ones first.

    ``send`` says what came of all it is given, and whether it may be because of one of them. With
    ``held``, nothing is sent behind one that is to be tried again: that is its outcome.
    """
    outcome, one_is_bad = await send(batch)
    if not one_is_bad or len(batch) == 1:
        return [outcome] * len(batch)
    half = len(batch) // 2
    first = await deliver_by_bisection(batch[:half], send, held)
    if held is not None and any(one.status is DeliveryStatus.AGAIN for one in first):
        return [*first, *[held] * (len(batch) - half)]
    return [*first, *await deliver_by_bisection(batch[half:], send, held)]
