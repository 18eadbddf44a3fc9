"""A node that is silent for a moment is asked again after growing pauses, six times in all.

That is for commands of many requests, of which one alone should not cost the others. What is asked
before anything was answered need not be: where no node is, nobody waits to be told so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from node.model.errors import DatabaseUnavailable, ParleyError, PeerUnreachable

if TYPE_CHECKING:
    from node.cli.progress import Progress
    from node.clock import Clock

T = TypeVar("T")

RETRYABLE_ERRORS: Final = (PeerUnreachable, DatabaseUnavailable)
"""What may be over a little later. Whether the node has done it is not known."""

PAUSES_S: Final = (1, 2, 4, 8, 16)


async def retry_while_silent(
    progress: Progress, clock: Clock, ask: Callable[[], Awaitable[T]]
) -> T:
    """The answer to a question, which is asked again while the node is silent."""
    for pause_s in PAUSES_S:
        try:
            return await ask()
        except RETRYABLE_ERRORS as error:
            await announce_retry(progress, clock, error, pause_s)
    return await ask()


async def announce_retry(
    progress: Progress, clock: Clock, error: ParleyError, pause_s: int
) -> None:
    """Say that it will be asked again, and wait."""
    cause = error.detail.partition("; ")[0]
    progress.status(f"{cause}; asking again in {pause_s} s", f"again {pause_s}")
    await clock.sleep(pause_s)
