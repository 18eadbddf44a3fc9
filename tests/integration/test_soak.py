"""The soak's processes end with the process that started them, however that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node.execution import process, proctable
from tests.integration.host_leftovers import descendants
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PLAYING = """
from tests.soak.seeds import BRIEF, played
from tests.support.patience import PATIENCE_S
for outcome in played(BRIEF, range(1, 1_000_000), 2):
    print("playing", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGKILL, os.kill), (signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)],
    ids=["killed", "ended", "Ctrl-C"],
)
async def test_workers_end_with_their_owner(
    number: signal.Signals, send: Callable[[int, int], None]
) -> None:
    """No worker is left after Ctrl-C in all processes or the death of the owner."""
    owner = await process.start(
        [sys.executable, "-c", PLAYING], env={"PYTHONPATH": str(ROOT)}, cwd=ROOT
    )
    await owner.printed(b"playing")
    workers = descendants(owner.pid)
    assert len(workers) == 2
    ends = asyncio.create_task(proctable.wait_for_exits(list(workers)))
    send(owner.pid, number)
    async with asyncio.timeout(PATIENCE_S):
        await ends
        await owner.wait()
