"""Schemathesis finds the answers of a node as its API describes them, in all of its phases."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.api.app import ROUTES
from node.api.openapi import openapi_document
from node.plugins.registry import tests as registered_tests
from tests.conftest import NewDatabase
from tests.described.running import PHASES, ask
from tests.support.clocks import ManualClock
from tests.support.served_nodes import answered, asker

pytestmark = pytest.mark.timeout(120)


@pytest.mark.nightly
async def test_answers_are_as_they_are_described(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Examples, coverage, fuzzing, and sequences of requests are all sent, and none surprises."""
    async with asker("a", await new_database(), clock, tmp_path) as a:
        a.node.openapi = openapi_document(ROUTES, "1", registered_tests())
        url, work = str(a.node.card.url), tmp_path / "schemathesis"
        work.mkdir()
        tags = ["Reservations", "Archives"]
        found = await ask(url, "secret", work, examples=4, seed=1, only=tags)
        served = answered(a.node)
    assert found.failures == [], found.text
    assert found.errors == [], found.text
    assert found.phases == dict.fromkeys(PHASES, "success")
    assert found.operations == 16
    assert all(found.sent[phase] >= found.operations for phase in ("coverage", "fuzzing"))
    assert found.sent["examples"] > 0
    assert found.followed > 0, "requests that use the answers to earlier ones"
    assert served >= found.sent.total() / 2, "the node itself has seen them"
    assert found.is_whole
