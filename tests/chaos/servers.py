"""The Postgres of a node: run by the round itself, or by ``parley up``, which is to keep it up.

One that the round runs has a second place, where a standby of it can be made and promoted; the
services know both addresses and use the one that takes changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import asyncpg

from node.execution import process, proctable
from node.model import times
from node.model.errors import DatabaseUnavailable, HostError
from node.postgres import PrivateCluster, ServerBinaries
from node.postgres.cluster import PORT, SUPERUSER
from node.runtime.clock import SystemClock
from tests.chaos.queries import SQL
from tests.support import damage

_CLOCK = SystemClock()
_BACK_S = 300.0
"""Time for a database to come back, on a host where all others recover at once."""
_DUMP_S = 120.0
_RESTORE_S = 300.0
_FAIL_OVER_S = 120.0
_AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


class Server:
    """A Postgres, and the database of its node."""

    def __init__(
        self,
        cluster: PrivateCluster,
        database: str,
        binaries: ServerBinaries,
        *,
        ours: bool,
        standby: PrivateCluster | None = None,
    ) -> None:
        """``ours``: the round runs it; otherwise whoever started it brings it back.

        ``standby``: where one can be made.
        """
        self.cluster = cluster
        self._places = [cluster] if standby is None else [cluster, standby]
        self.database = database
        self.ours = ours
        self.busy = False
        """True while it is started, restored, or repaired, so that no other fault meets it."""
        self.is_worn = False
        """True once its transaction ids were used up, which can be done only once."""
        self._away: Path | None = None
        self._binaries = binaries

    @property
    def dsn(self) -> str:
        """Return the DSN of the database: of that server of a pair which takes changes."""
        if len(self._places) == 1:
            return self.cluster.dsn(self.database)
        hosts = ",".join(quote(str(each.socket), safe="/") for each in self._places)
        ports = ",".join(str(PORT) for _ in self._places)
        where = f"host={hosts}&port={ports}&user={SUPERUSER}"
        name = quote(self.database, safe="")
        return f"postgresql:///{name}?{where}&target_session_attrs=read-write"

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

    def move(self, cluster: PrivateCluster, place: Path) -> None:
        """Go on with the data of another server, which was stopped or runs there."""
        self.cluster = cluster
        second = PrivateCluster(place / "standby", self._binaries)
        self._places = [cluster, *([second] if len(self._places) > 1 else [])]

    async def stop(self) -> None:
        """Stop the server, and a standby that was not promoted."""
        for place in self._places:
            await place.stop()

    async def indexes(self) -> list[str]:
        """Return the names of all indexes of the node's tables."""
        connection = await self.connect()
        try:
            rows = await connection.fetch(SQL["indexes_here"])
        finally:
            await connection.close()
        return [row[0] for row in rows]

    async def _recover(self) -> None:
        """Return once no earlier fault has the server: it may hang, or recover from its end."""
        self.send(signal.SIGCONT)
        await (await self.connect()).close()

    async def overwrite(self, index: str) -> None:
        """Overwrite an index with noise, while the server is down for a moment."""
        await self._recover()
        await damage.overwrite(self.cluster, self.dsn, index)

    async def wear_out(self) -> None:
        """Use up its transaction ids, while the server is down for a moment."""
        self.is_worn = True
        await self._recover()
        self._away = await damage.use_up_ids(self._binaries, self.cluster, self.dsn)

    def let_vacuum(self) -> None:
        """End what kept the server from getting new ids, if anything did."""
        away, self._away = self._away, None
        if away is not None:
            damage.let_vacuum(away)

    @property
    def can_fail_over(self) -> bool:
        """Return whether it has a second place, and the programs for that are installed."""
        programs = ("pg_basebackup", "pg_ctl")
        installed = all(Path(self._binaries.program(each)).exists() for each in programs)
        return len(self._places) > 1 and installed

    async def fail_over(self, beside_s: float) -> None:
        """Make a standby, let it follow for a while, kill the server, and promote the standby.

        From the moment on at which it has all, nothing is acknowledged that it does not have.

        :raises DatabaseUnavailable: the standby could not be made, or not be promoted.
        """
        await self._recover()
        primary = self.cluster
        standby = next(each for each in self._places if each is not primary)
        try:
            async with asyncio.timeout(_FAIL_OVER_S):
                await self._follow(primary, standby)
                await _CLOCK.sleep(beside_s)
            self.send(signal.SIGKILL)
            await primary.stop()
            await self._run(standby, "pg_ctl", "promote", "-w", "-D", str(standby.data))
        except BaseException:
            await standby.stop()
            await primary.start()
            await self._wait_for(primary, "")
            raise
        self.cluster = standby
        await asyncio.to_thread(shutil.rmtree, primary.directory)

    async def _follow(self, primary: PrivateCluster, standby: PrivateCluster) -> None:
        """Start a standby, and return once the primary acknowledges nothing without it."""
        standby.directory.mkdir(mode=0o711)
        standby.data.mkdir(mode=0o700)
        if primary.account is not None:
            shutil.chown(standby.data, primary.account)
        where = f"host={primary.socket} port={PORT} user={SUPERUSER} application_name=standby"
        options = ("-R", "-X", "stream", "-c", "fast", "-d", where)
        await self._run(standby, "pg_basebackup", "-D", str(standby.data), *options)
        await standby.start()
        await self._wait_for(primary, "*")
        while not await damage.execute(primary.dsn("postgres"), SQL["standby_has_all"]):
            await _CLOCK.sleep(0.1)

    async def _wait_for(self, primary: PrivateCluster, standbys: str) -> None:
        """Have a server acknowledge nothing before these standbys have it."""
        await damage.execute(
            primary.dsn("postgres"),
            "SET synchronous_commit = local",
            f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'",
            "SELECT pg_reload_conf()",
        )

    async def _run(self, place: PrivateCluster, program: str, *options: str) -> None:
        argv = [self._binaries.program(program), *options]
        account = self._places[0].account
        done = await process.finish(argv, timeout_s=_FAIL_OVER_S, user=account, cwd=Path("/"))
        if done.exit_code != 0:
            said = process.tail(done.stderr) or process.tail_of(place.log)
            raise DatabaseUnavailable(f"{program} in {place.directory}: {said}")

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
