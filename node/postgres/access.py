"""The database of a node: the one that its owner names, or that of its private Postgres."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from node.execution import process
from node.model import times
from node.model.errors import ClusterInUse, DatabaseInUse, DatabaseUnavailable
from node.postgres.binaries import ExternalServer, locate
from node.postgres.cluster import PrivateCluster, existing_major
from node.runtime.clock import Clock, SystemClock
from node.runtime.settings import Settings
from node.store import maintenance

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


_NAME = "parley"
_RUNNING = (
    "services of the node use the database; stop them first: parley up, or parley-node and "
    "parley-lead"
)


@contextlib.asynccontextmanager
async def served_database(
    settings: Settings, clock: Clock
) -> AsyncIterator[tuple[str, asyncio.Task[None] | None]]:
    """Yield the given DSN, or that of a private cluster that runs as long as this service.

    With a private cluster comes the task that keeps it running, which ends only by giving up.
    """
    directory = settings.state_dir / "postgres"
    server = locate(settings.dsn, major=existing_major(directory))
    if isinstance(server, ExternalServer):
        yield server.dsn, None
        return
    cluster = await PrivateCluster.create(directory, server)
    await cluster.start()
    try:
        await cluster.create_database(_NAME)
        keeping = asyncio.create_task(keep_running(cluster, clock), name="postgres")
        try:
            yield cluster.dsn(_NAME), keeping
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
    finally:
        await cluster.stop()


@contextlib.asynccontextmanager
async def present_database(settings: Settings) -> AsyncIterator[str]:
    """Yield the DSN of the database that the node has, whether its services run or not.

    A private Postgres that no service has started runs as long as this context.

    :raises DatabaseUnavailable: the node has no database yet, or it cannot be reached.
    """
    directory = settings.state_dir / "postgres"
    major = existing_major(directory)
    if settings.dsn is None and major is None:
        raise DatabaseUnavailable(
            f"there is no database in {directory}; name the node's state directory with "
            "--state-dir (PARLEY_STATE_DIR), or its Postgres with --dsn (PARLEY_DSN)"
        )
    server = locate(settings.dsn, major=major)
    if isinstance(server, ExternalServer):
        yield server.dsn
        return
    cluster = await PrivateCluster.create(directory, server)
    try:
        await cluster.start()
    except ClusterInUse:
        yield cluster.dsn(_NAME)
        return
    try:
        yield cluster.dsn(_NAME)
    finally:
        await cluster.stop()


@contextlib.asynccontextmanager
async def idle_database(settings: Settings) -> AsyncIterator[str]:
    """Yield the DSN of a database that no service uses; a private one is made if there is none.

    :raises DatabaseInUse: a service of the node runs.
    """
    try:
        async with served_database(settings, SystemClock()) as (dsn, _):
            connections = (await maintenance.contents(dsn)).connections
            if connections:
                raise DatabaseInUse(_RUNNING)
            yield dsn
    except ClusterInUse as error:
        raise DatabaseInUse(_RUNNING) from error
