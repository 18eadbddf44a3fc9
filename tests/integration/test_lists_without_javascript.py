"""The lists for browsers without JavaScript: a token as the password, and tables of HTML."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, asker


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to query, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def _read(a: Asker, path: str, password: str | None) -> tuple[int, str, str]:
    """Return status, body and the challenge, as a browser without JavaScript gets them."""
    headers = {"Accept": "text/html,*/*;q=0.8"}
    if password is not None:
        headers["Authorization"] = aiohttp.encode_basic_auth("anybody", password)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{a.node.card.url}{path}", headers=headers) as answer,
    ):
        text = await answer.text()
        return answer.status, text, answer.headers.get("WWW-Authenticate", "")


async def test_lists_are_read_without_javascript(a: Asker) -> None:
    """Each list is a table for who sends a token as the password, and for nobody else."""
    made = []
    for number in range(3):
        document = {"test": {"type": "idle"}, "reference": number, "schedule": {"repeat": "PT1H"}}
        status, task = await a.ask("POST", "/v1/tasks", document)
        assert status == 201
        made.append(task["headline"])
    token = str(a.session.headers["Authorization"]).removeprefix("Bearer ")
    for password in (None, "", "wrong"):
        status, _, challenge = await _read(a, "/lists/tasks", password)
        assert (status, challenge.partition(" ")[0]) == (401, "Basic")
    status, text, _ = await _read(a, "/lists/tasks?limit=2", token)
    assert (status, text.count(f"<td>{made[0]}")) == (200, 2)
    further = text.partition("<p><a href='")[2].partition("'")[0].replace("&amp;", "&")
    assert (await _read(a, further, token))[1].count(f"<td>{made[0]}") == 1
    for name, words in (
        ("nodes", "<td>this node"),
        ("events", "<th scope=col>When"),
        ("runs", "Begins"),
    ):
        status, text, _ = await _read(a, f"/lists/{name}", token)
        assert (status, words in text) == (200, True), name
    assert (await _read(a, "/lists/others", token))[0] == 404
    # No other path takes a password, which browsers send by themselves.
    assert (await _read(a, "/v1/tasks", token))[0] == 401
