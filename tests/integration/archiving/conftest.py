"""A node with an outbox of results, and a receiver of results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.execution.tool_runner import ToolRunner
from node.runtime.settings import Settings
from node.store.database import PostgresDatabase
from tests.support.archiving import Office, Receiver, office, receiver
from tests.support.clocks import ManualClock


@pytest.fixture
async def a(
    database: PostgresDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Office]:
    """Run a node with one task, which may write files."""
    runner = ToolRunner(Settings())
    made = await office(database, clock, runner, tmp_path)
    yield made
    await made.result_delivery.close()
    await runner.close()


@pytest.fixture
async def taker() -> AsyncIterator[Receiver]:
    """Run a receiver of results."""
    async with receiver() as made:
        yield made
