"""A tool that is held is loaded, begins at its instant whatever is lost meanwhile, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.execution import process, proctable, releaser
from node.execution.process import Confinement, Needs, RunningProcess
from node.execution.tool_runner import ToolRunner
from node.model import times
from node.model.errors import HostError
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from tests.integration.host_leftovers import descendants
from tests.support.patience import PATIENCE_S

CLOCK = SystemClock()
SOON = 300 * times.MILLISECOND
LATER = times.MINUTE
SAID = ("sh", "-c", "cat; date +%s%6N")
NODE = """
import asyncio
from node.execution import process
from node.execution.process import Confinement, Needs
from node.execution.tool_runner import ToolRunner
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
async def main():
    confinement, clock = Confinement(ToolRunner(Settings()), Needs(60.0)), SystemClock()
    running = await process.start(["sleep", "60"], confinement=confinement, held=True)
    running.release(clock.now, clock.now() + 60_000_000, clock.now() + 60_000_000)
    print(running.pid, flush=True)
    await running.wait()
asyncio.run(main())
"""
"""A node with a tool that begins in a minute."""


@pytest.fixture(name="runner")
async def _runner() -> AsyncIterator[ToolRunner]:
    """Return what a node starts its tools with."""
    runner = ToolRunner(Settings())
    yield runner
    await runner.close()


async def hold(runner: ToolRunner, *argv: str, after: int) -> tuple[RunningProcess, int]:
    """Have a program held, and released after so many microseconds; return when that is."""
    confinement = Confinement(runner, Needs(60.0))
    running = await process.start(
        argv or SAID, now=CLOCK.now, stdin=b"given ", confinement=confinement, held=True
    )
    at = CLOCK.now() + after
    running.release(CLOCK.now, at, at + times.MINUTE)
    return running, at


async def begun_punctually(running: RunningProcess, at: int) -> None:
    """Check that a program begins not before its instant, that its start is known, and it works."""
    assert await running.begun(CLOCK.now, PATIENCE_S)
    finished = await running.wait()
    given, said = finished.stdout.split()
    assert (given, finished.exit_code) == (b"given", 0)
    assert at <= running.started_at <= int(said)


def parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def releaser_of(runner: ToolRunner) -> int:
    """Return the process that begins the tools of a runner, once it has taken its name."""
    assert runner._server is not None
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for pid in descendants(runner._server.pid):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_bytes().strip() == releaser.NAME:
                        return pid
            await CLOCK.sleep(0.01)


async def gone(pid: int) -> None:
    """Return once a process has exited."""
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits([pid])


async def test_a_held_tool_is_loaded_and_begins_at_its_instant(runner: ToolRunner) -> None:
    """The process is the tool's own program before its instant, and has done nothing yet."""
    running, at = await hold(runner, after=SOON)
    assert Path(f"/proc/{running.pid}/exe").samefile("/bin/sh")
    assert b"\0".join(word.encode() for word in SAID) in _command(running.pid)
    await begun_punctually(running, at)


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.nightly
async def test_many_begin_at_one_instant(runner: ToolRunner) -> None:
    """Each of those that are due together begins, and its own start is recorded."""
    held = await asyncio.gather(*(hold(runner, after=4 * SOON) for _ in range(20)))
    await asyncio.gather(*(begun_punctually(*each) for each in held))


async def test_what_is_too_late_does_not_begin(runner: ToolRunner) -> None:
    """A tool whose last instant is over when it could begin stays held, until it is ended."""
    confinement = Confinement(runner, Needs(60.0))
    running = await process.start(["echo", "begun"], confinement=confinement, held=True)
    running.release(CLOCK.now, CLOCK.now() - 2, CLOCK.now() - 1)
    assert not await running.begun(CLOCK.now, PATIENCE_S)
    await running.end(0)
    assert (await running.wait()).stdout == b""


async def test_one_that_is_ended_before_its_instant_never_begins(runner: ToolRunner) -> None:
    """A cancelled tool ends at once, released or not."""
    confinement = Confinement(runner, Needs(60.0))
    unreleased = await process.start(SAID, confinement=confinement, held=True)
    released, _ = await hold(runner, after=LATER)
    for running in (unreleased, released):
        async with asyncio.timeout(PATIENCE_S):
            await running.end(0)
        assert (await running.wait()).stdout == b""


async def test_one_that_cannot_be_loaded_says_why(
    runner: ToolRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is no program is told before the instant, and does not hang."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{directory}")
        program = Path(directory, "program")
        program.write_text("#!/no/interpreter")
        program.chmod(0o755)
        running, _ = await hold(runner, str(program), after=LATER)
        async with asyncio.timeout(PATIENCE_S):
            finished = await running.wait()
    assert finished.exit_code != 0
    assert b"cannot be started" in finished.stderr
    assert await running.begun(CLOCK.now, PATIENCE_S)


async def test_without_the_releaser_keepers_begin_their_tools(runner: ToolRunner) -> None:
    """Tools begin at their instant if the releaser was killed, and the next tool has another."""
    running, at = await hold(runner, after=2 * SOON)
    lost = await releaser_of(runner)
    os.kill(lost, signal.SIGKILL)
    await begun_punctually(running, at)
    await begun_punctually(*await hold(runner, after=SOON))
    assert await releaser_of(runner) != lost


async def test_if_the_releaser_hangs_keepers_begin_their_tools(runner: ToolRunner) -> None:
    """A tool begins soon after its instant if the releaser does not begin it."""
    running, at = await hold(runner, after=SOON)
    os.kill(await releaser_of(runner), signal.SIGSTOP)
    await begun_punctually(running, at)


async def test_without_the_runner_held_tools_begin(runner: ToolRunner) -> None:
    """A tool that is held when the runner and the releaser are killed begins at its instant."""
    running, at = await hold(runner, after=2 * SOON)
    assert runner._server is not None
    os.kill(runner._server.pid, signal.SIGKILL)
    await runner._server.wait()
    await begun_punctually(running, at)


async def test_a_held_tool_ends_with_its_keeper(runner: ToolRunner) -> None:
    """A tool does not stay stopped for ever when what watches it is killed."""
    running, _ = await hold(runner, after=SOON)
    os.kill(parent(running.pid), signal.SIGKILL)
    with pytest.raises(HostError, match="what ran this tool was killed"):
        await running.wait()
    await gone(running.pid)


async def test_a_held_tool_ends_with_its_node() -> None:
    """A tool does not stay stopped for ever when the node is killed; nothing of it stays."""
    node = await process.start([sys.executable, "-c", NODE], cwd=Path.cwd())
    try:
        await node.wait_for_output(b"\n")
        assert node._stdout is not None
        pids = descendants(node.pid) | {int(node._stdout.kept)}
        assert len(pids) == 4  # the runner, the releaser, the keeper, and the tool
        os.kill(node.pid, signal.SIGKILL)
        for pid in pids:
            await gone(pid)
    finally:
        await node.end(0)
