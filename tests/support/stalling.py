"""A proxy to Postgres that can stall: connections stay open, and nothing passes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from node.postgres.cluster import PORT


class StallingProxy:
    """Passes bytes between clients and a server's socket, unless it stalls."""

    def __init__(self, server: Path, dsn: str) -> None:
        """``server`` is the socket of the server, ``dsn`` leads to it through this proxy."""
        self.dsn = dsn
        self._server = server
        self._flows = asyncio.Event()
        self._flows.set()
        self._ends = asyncio.Event()
        self._ends.set()
        self._carrying: set[asyncio.Task[None]] = set()

    def stall(self) -> None:
        """Let nothing pass from now on."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass everything on again."""
        self._flows.set()

    def hold_ends(self) -> None:
        """Pass everything on but the end of a connection."""
        self._ends.clear()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        there, back = await asyncio.open_unix_connection(self._server)
        ways = {
            asyncio.create_task(self._pass(reader, back)),
            asyncio.create_task(self._pass(there, writer)),
        }
        self._carrying |= ways
        await asyncio.wait(ways)
        self._carrying -= ways

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65_536):
                    await self._flows.wait()
                    writer.write(data)
            await self._ends.wait()
        finally:
            writer.close()

    def end(self) -> None:
        """End all connections."""
        for carried in self._carrying:
            carried.cancel()


@contextlib.asynccontextmanager
async def stalling_proxy(dsn: str, directory: Path) -> AsyncIterator[StallingProxy]:
    """Yield a way to the server of a DSN, through a socket in ``directory``."""
    [host] = parse_qs(urlsplit(dsn).query)["host"]
    name = f".s.PGSQL.{PORT}"
    way = StallingProxy(Path(host) / name, dsn.replace(f"host={host}", f"host={directory}"))
    server = await asyncio.start_unix_server(way.carry, directory / name)
    try:
        yield way
    finally:
        server.close()
        way.end()
