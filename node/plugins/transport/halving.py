"""Finding the document of a batch that is refused, where only the batch is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from node.plugins.contracts import Fate, Outcome

Sent = TypeVar("Sent")


async def halved(
    batch: Sequence[Sent],
    send: Callable[[Sequence[Sent]], Awaitable[tuple[Outcome, bool]]],
    held: Outcome | None = None,
) -> list[Outcome]:
    """Each one's outcome: where one may be to blame for that of all, halves, older ones first.

    ``send`` says what came of all it is given, and whether it may be because of one of them. With
    ``held``, nothing is sent behind one that is to be tried again: that is its outcome.
    """
    outcome, one_is_bad = await send(batch)
    if not one_is_bad or len(batch) == 1:
        return [outcome] * len(batch)
    half = len(batch) // 2
    first = await halved(batch[:half], send, held)
    if held is not None and any(one.fate is Fate.AGAIN for one in first):
        return [*first, *[held] * (len(batch) - half)]
    return [*first, *await halved(batch[half:], send, held)]
