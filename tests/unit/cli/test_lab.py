"""Keeping a lab up, signals, and the ready texts, with a lab of plain objects."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from node.cli.lab.commands import death_reason, ready_line, ready_text, run_with_lab
from node.cli.lab.nodes import LabNode, settings_given
from node.cli.progress import Progress
from node.model.errors import DatabaseUnavailable, HostError


@dataclass(frozen=True)
class PlainNode(LabNode):
    """A node that consists of its attributes."""

    url: str = "http://127.0.0.1:1"
    token: str = "secret"
    dsn: str = "postgresql://x"
    address: str = "127.0.0.1"
    state: str = "/tmp/lab/x"

    @property
    def identity(self) -> str:
        """Its key."""
        return "ed25519:x"


@dataclass
class PlainLab:
    """A lab whose start and stop the test defines."""

    nodes: list[PlainNode] = field(default_factory=lambda: [PlainNode("a"), PlainNode("b")])
    starting: Callable[[], Any] | None = None
    stopping: Callable[[], None] | None = None
    stopped: int = 0
    revived: asyncio.Event = field(default_factory=asyncio.Event)

    async def restart_ended(self) -> None:
        """Record the call, and fail."""
        self.revived.set()
        raise HostError("node a was not ready within 60 s")

    async def start(self) -> None:
        """Start as the test defines it."""
        if self.starting is not None:
            await self.starting()

    async def stop(self) -> None:
        """Count the call, and let other tasks run as a real clean-up does."""
        if self.stopping is not None:
            self.stopping()
        for _ in range(3):
            await asyncio.get_running_loop().run_in_executor(None, os.getpid)
        self.stopped += 1


QUIET = Progress(quiet=True)


async def forever() -> int:
    """Work forever."""
    await asyncio.Event().wait()
    return 1


async def test_work_that_ends() -> None:
    """The exit code of the work is that of the command, and the lab is stopped."""
    lab = PlainLab()

    async def work() -> int:
        return 4

    assert await run_with_lab(lab, QUIET, work) == 4
    assert lab.stopped == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_serving(number: signal.Signals) -> None:
    """A signal ends the work with 0, and a second one during the clean-up breaks nothing."""
    lab = PlainLab(stopping=lambda: signal.raise_signal(number))

    async def work() -> int:
        signal.raise_signal(number)
        return await forever()

    assert await run_with_lab(lab, QUIET, work) == 0
    assert lab.stopped == 1


async def test_usr1_restarts_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """USR1 restarts nodes that have ended, and a failure of it does not end the lab."""
    lab = PlainLab()

    async def work() -> int:
        signal.raise_signal(signal.SIGUSR1)
        await lab.revived.wait()
        return 3

    assert await run_with_lab(lab, QUIET, work) == 3
    assert capsys.readouterr().err == "✗ node a was not ready within 60 s\n"
    text = death_reason("a", "a has ended unexpectedly", ["a", "b"])
    assert text.startswith("node a has ended")
    assert f"kill -USR1 {os.getpid()}" in text
    assert "start another one" in death_reason("database", "database has ended", ["a", "b"])


def test_settings_of_the_environment_hold_for_every_node() -> None:
    """A lab passes on the settings of the environment that it does not set for each node itself."""
    given = {"PARLEY_CONTEXTS": "interface:eth1", "PARLEY_ARCHIVE_DIRECTORIES": "/srv/results"}
    others = {"PARLEY_NAME": "x", "PARLEY_STATE_DIR": "/x", "PARLEY_TOKEN": "x", "HOME": "/root"}
    assert settings_given({**given, **others}) == given


async def test_a_signal_while_starting() -> None:
    """A signal before all nodes are up stops the started ones, with exit code 130."""

    async def starting() -> None:
        signal.raise_signal(signal.SIGINT)
        await forever()

    lab = PlainLab(starting=starting)
    assert await run_with_lab(lab, QUIET, forever) == 130
    assert lab.stopped == 1


async def test_a_start_that_fails() -> None:
    """An error during the start is raised after the lab was stopped."""

    async def starting() -> None:
        raise DatabaseUnavailable("no Postgres here")

    lab = PlainLab(starting=starting)
    with pytest.raises(DatabaseUnavailable):
        await run_with_lab(lab, QUIET, forever)
    assert lab.stopped == 1


def test_ready_texts() -> None:
    """A ready lab prints one line of JSON for programs, or addresses and commands for people."""
    lab = PlainLab()
    line = ready_line(lab)
    assert "\n" not in line
    first = json.loads(line)["nodes"][0]
    assert sorted(first) == ["address", "dsn", "name", "state", "token", "url"]
    text = ready_text(lab)
    assert "export PARLEY_SERVER=http://127.0.0.1:1 PARLEY_TOKEN=secret" in text
    assert "parley latency b" in text
    assert text.count("/tmp/lab/x/token") == 3
    assert "PARLEY_TOKEN=$(cat /tmp/lab/x/token) \\\n    parley node set" in text
