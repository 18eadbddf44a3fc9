"""Retry requests to a node that does not answer, after growing pauses, up to six attempts.

This is for commands with many requests, where one failure should not waste the others. The first
request of a command is not retried: where there is no node, nobody should wait to learn that.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from node.model.errors import (
    DatabaseUnavailable,
    LimitUsedUp,
    ParleyError,
    PeerUnreachable,
    TooManyRequests,
)

if TYPE_CHECKING:
    from node.cli.progress import Progress
    from node.runtime.clock import Clock

T = TypeVar("T")

RETRYABLE_ERRORS: Final = (PeerUnreachable, DatabaseUnavailable)
"""Errors that may be temporary; the node may have carried out the request."""

PAUSES_S: Final = (1, 2, 4, 8, 16)


async def retry_while_silent(
    progress: Progress, clock: Clock, ask: Callable[[], Awaitable[T]]
) -> T:
    """Return the answer to a request, retrying it while the node does not answer."""
    for pause_s in PAUSES_S:
        try:
            return await ask()
        except RETRYABLE_ERRORS as error:
            await announce_retry(progress, clock, error, pause_s)
    return await ask()


async def retry_when_limited(
    clock: Clock, rng: random.Random, ask: Callable[[], Awaitable[T]]
) -> T:
    """Return the answer to a request, sending it again whenever the node says to come later.

    Those who were sent away together do not come back together.

    :raises LimitUsedUp: a limit is used up, for longer than anybody waits.
    """
    while True:
        try:
            return await ask()
        except LimitUsedUp:
            raise
        except TooManyRequests as error:
            await clock.sleep(error.retry_after_s * rng.uniform(1, 2))


async def announce_retry(
    progress: Progress, clock: Clock, error: ParleyError, pause_s: int
) -> None:
    """Print why a request will be repeated and when, and wait until then."""
    cause = error.detail.partition("; ")[0]
    progress.status(f"{cause}; retrying in {pause_s} s", f"again {pause_s}")
    await clock.sleep(pause_s)
