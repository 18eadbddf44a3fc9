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
import sys
from tests.soak.seeds import played
for outcome in played(sys.argv[1], range(1, 1_000_000), 2):
    print("playing", flush=True)
"""
TINY = """
title = "Two nodes that run a task for some minutes: a world that is played at once"
days = 0.003
settle = "PT1M"

[nodes]
count = 2

[[tasks]]
name = "ping"
class = "normal"
between = "random"
count = 1
length = "PT1S"
every = "PT1M"
"""


@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGKILL, os.kill), (signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)],
    ids=["killed", "ended", "Ctrl-C"],
)
@pytest.mark.nightly
async def test_workers_end_with_their_owner(
    number: signal.Signals, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    """No worker is left after Ctrl-C in all processes or the death of the owner."""
    tiny = tmp_path / "tiny.toml"
    tiny.write_text(TINY)
    owner = await process.start(
        [sys.executable, "-c", PLAYING, str(tiny)], env={"PYTHONPATH": str(ROOT)}, cwd=ROOT
    )
    await owner.wait_for_output(b"playing")
    workers = descendants(owner.pid)
    assert len(workers) == 2
    ends = asyncio.create_task(proctable.wait_for_exits(list(workers)))
    send(owner.pid, number)
    async with asyncio.timeout(PATIENCE_S):
        await ends
        await owner.wait()
