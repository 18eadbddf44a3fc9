"""``parley up`` with a Postgres of its own survives what happens to that server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from node.cli.lab.nodes import module_environment
from node.execution import process, proctable
from node.execution.process import RunningProcess
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.timeout(120), pytest.mark.nightly]

HONEST_S = 10.0
"""A request to a node whose database hangs is answered by then."""
BUSY_S = 10.0
"""Allowance for a busy host, added to it."""


@dataclass
class Node:
    """A running ``parley up``."""

    running: RunningProcess
    url: str
    state: Path
    session: aiohttp.ClientSession

    @property
    def postmaster(self) -> int:
        """The pid of its Postgres."""
        return int((self.state / "postgres/data/postmaster.pid").read_text().split()[0])

    async def status(self, method: str, path: str, **arguments: Any) -> tuple[int, str]:
        """Return status and text of its owner's answer; 0 if there is none."""
        with contextlib.suppress(FileNotFoundError):  # until its first start has made the token
            token = (self.state / "token").read_text().strip()
            arguments["headers"] = {"Authorization": f"Bearer {token}"}
        try:
            async with self.session.request(method, self.url + path, **arguments) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError as error:
            return 0, str(error)

    async def until_ready(self) -> None:
        """Wait until the node says that it is ready."""
        await self._until_answered("/readyz", lambda status, _: status == 200)

    async def until_measured(self, *lines: str) -> None:
        """Wait until the metrics have these lines."""
        await self._until_answered("/metrics", lambda _, text: set(lines) <= set(text.splitlines()))

    async def until_noted(self, words: str) -> None:
        """Wait until the log has a line with these words."""

        async def noted() -> bool:
            return words in (self.state / "log").read_text()

        await self._until(noted)

    async def _until_answered(self, path: str, holds: Callable[[int, str], bool]) -> None:
        async def answered() -> bool:
            return holds(*await self.status("GET", path))

        await self._until(answered)

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():
                assert not self.running.ended, process.tail_of(self.state / "log", 20)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.running.wait(), 0.05)


@pytest.fixture(name="state")
def _state() -> Iterator[Path]:
    """A directory that the server's account may enter."""
    state = Path(tempfile.mkdtemp(prefix="parley-test-"))
    state.chmod(0o711)
    yield state
    shutil.rmtree(state)


@pytest.fixture(name="node")
async def _node(state: Path) -> AsyncIterator[Node]:
    """A node with a Postgres of its own, that is ready."""
    listen = f"127.0.0.1:{free_port()}"
    running = await process.start(
        [
            sys.executable,
            "-m",
            "node.cli.main",
            "up",
            "--listen",
            listen,
            "--state-dir",
            str(state),
        ],
        cwd=state,
        log=state / "log",
        env={**os.environ, **module_environment()},
    )
    async with aiohttp.ClientSession() as session:
        node = Node(running, f"http://{listen}", state, session)
        try:
            await node.until_ready()
            yield node
        finally:
            await running.end(PATIENCE_S)


async def test_postgres_is_started_again_and_may_hang(node: Node) -> None:
    """A killed server is started again; one that hangs makes honest answers, and is used again."""
    await node.until_measured("parley_ready 1.0", "parley_leads 1.0")
    killed = node.postmaster
    os.kill(killed, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits([killed])
    await node.until_ready()
    assert node.postmaster != killed
    await node.until_noted("the database is back")
    await node.until_measured("parley_database_up 1.0")
    posting = {"json": {"test": {"type": "idle", "spec": {"duration": "PT1S"}}}}
    os.kill(node.postmaster, signal.SIGSTOP)  # first, so that it starts no others meanwhile
    servers = proctable.working_in(node.state / "postgres/data")
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(HONEST_S + BUSY_S):
            answers = await asyncio.gather(
                *(node.status("GET", "/readyz") for _ in range(20)),
                *(node.status("POST", "/v1/tasks", **posting) for _ in range(20)),
            )
        assert {status for status, _ in answers} == {503}
        assert all("the database hangs" in text for _, text in answers)
        known = ("parley_event_streams 0.0", "parley_ready 0.0", "parley_database_full 0.0")
        await node.until_measured("parley_database_up 0.0", *known)
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
    await node.until_ready()
    assert (await node.status("POST", "/v1/tasks", **posting))[0] == 201
