"""A node with an outbox of results, and somebody who takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.store.database import PostgresDatabase
from tests.support.archiving import Office, Receiver, office, receiver
from tests.support.clocks import ManualClock


@pytest.fixture
async def a(
    database: PostgresDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Office]:
    """A node with one task, that lets files be written."""
    made = await office(database, clock, tmp_path)
    yield made
    await made.result_delivery.close()


@pytest.fixture
async def taker() -> AsyncIterator[Receiver]:
    """Somebody who takes results."""
    async with receiver() as made:
        yield made
