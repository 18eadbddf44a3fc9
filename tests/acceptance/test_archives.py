"""Delivery of results: by the command line, through failures, and again after a kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from node.execution import process
from node.runtime.clock import SystemClock
from tests.acceptance.commands import parley
from tests.acceptance.outsider import Outsider
from tests.conftest import NewDatabase
from tests.support.archiving import Receiver, receiver
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S

CLOCK = SystemClock()


class Host:
    """A separate node, ``parley up``, that can be killed and restarted."""

    def __init__(self, dsn: str, folder: Path, session: aiohttp.ClientSession) -> None:
        """Choose a free port, without starting the node."""
        self._listen = f"127.0.0.1:{free_port()}"
        self._folder = folder
        self._dsn = dsn
        self._session = session
        self.running: process.RunningProcess | None = None

    async def start(self) -> Outsider:
        """Start it and wait until it answers."""
        argv = [sys.executable, "-m", "node.cli.main", "up", "--listen", self._listen]
        argv += ["--dsn", self._dsn, "--state-dir", str(self._folder / "state"), "--name", "a"]
        self.running = await process.start(
            argv,
            log=self._folder / "up.log",
            env={"PARLEY_ARCHIVE_DIRECTORIES": str(self._folder)},
            cwd=Path(__file__).parents[2],
        )
        url = f"http://{self._listen}"
        async with asyncio.timeout(PATIENCE_S):
            while not await self._answers(url):
                await CLOCK.sleep(0.05)
        token = (self._folder / "state" / "token").read_text().strip()
        return Outsider(
            name="a", url=url, token=token, dsn=self._dsn, address="127.0.0.1",
            state=str(self._folder / "state"), session=self._session,
        )  # fmt: skip

    async def _answers(self, url: str) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"{url}/readyz") as answer:
                return answer.ok
        return False

    async def kill(self) -> None:
        """``kill -9``."""
        assert self.running is not None
        os.kill(self.running.pid, 9)
        await self.running.wait()


@pytest.fixture
async def host(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Host]:
    """Return a host without a running node, and end its node afterwards."""
    async with aiohttp.ClientSession() as session:
        new_host = Host(await new_database(), tmp_path, session)
        yield new_host
        if new_host.running is not None:
            await new_host.running.end(10)


@pytest.fixture
async def taker() -> AsyncIterator[Receiver]:
    """Serve a receiver of results."""
    async with receiver() as new_receiver:
        yield new_receiver


async def _measured(a: Outsider, *more: str) -> str:
    result = await parley(
        a, "task", "create", "idle", "--spec", "duration=PT1S", "--spec", "class=background",
        "--slip", "10s", *more, "-o", "json",
    )  # fmt: skip
    assert result.code == 0, result.err
    return str(json.loads(result.out)["id"])


@pytest.mark.nightly
async def test_a_result_is_delivered_again_after_a_kill(host: Host, taker: Receiver) -> None:
    """A node killed before it noted a delivery delivers again with the same key."""
    a = await host.start()
    taker.held = asyncio.Event()
    kept = host._folder / "results.jsonl"
    for words in (
        ("hook", "http", "--spec", f"url={taker.url}", "--runs", "all"),
        ("dead", "tcp", "--spec", "host=127.0.0.1", "--spec", "port=9"),
        ("kept", "file", "--spec", f"path={kept}", "--jmespath", "{run: run, state: state}"),
    ):
        result = await parley(a, "archive", "add", *words)
        assert result.code == 0, result.err
    await _measured(a)
    async with asyncio.timeout(PATIENCE_S):
        await taker.arrived.wait()
        while not (kept.exists() and kept.read_text()):
            await CLOCK.sleep(0.05)
    await host.kill()
    taker.arrived.clear()
    taker.held.set()
    a = await host.start()
    async with asyncio.timeout(PATIENCE_S):
        await taker.arrived.wait()
    keys = [document["key"] for document in taker.documents]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert {json.loads(line)["state"] for line in kept.read_text().splitlines()} == {"finished"}
    run = taker.documents[0]["run"]
    async with asyncio.timeout(PATIENCE_S):
        while True:
            result = await parley(a, "archive", "deliveries", "--run", run, "-o", "json")
            states = {each["archive"]: each["state"] for each in json.loads(result.out)}
            if states == {"hook": "delivered", "kept": "delivered", "dead": "waiting"}:
                break
    result = await parley(a, "archive", "backlog", "-o", "table")
    assert "127.0.0.1 port 9" in result.out


async def test_deliveries_are_reported(host: Host, taker: Receiver) -> None:
    """The archives of a task are validated, delivered to, reported, parked, and retried."""
    a = await host.start()
    wrong = json.dumps({"archiver": "http", "spec": {"url": "x"}})
    result = await parley(a, "task", "create", "idle", "--archive", wrong)
    assert result.code == 2
    assert "/archives/0/spec/url" in result.err
    good = {"archiver": "http", "spec": {"url": taker.url, "secret": "hush" * 5}}
    gone = {"archiver": "http", "spec": {"url": f"{taker.url}-gone"}}
    task = await _measured(a, "--archive", json.dumps(good), "--archive", json.dumps(gone))
    async with asyncio.timeout(PATIENCE_S):
        await taker.arrived.wait()
        sentence = ""
        while "parked" not in sentence or "delivered to http" not in sentence:
            result = await parley(a, "explain", taker.documents[0]["run"], "-o", "json")
            sentence = json.loads(result.out)["sentence"]
    assert f"not delivered to http {taker.url}-gone, parked: refused: 404" in sentence
    shown = await parley(a, "task", "show", task, "-o", "json")
    assert "hush" not in shown.out
    backlog = await parley(a, "archive", "backlog", "-o", "json")
    [parked] = [each for each in json.loads(backlog.out) if each["parked"]]
    result = await parley(a, "archive", "retry", "--destination", str(parked["destination"]))
    assert (result.code, result.err.strip()) == (0, "1 delivery will be retried now.")
