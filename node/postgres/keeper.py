"""Keeps the private Postgres running: starts it again when it has ended, or gives up with a reason.

A server ends by itself when the kernel kills it for want of memory, or when its disk is full.
"""

from __future__ import annotations

import structlog

from node.execution import process
from node.model import times
from node.model.errors import DatabaseUnavailable
from node.postgres.cluster import PrivateCluster
from node.runtime.clock import Clock

PAUSES_S = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Pauses before one start after the other, if none succeeds for long; then the keeper gives up."""
STEADY = times.MINUTE
"""A server that has run for so long was sound: what ends it then is a new fault."""

log = structlog.get_logger()


async def keep_running(cluster: PrivateCluster, clock: Clock) -> None:
    """Start the server of a cluster again whenever it ends, until cancelled.

    :raises DatabaseUnavailable: it did not start, or soon ended again, for all of the pauses.
    """
    pauses = list(PAUSES_S)
    while True:
        began = clock.monotonic()
        await cluster.wait()
        if clock.monotonic() - began >= STEADY:
            pauses = list(PAUSES_S)
        log.error("postgres ended", directory=str(cluster.directory), its_log=_tail(cluster))
        await _start_again(cluster, clock, pauses)


async def _start_again(cluster: PrivateCluster, clock: Clock, pauses: list[float]) -> None:
    """Start the server, and take from ``pauses`` those that were waited for."""
    why = f"it kept ending: {_tail(cluster)}"
    while pauses:
        await clock.sleep(pauses.pop(0))
        try:
            await cluster.start()
        except DatabaseUnavailable as error:
            why = error.detail
            log.warning(
                "postgres did not start", error=why, next_start_in_s=next(iter(pauses), None)
            )
        else:
            log.warning("postgres was started again", directory=str(cluster.directory))
            return
    msg = (
        f"the private Postgres ended, and {len(PAUSES_S)} starts could not keep it running: {why}. "
        f"Mend what its log names ({cluster.log}), and start this program again"
    )
    raise DatabaseUnavailable(msg)


def _tail(cluster: PrivateCluster) -> str:
    return process.tail_of(cluster.log, 2)
