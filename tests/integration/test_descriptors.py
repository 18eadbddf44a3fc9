"""Scarce file descriptors: services raise the limit, and an exhausted one is reported."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from node.cli import services
from node.execution import process
from node.execution.descriptors import DESCRIPTORS_WANTED
from node.model.errors import HostError
from node.runtime.settings import Settings
from tests.integration.test_process import alive

PROGRAM = (
    "import asyncio\n"
    "from node.execution import descriptors, process\n"
    "async def main():\n"
    "    descriptors.allow_many()\n"
    "    many = [await process.start(['true']) for _ in range(40)]\n"
    "    print({(await one.wait()).exit_code for one in many})\n"
    "asyncio.run(main())\n"
)


async def test_more_are_allowed_than_a_login_has() -> None:
    """Forty programs need more than the soft limit and end without errors."""
    script = 'ulimit -S -n 100; exec "$@"'
    argv = ["sh", "-c", script, "sh", sys.executable, "-c", PROGRAM]
    finished = await process.finish(argv, timeout_s=30, cwd=Path.cwd())
    assert (finished.stdout, finished.stderr) == (b"{0}\n", b"")


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """Put back how this process logs, which a service that starts in it sets for itself."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("logging_restored")
def test_a_service_allows_itself_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service raises its limit before it starts anything."""
    limits: list[int] = []

    def serve(_: object, work: Coroutine[Any, Any, None]) -> None:
        work.close()
        limits.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    monkeypatch.setattr("asyncio.Runner.run", serve)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with limited(100):
        services._run(Settings(account="root"), node=True, lead=True)
    assert limits == [
        DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_WANTED, hard)
    ]


@contextlib.contextmanager
def limited(soft: int) -> Iterator[None]:
    """Limit the file descriptors of this process to numbers below ``soft``."""
    previous, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (previous, hard))


async def test_where_none_is_left_the_reason_is_told() -> None:
    """A start that runs out of descriptors at any step fails as a host error and leaves nothing."""
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    await process.finish(["true"], timeout_s=10)  # looks up what is cached afterwards
    reasons: dict[str, str] = {}
    pids: list[int] = []
    for soft in range(8, highest + 64):
        with limited(soft):
            try:
                running = await process.start(["true"], stdin=b"text")
                pids.append(running.pid)
                await running.wait()
            except HostError as error:
                reasons[error.detail.partition(":")[0].replace("/usr/bin/", "")] = error.detail
    assert {
        "no file descriptor is left for a program's input",
        "no file descriptor is left for the pipes of a program",
    } <= reasons.keys()
    assert pids, reasons
    assert not any(map(alive, pids))


async def test_one_whose_exit_cannot_be_watched_is_ended() -> None:
    """A program whose exit cannot be watched is ended, with the reason."""
    running = await process.start(["sleep", "60"], chased=True)
    with limited(3), pytest.raises(HostError, match="no file descriptor is left for the exit of"):
        await running.wait()
    assert not alive(running.pid)
