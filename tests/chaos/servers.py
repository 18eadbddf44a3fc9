"""The Postgres of a node: run by the round itself, or by ``parley up``, which is to keep it up."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import asyncpg

from node.clock import SystemClock
from node.execution import process, proctable
from node.model import times
from node.model.errors import DatabaseUnavailable, HostError
from node.postgres import PrivateCluster, ServerBinaries

_CLOCK = SystemClock()
_BACK_S = 300.0
"""Time for a database to come back, on a host where all others recover at once."""
_DUMP_S = 120.0
_RESTORE_S = 300.0
_AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


class Server:
    """A Postgres, and the database of its node."""

    def __init__(
        self, cluster: PrivateCluster, database: str, binaries: ServerBinaries, *, ours: bool
    ) -> None:
        """``ours``: the round runs it; otherwise whoever started it brings it back."""
        self.cluster = cluster
        self.database = database
        self.ours = ours
        self.busy = False
        """True while it is being started or restored, so that no other fault meets it."""
        self._binaries = binaries

    @property
    def dsn(self) -> str:
        """Return the DSN of the database."""
        return self.cluster.dsn(self.database)

    @property
    def pids(self) -> list[int]:
        """Return all processes of the server."""
        return proctable.working_in(self.cluster.data)

    @property
    def backends(self) -> list[int]:
        """Return the processes that have a session in the database."""
        pids = []
        for pid in self.pids:
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").split()
                if title[:3] == [b"postgres:", b"parley", self.database.encode()]:
                    pids.append(pid)
        return sorted(pids)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the server."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def start(self) -> None:
        """Start the server unless it runs; wait for one that others start."""
        if self.ours:
            await self.cluster.start()
        else:
            await (await self.connect()).close()

    async def crash(self, pause_s: float) -> None:
        """End the server as a power failure does, and start it after a pause if it is ours."""
        self.busy = True
        try:
            self._end_postmaster(signal.SIGQUIT if self.ours else signal.SIGKILL)
            if self.ours:
                await self.cluster.wait()
                await _CLOCK.sleep(pause_s)
                await self.cluster.start()
        finally:
            self.busy = False

    def _end_postmaster(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((self.cluster.data / "postmaster.pid").read_text().split()[0])
            if pid in self.pids:
                os.kill(pid, number)

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to the database, which may be recovering."""
        deadline = _CLOCK.monotonic() + int(_BACK_S * times.SECOND)
        while _CLOCK.monotonic() < deadline:
            with contextlib.suppress(*_AWAY):
                return await asyncpg.connect(self.dsn, timeout=10)
            await _CLOCK.sleep(0.2)
        raise DatabaseUnavailable(f"{self.cluster.directory} did not recover within {_BACK_S:g} s")

    @property
    def can_be_restored(self) -> bool:
        """Return whether the programs for that are installed beside the server's."""
        programs = ("pg_dump", "pg_restore")
        return self.ours and all(Path(self._binaries.program(each)).exists() for each in programs)

    async def back_up(self, file: Path) -> datetime | None:
        """Dump the database; return the instant from which on the dump may lack something.

        None if that failed, as when the server was ended meanwhile.
        """
        began = datetime.now(UTC)
        new = file.with_suffix(f".{uuid4().hex}")  # another one may be under way
        argv = [self._binaries.program("pg_dump"), "--format=custom", f"--file={new}"]
        try:
            finished = await process.finish([*argv, f"--dbname={self.dsn}"], timeout_s=_DUMP_S)
            if finished.exit_code != 0:
                return None
            new.rename(file)
        except HostError:  # it took too long
            return None
        finally:
            new.unlink(missing_ok=True)
        return began

    async def restore(self, file: Path) -> None:
        """Replace the database by what was dumped to a file.

        :raises DatabaseUnavailable: it failed again and again.
        """
        argv = [self._binaries.program("pg_restore"), "--single-transaction"]
        deadline = _CLOCK.monotonic() + int(_RESTORE_S * times.SECOND)
        why = ""
        while _CLOCK.monotonic() < deadline:
            # Its disk may be full, or the server may hang, until that fault is over.
            try:
                await self._make_anew()
                finished = await process.finish(
                    [*argv, f"--dbname={self.dsn}", str(file)], timeout_s=_DUMP_S
                )
            except (*_AWAY, HostError) as error:
                why = repr(error)
            else:
                if finished.exit_code == 0:
                    return
                why = process.tail(finished.stderr)
            await _CLOCK.sleep(1.0)
        raise DatabaseUnavailable(f"{file} was not restored: {why}")

    async def _make_anew(self) -> None:
        connection = await asyncpg.connect(self.dsn, database="postgres", timeout=60)
        try:
            await connection.execute(f'DROP DATABASE IF EXISTS "{self.database}" WITH (FORCE)')
            await connection.execute(f'CREATE DATABASE "{self.database}"')
        finally:
            await connection.close()
