"""The pool in which the statements of the seeds are seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest_asyncio

from tests.acceptance.outsider import Outsider
from tests.acceptance.seeds.scene import Scene

AHEAD = timedelta(hours=3)
"""Far enough that no run begins during a test."""


@pytest_asyncio.fixture(loop_scope="session")
async def scene(a: Outsider) -> AsyncIterator[Scene]:
    """Create a pool of all nodes; it goes with its campaigns once its tasks are cancelled."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + AHEAD
    made = Scene(a, f"seeds-{uuid4().hex[:6]}", hour)
    answer = await a.ask("POST", "/v1/pools", {"name": made.pool, "match": {}})
    assert answer.status == 201, answer
    await a.until(f"/v1/pools/{made.pool}", lambda found: len(found["nodes"]) == 3)
    yield made
    for name in made.campaigns:
        closed = {"state": "closed", "level": 0, "target": None}
        assert (await a.ask("PATCH", f"/v1/campaigns/{name}", closed)).status == 200
    assert (await a.ask("DELETE", f"/v1/pools/{made.pool}")).status == 204
