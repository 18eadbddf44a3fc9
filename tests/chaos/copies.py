"""A copied machine: the data of a node, taken while it runs, are started beside the original.

The services and the Postgres of the node stand still while their files are copied, as those of a
machine do of which a snapshot is taken. The copy has an address of its own. It has to end with the
sentence that asks for its owner's word, at each start, without having done anything in the name of
the node; and the original has to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import asyncpg

from node.execution import process
from node.model.errors import HostError
from node.postgres import PrivateCluster, ServerBinaries, locate
from node.runtime.clock import SystemClock
from tests.chaos.checks import Violation
from tests.chaos.hosts import forget_shared_memory
from tests.chaos.queries import SQL
from tests.chaos.sites import Site, Sites, answers, program

ENDS_S = 120.0
"""Time for a copy to end; it may ask for 20 s, on a host where much else starts."""
READY_S = 180.0
"""Time for the original to be ready, which may just hang."""
_COPY_S = 60.0
_IS_COPY = 9
_IS_WORN = 8
"""A copy of a database without transaction ids ends because of these, before it asks anybody."""
_STARTS = 2
_CLOCK = SystemClock()


async def try_copy(sites: Sites, site: Site) -> list[Violation]:
    """Start a copy of a node beside it, twice, and return what it did that it must not.

    :raises HostError: the copy could not be made or did not end, or the original does not go on.
    """
    place = sites.work / f"{site.name}.copy"
    site.is_copied = True
    try:
        async with aiohttp.ClientSession() as session:
            await _ready(site, session)
            copied_at = await _copy(site, place)
            found = await _start(sites, site, place, copied_at)
            await _ready(site, session)
    finally:
        site.is_copied = False
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    return found


async def _ready(site: Site, session: aiohttp.ClientSession) -> None:
    try:
        async with asyncio.timeout(READY_S):
            while not await answers(session, f"{site.url}/readyz"):
                await _CLOCK.sleep(0.2)
    except TimeoutError:
        raise HostError(f"{site.name} is not ready beside its copy") from None


async def _copy(site: Site, place: Path) -> datetime:
    """Copy state directory and database while nothing of the node moves; return when that was."""
    await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)  # of a trial that was ended
    place.mkdir(mode=0o711)
    (place / "postgres").mkdir(mode=0o711)
    moving = [service for service in site.services if service.started]
    for service in moving:
        service.send(signal.SIGSTOP)
    site.server.send(signal.SIGSTOP)
    try:
        for source, target in (
            (site.state, place / "state"),
            (site.server.cluster.data, place / "postgres" / "data"),
        ):
            argv = ["cp", "--archive", str(source), str(target)]
            done = await process.finish(argv, timeout_s=_COPY_S)
            if done.exit_code != 0:
                raise HostError(f"{site.name} is not copied: {process.tail(done.stderr)}")
        return datetime.now(UTC)
    finally:
        site.server.send(signal.SIGCONT)
        for service in moving:
            service.send(signal.SIGCONT)


async def _start(sites: Sites, site: Site, place: Path, copied_at: datetime) -> list[Violation]:
    async with _database(site, place) as dsn:
        state = place / "state"
        environment = {
            **site.environment,
            "PARLEY_LISTEN": sites.spare,
            "PARLEY_STATE_DIR": str(state),
            "PARLEY_LIMITS": str(state / "limits.toml"),
            "PARLEY_ARCHIVE_DIRECTORIES": str(state / "results"),
            "PARLEY_DSN": dsn,
        }
        for number in range(_STARTS):
            await asyncio.gather(
                *(
                    _ends(
                        name,
                        environment,
                        sites.work / f"{site.name}.copy-{number}.{name}.log",
                        {_IS_COPY, _IS_WORN} if site.server.is_worn else {_IS_COPY},
                    )
                    for name in ("parley-node", "parley-lead")
                )
            )
        return await done_by_copy(site.name, dsn, copied_at)


@contextlib.asynccontextmanager
async def _database(site: Site, place: Path) -> AsyncIterator[str]:
    """Run the copied database, and remove it; yield its DSN."""
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    cluster = PrivateCluster(place / "postgres", binaries)
    try:
        await cluster.start()
        yield cluster.dsn(site.server.database)
    finally:
        await cluster.stop()


async def _ends(
    name: str, environment: dict[str, str], log: Path, expected: Collection[int]
) -> None:
    """Start a service of the copy, which has to end because another process is the node."""
    directory = Path(environment["PARLEY_STATE_DIR"])
    service = await process.start([program(name)], env=environment, cwd=directory, log=log)
    try:
        async with asyncio.timeout(ENDS_S):
            code = (await service.wait()).exit_code
    except TimeoutError:
        raise HostError(f"{name} of a copy goes on beside the original; see {log}") from None
    finally:
        await service.end(0)
        forget_shared_memory(service.pid)
    if code not in expected:
        raise HostError(f"{name} of a copy ended with {code}, not {_IS_COPY}; see {log}")


async def done_by_copy(node: str, dsn: str, copied_at: datetime) -> list[Violation]:
    """Return what a copy did in the name of its node, by its database."""
    connection = await asyncpg.connect(dsn, timeout=60)
    try:
        rows = await connection.fetch(SQL["begun_by_copy"], copied_at)
    finally:
        await connection.close()
    return [Violation("twice", node, str(row[0]), f"the copy {row[1]}") for row in rows]
