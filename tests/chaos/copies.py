"""A copied machine: the data of a node, taken while it runs, are started beside the original.

The services and the Postgres of the node stand still while their files are copied, as those of a
machine do of which a snapshot is taken. The copy has an address of its own. It has to end with the
sentence that asks for its owner's word, at each start, without having done anything in the name of
the node; and the original has to go on.

A clone has the marks of its original's host, too, so that nothing tells them apart: it begins to
work, and ends once another node has heard both of them. Later starts of it begin nothing.

The owner may want the node where the copy is, and says so once the original has stopped.
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
from node.store.mark import HostMarks
from tests.chaos.checks import Violation
from tests.chaos.hosts import forget_shared_memory
from tests.chaos.queries import SQL
from tests.chaos.sites import Restored, Site, Sites, answers, program

ENDS_S = 120.0
"""Time for a copy to end; it may ask for 20 s, on a host where much else starts."""
READY_S = 180.0
"""Time for the original to be ready, which may just hang."""
_COPY_S = 60.0
_IS_COPY = 9
_IS_WORN = 8
"""A copy of a database without transaction ids ends because of these, before it asks anybody."""
_STARTS = 2
_TRIES = 10
_CLOCK = SystemClock()


async def try_copy(sites: Sites, site: Site, *, alike: bool = False) -> list[Violation]:
    """Start a copy of a node beside it, twice, and return what it did that it must not.

    ``alike``: on a host with the marks of the original's one.

    :raises HostError: the copy could not be made or did not end, or the original does not go on.
    """
    place = sites.work / f"{site.name}.copy"
    site.is_copied = True
    try:
        async with aiohttp.ClientSession() as session:
            await _ready(site, session)
            copied_at = await _copy(site, place)
            found = await _start(sites, site, place, copied_at, alike=alike)
            await _ready(site, session)
            if alike:  # what it told others, they take for the node's own word
                sites.restored.append(Restored(site.name, copied_at, datetime.now(UTC)))
    finally:
        site.is_copied = False
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    return found


async def move(sites: Sites, site: Site) -> None:
    """Let a node go on where a copy of it was made, and lose what it did since then.

    :raises HostError: the copy could not be made or did not end, or the node is not ready there.
    """
    sites.moves += 1
    place = sites.work / f"{site.name}.moved-{sites.moves}"
    site.is_copied = True
    try:
        async with aiohttp.ClientSession() as session:
            await _ready(site, session)
            copied_at = await _copy(site, place)
            cluster = PrivateCluster(place / "postgres", _binaries())
            environment = _environment(sites, site, place, cluster.dsn(site.server.database))
            await cluster.start()
            try:
                log = sites.work / f"{place.name}.log"
                await _ends("parley-node", environment, log, {_IS_COPY})
                started = [service for service in site.services if service.started]
                await asyncio.gather(*(service.stop() for service in started))
                await site.server.stop()
            except BaseException:
                await cluster.stop()
                raise
            sites.restored.append(Restored(site.name, copied_at, datetime.now(UTC)))
            site.server.move(cluster, place)
            environment["PARLEY_DSN"] = site.server.dsn
            sites.move(site, place / "state", environment)
            await _take_over(site)
            for service in started:
                service.start()
            await _ready(site, session)
    finally:
        site.is_copied = False


async def _take_over(site: Site) -> None:
    """Let the copy be the node; the command refuses while another fault looks into its database."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(HostError):
            return await site.type("admin", "take-over")
        await _CLOCK.sleep(1)
    return await site.type("admin", "take-over")


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


def _environment(sites: Sites, site: Site, place: Path, dsn: str) -> dict[str, str]:
    """Return the settings of a copy, which writes its results to where the node wrote them."""
    state = place / "state"
    return {
        **site.environment,
        "PARLEY_LISTEN": sites.spare,
        "PARLEY_STATE_DIR": str(state),
        "PARLEY_LIMITS": str(state / "limits.toml"),
        "PARLEY_DSN": dsn,
    }


async def _start(
    sites: Sites, site: Site, place: Path, copied_at: datetime, *, alike: bool
) -> list[Violation]:
    async with _database(site, place) as dsn:
        environment = _environment(sites, site, place, dsn)
        if alike:
            await _fetch(dsn, SQL["be_on_this_host"], str(HostMarks.of(place / "state")))
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
            if alike and number == 0:
                copied_at = datetime.now(UTC)  # it has ended, and begins nothing after that
        return await done_by_copy(site.name, dsn, copied_at)


def _binaries() -> ServerBinaries:
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    return binaries


@contextlib.asynccontextmanager
async def _database(site: Site, place: Path) -> AsyncIterator[str]:
    """Run the copied database, and remove it; yield its DSN."""
    cluster = PrivateCluster(place / "postgres", _binaries())
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
    rows = await _fetch(dsn, SQL["begun_by_copy"], copied_at)
    return [Violation("twice", node, str(row[0]), f"the copy {row[1]}") for row in rows]


async def _fetch(dsn: str, query: str, *args: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn, timeout=60)
    try:
        return await connection.fetch(query, *args)
    finally:
        await connection.close()
