"""The API keeps to HTTP: methods, media types, caches, conditions, and pages of its problems."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import escape
from pathlib import Path

import pytest

from node.api.problem_types import PROBLEM_TYPES
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, asker


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node with a client that has a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def test_every_type_of_problem_leads_to_its_page(a: Asker) -> None:
    """The type of a problem is the path of a page that says what it means and what to do."""
    status, problem = await a.ask("GET", "/v1/nothing")
    assert (status, problem["type"]) == (404, "/problems/not-found")
    for each in PROBLEM_TYPES.values():
        async with a.session.get(f"{a.node.card.url}{each.type}") as response:
            page = await response.text()
        assert (response.status, response.content_type) == (200, "text/html")
        assert escape(each.title) in page
    async with a.session.get(f"{a.node.card.url}/problems") as response:
        listed = await response.text()
    assert all(each.type in listed for each in PROBLEM_TYPES.values())
    assert (await a.ask("GET", "/problems/nothing"))[0] == 404
