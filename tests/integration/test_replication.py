"""A node and two leads on a Postgres with a synchronous standby, whose primary is killed.

The addresses of both servers are in the DSN, with ``target_session_attrs=read-write``, so the
services find the promoted one by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from node.execution import process
from node.execution.process import RunningProcess
from node.model import times
from node.postgres import ServerBinaries, locate
from node.postgres.account import server_account
from node.runtime.clock import SystemClock
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

CLOCK = SystemClock()
_SETTINGS = {
    "wal_level": "replica",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "wal_keep_size": "64MB",
}


class Server:
    """One Postgres of a pair."""

    def __init__(self, binaries: ServerBinaries, data: Path) -> None:
        """Have its files in ``data``."""
        self._binaries, self.data, self.port = binaries, data, free_port()
        self._running: RunningProcess | None = None

    async def run(self, program: str, *options: str) -> None:
        """Run a program of Postgres as its account."""
        argv = [self._binaries.program(program), *options]
        done = await process.finish(argv, timeout_s=60, user=server_account(), cwd=Path("/"))
        assert done.exit_code == 0, done.stderr.decode()

    async def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = {**_SETTINGS, "port": str(self.port)}
        argv = [self._binaries.program("postgres"), "-D", str(self.data)]
        argv += [f"--{name}={value}" for name, value in settings.items()]
        self._running = await process.start(
            argv, user=server_account(), log=self.data.with_suffix(".log"), cwd=Path("/")
        )
        while not await self._answers():
            await CLOCK.sleep(0.1)

    async def _answers(self) -> bool:
        with contextlib.suppress(OSError, asyncpg.PostgresError):
            await (await self.connect()).close()
            return True
        return False

    async def connect(self, database: str = "postgres") -> asyncpg.Connection[asyncpg.Record]:
        """Connect as superuser."""
        return await asyncpg.connect(
            f"postgresql://parley@127.0.0.1:{self.port}/{database}", timeout=5
        )

    def kill(self) -> None:
        """Kill it with all its processes, as a loss of power does."""
        assert self._running is not None
        main = self._running.pid
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def stop(self) -> None:
        """Stop it if it runs."""
        if self._running is not None:
            await self._running.end(5)


class Pair:
    """A primary and its standby, with the services that use them."""

    def __init__(self, primary: Server, standby: Server, state: Path) -> None:
        """Keep the state of the node in ``state``."""
        self.primary, self.standby, self.state = primary, standby, state
        self.listen = f"127.0.0.1:{free_port()}"
        self.services: list[RunningProcess] = []

    @property
    def dsn(self) -> str:
        """The address of whichever of the two is the primary."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://parley@{hosts}/parley?target_session_attrs=read-write"

    async def serve(self, *programs: str) -> None:
        """Start services, each a process."""
        environment = {
            "PARLEY_NAME": "a",
            "PARLEY_LISTEN": self.listen,
            "PARLEY_STATE_DIR": str(self.state),
            "PARLEY_DSN": self.dsn,
            "PARLEY_LEASE": "PT5S",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        for number, program in enumerate(programs):
            log = self.state / f"{program}-{number}.log"
            script = f"from node.cli.services import {program}_main; {program}_main()"
            argv = [sys.executable, "-c", script]
            self.services.append(
                await process.start(argv, env=environment, log=log, cwd=self.state)
            )

    async def create(self, session: aiohttp.ClientSession) -> str | None:
        """Post a task; return its id if that was acknowledged."""
        document = {
            "test": {"type": "rtt", "spec": {"dest": "127.0.0.1", "count": 1}},
            "schedule": {"repeat": "PT20S", "slip": "PT15S"},
        }
        token = (self.state / "token").read_text().strip()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.post(
                f"http://{self.listen}/v1/tasks",
                json=document,
                headers={"Authorization": f"Bearer {token}"},
                timeout=aiohttp.ClientTimeout(20),
            ) as answer:
                if answer.status == 201:
                    return str((await answer.json())["id"])
        return None

    async def promote(self) -> None:
        """Make the standby the primary, as Patroni does: alone, it waits for no other."""
        await self.standby.run("pg_ctl", "promote", "-w", "-D", str(self.standby.data))
        connection = await self.standby.connect()
        await connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()


@pytest.fixture(name="pair")
async def _pair() -> AsyncIterator[Pair]:
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    place = Path(tempfile.mkdtemp(prefix="parley-test-"))
    place.chmod(0o777)
    (place / "state").mkdir(mode=0o700)
    primary, standby = (Server(binaries, place / name) for name in ("primary", "standby"))
    pair = Pair(primary, standby, place / "state")
    try:
        await primary.run("initdb", "-D", str(primary.data), "-U", "parley", "--auth=trust", "-N")
        await primary.start()
        options = ("-D", str(standby.data), "-R", "-X", "stream", "-c", "fast")
        where = f"host=127.0.0.1 port={primary.port} user=parley application_name=standby"
        await primary.run("pg_basebackup", *options, "-d", where)
        await standby.start()
        connection = await primary.connect()
        # In the data and not on the command line, since a promotion changes it.
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.execute("CREATE DATABASE parley")
        await connection.close()
        yield pair
    finally:
        for service in pair.services:
            await service.end(10)
        for server in (standby, primary):
            await server.stop()
        shutil.rmtree(place, ignore_errors=True)


class Load:
    """Four clients that post tasks, and remember which were acknowledged."""

    def __init__(self, pair: Pair, session: aiohttp.ClientSession) -> None:
        """Post to the node of a pair."""
        self._pair, self._session = pair, session
        self.made: set[str] = set()
        self.killed_at: int | None = None
        self.back_at: int | None = None

    async def post_until_back(self) -> None:
        """Post tasks until one is acknowledged that was posted after the primary was killed."""
        while self.back_at is None:
            began = CLOCK.now()
            task = await self._pair.create(self._session)
            if task is None:
                await CLOCK.sleep(0.1)
                continue
            self.made.add(task)
            if self.killed_at is not None and began > self.killed_at:
                self.back_at = CLOCK.now()

    async def wait_for(self, number: int) -> None:
        """Wait until so many tasks were acknowledged."""
        while len(self.made) < number:
            await CLOCK.sleep(0.1)


@pytest.mark.nightly
async def test_a_promoted_standby_has_what_was_acknowledged(pair: Pair) -> None:
    """The primary is killed under load: nothing acknowledged is lost, and services go on."""
    await pair.serve("node", "lead", "lead")
    async with aiohttp.ClientSession() as session, asyncio.timeout(2 * PATIENCE_S):
        load = Load(pair, session)
        while not (pair.state / "token").exists():
            await CLOCK.sleep(0.1)
        posting = [asyncio.create_task(load.post_until_back()) for _ in range(4)]
        await load.wait_for(80)
        pair.primary.kill()
        load.killed_at = CLOCK.now()
        await pair.promote()
        await asyncio.gather(*posting)
        assert load.back_at is not None
        connection = await pair.standby.connect("parley")
        kept = {str(row[0]) for row in await connection.fetch("SELECT id FROM task")}
        assert load.made <= kept
        finished = "SELECT count(*) FROM run WHERE state = 'finished' AND starts_at > $1"
        while not await connection.fetchval(finished, times.to_datetime(load.back_at)):
            await CLOCK.sleep(0.5)
        await connection.close()
    states = [Path(f"/proc/{it.pid}/stat").read_text().split()[2] for it in pair.services]
    assert "Z" not in states, "no service had to be started again"
