"""Readers of the event stream choose what they read, and are told what they have missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import orjson
import pytest

from node.journal import events
from node.journal.events import EventHub
from node.model import times
from node.store.database import Notice
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, asker


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Serve a node."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def read(a: Asker, query: str, after: object, count: int) -> list[tuple[str, dict[str, str]]]:
    """Return the kind and the words of the first events of a stream that resumes there."""
    found: list[tuple[str, dict[str, str]]] = []
    url, headers = f"{a.node.card.url}/v1/events{query}", {"Last-Event-ID": str(after)}
    async with asyncio.timeout(PATIENCE_S), a.session.get(url, headers=headers) as response:
        kind = ""
        async for line in response.content:
            if line.startswith(b"event: "):
                kind = line[7:-1].decode()
            if line.startswith(b"data: "):
                found.append((kind, orjson.loads(line[6:])))
            if len(found) == count:
                break
    return found


async def test_a_reader_chooses_types_and_a_task(a: Asker) -> None:
    """Only events of the types, about the task, are sent; unknown types are refused."""
    hub, mine, other = a.node.hub, uuid4(), uuid4()
    place = hub.last
    for task in (other, mine):
        hub.on_notice(Notice("task", str(task), ("active",)))
        hub.on_notice(Notice("run", str(uuid4()), (str(task), "running")))
        hub.on_notice(Notice("pool", "europe", ("added",)))
    [(kind, body)] = await read(a, f"?types=run,pool&task={mine}", place, 1)
    assert (kind, body["task"]) == ("run", str(mine))
    pools = await read(a, "?types=pool", place, 2)
    assert [kind for kind, _ in pools] == ["pool", "pool"]
    about = await read(a, f"?task={mine}", place, 2)
    assert [kind for kind, _ in about] == ["task", "run"]
    status, problem = await a.ask("GET", "/v1/events?types=nonsense")
    assert (status, problem["errors"][0]["pointer"]) == (422, "?types")


async def test_a_reader_that_was_away_too_long_is_told(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose last event is no longer kept gets a gap first, and is told of it once."""
    monkeypatch.setattr(events, "HISTORY", 3)
    hub = a.node.hub = EventHub(a.node.clock)
    place = hub.last
    for number in range(5):
        hub.on_notice(Notice("pool", f"p{number}", ("added",)))
    [gap, *rest] = await read(a, "", place, 4)
    at = times.to_the_second(a.node.clock.now())
    assert gap == ("gap", {"after": str(place), "next": str(place + 3), "at": at})
    assert [body["id"] for _, body in rest] == ["p2", "p3", "p4"]
    [resumed] = await read(a, "", place + 4, 1)
    assert resumed[0] == "pool", "nothing is lost since"
    [gap] = await read(a, "?types=pool", hub.last + 1000, 1)
    assert gap[0] == "gap", "another node, or the same one before its clock was set, counted so"
    [gap, *_] = await read(a, "", "nonsense", 2)
    assert gap == ("gap", {"after": "0", "next": str(place + 3), "at": at})
