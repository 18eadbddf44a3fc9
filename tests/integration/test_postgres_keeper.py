"""The private Postgres is kept running, or its keeper says why not."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.model.errors import DatabaseUnavailable
from node.model.times import MINUTE
from node.postgres import PrivateCluster, ServerBinaries, locate
from node.postgres.access import PAUSES_S, keep_running
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S


class Watched(PrivateCluster):
    """A cluster that tells of each start."""

    def __init__(self, *arguments: object, **named: object) -> None:
        """Take what a cluster takes."""
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.starts = 0
        self.started = asyncio.Semaphore(0)

    async def start(self) -> None:
        """Start the server."""
        self.starts += 1
        await super().start()
        self.started.release()

    def kill(self) -> None:
        """Kill the server as the kernel does it when memory runs out."""
        os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)


@pytest.fixture
async def kept() -> AsyncIterator[Watched]:
    """A cluster that runs."""
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    place = Path(tempfile.mkdtemp(prefix="parley-test-"))
    place.chmod(0o711)
    cluster = await Watched.create(place / "pg", binaries, durable=False)
    assert isinstance(cluster, Watched)
    await cluster.start()
    await cluster.started.acquire()
    yield cluster
    await cluster.stop()
    shutil.rmtree(place)


@pytest.mark.nightly
async def test_the_keeper_starts_again_what_it_can_and_gives_up_with_a_reason(
    kept: Watched,
) -> None:
    """A killed server is started at once; one that cannot start is tried with pauses, and told."""
    clock = ManualClock()
    keeping = asyncio.create_task(keep_running(kept, clock))
    kept.kill()
    async with asyncio.timeout(PATIENCE_S):
        await kept.started.acquire()
        assert kept.running
        clock.advance(MINUTE)  # it was sound
        (kept.data / "global").rename(kept.data / "moved")
        starts = kept.starts
        kept.kill()
        while not keeping.done():
            clock.advance(MINUTE)
            await asyncio.wait({keeping}, timeout=0.02)
    with pytest.raises(
        DatabaseUnavailable, match=r"(?s)7 starts .*did not start.*Mend what its log"
    ):
        await keeping
    assert kept.starts == starts + len(PAUSES_S)


@pytest.mark.nightly
async def test_a_start_ends_when_it_is_cancelled_at_any_step(
    kept: Watched, clock: ManualClock
) -> None:
    """A cancellation is heard at each step of a start; lost once, ``parley up`` never ended."""
    await kept.stop()
    for steps in range(12):
        starting = asyncio.create_task(kept.start())
        for _ in range(steps):
            await clock.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not kept.running
