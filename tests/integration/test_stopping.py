"""A service can be stopped at any time."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from node.cli import services
from node.runtime.settings import Settings
from node.service import NodeService
from tests.conftest import NewDatabase
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.nightly
async def test_a_lead_that_waits_for_its_node_can_be_stopped(
    new_database: NewDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """A signal ends a service whose start waits for something that may never come."""
    waiting = asyncio.Event()

    async def wait(_node: NodeService) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(services, "_await_node", wait)
    settings = Settings(dsn=await new_database(empty=True), state_dir=tmp_path)
    serving = asyncio.create_task(services._serve(settings, with_node=False, with_lead=True))
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(waiting.wait(), PATIENCE_S)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(serving, PATIENCE_S)
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
