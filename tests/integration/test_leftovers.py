"""Programs left running by a service that was killed: they are found and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from asyncio import create_subprocess_exec
from pathlib import Path

from structlog.testing import capture_logs

from node.execution import leftovers, process, process_marks, proctable
from tests.integration.test_process import alive, gone
from tests.support.worlds import ON_ONE_LOOP, World

WAITING = ["sh", "-c", "echo $$; kill -STOP $$"]
"""A program that has been loaded when it prints; before, its environment cannot be read."""

ATTENDING = f"import subprocess; subprocess.run({WAITING!r})"

OWNER = (
    "import asyncio, sys\n"
    "from node.execution import process\n"
    "async def main():\n"
    f"    argv = [sys.executable, '-c', {ATTENDING!r}]\n"
    "    running = await process.start(argv, chased=True)\n"
    "    await running.wait_for_output(b'\\n')\n"
    "    print(running.pid, bytes(running._stdout.kept).decode(), flush=True)\n"
    "    await running.wait()\n"
    "asyncio.run(main())\n"
)


async def test_what_a_gone_service_left_is_ended() -> None:
    """The death signal ends the program but not its child, which is found by its mark."""
    owner = await process.start([sys.executable, "-c", OWNER], cwd=Path.cwd())
    await owner.wait_for_output(b"\n")
    owner.send(signal.SIGKILL)
    leader, child = map(int, (await owner.wait()).stdout.split())
    await gone(leader)
    assert alive(child)
    assert child in leftovers.kill_orphans()
    assert not alive(child)


async def test_what_a_living_service_started_is_left_alone() -> None:
    """Programs of a living service are not ended, be it another node's or our own."""
    running = await process.start(["sleep", "60"], chased=True)
    try:
        assert running.pid not in leftovers.kill_orphans()
        assert not running.ended
    finally:
        await running.end(0)


def test_a_recycled_number_of_an_owner_is_no_owner() -> None:
    """A process with the recycled id of a dead service, but another start tick, owns nothing."""
    ticks = proctable.identity(os.getpid()) + 1
    env = {**os.environ, process_marks.VARIABLE: f"{os.getpid()}.{ticks}.1"}
    with subprocess.Popen(WAITING, env=env, stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout is not None
        assert int(orphan.stdout.readline()) == orphan.pid
        assert orphan.pid in leftovers.kill_orphans()
        assert orphan.wait() == -signal.SIGKILL


@ON_ONE_LOOP
async def test_a_node_that_starts_ends_what_a_gone_service_left(world: World) -> None:
    """A program whose service is gone is ended by the next start of a node, which logs it."""
    a = await world.site("a")
    env = {**os.environ, process_marks.VARIABLE: f"{os.getpid()}.0.1"}
    orphan = await create_subprocess_exec(*WAITING, env=env, stdout=subprocess.PIPE)
    assert orphan.stdout is not None
    assert int(await orphan.stdout.readline()) == orphan.pid
    with capture_logs() as lines:
        await a.node.launcher.recover()
    assert await orphan.wait() == -signal.SIGKILL
    [line] = lines
    assert orphan.pid in line["processes"]
    with capture_logs() as lines:
        await a.node.launcher.recover()
    assert lines == []


def test_the_recorded_group_is_killed() -> None:
    """A process that is still the recorded one is killed with its group."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as orphan:
        assert leftovers.kill_recorded(orphan.pid, proctable.identity(orphan.pid))
        assert orphan.wait() == -signal.SIGKILL


def test_a_recycled_number_is_left_alone() -> None:
    """A process with the recorded id but another start tick is not killed."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        assert not leftovers.kill_recorded(stranger.pid, proctable.identity(stranger.pid) - 1)
        assert stranger.poll() is None
        stranger.kill()


def test_a_number_nobody_has_is_no_error() -> None:
    """A recorded process that has ended needs no action."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert not leftovers.kill_recorded(ended.pid, 1)
