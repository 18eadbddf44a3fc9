"""The façade answers whatever it is sent: with lines of text, and never with a fault of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from node.pscheduler.app import ROUTES
from node.pscheduler.listener import listening
from node.pscheduler.tests.registry import LANGUAGES
from node.trust.tls import unchecked
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Served, free_port, served

pytestmark = pytest.mark.timeout(180)

TASK: dict[str, Any] = {
    "schema": 1,
    "test": {"type": "idle", "spec": {"schema": 1, "duration": "PT1S"}},
    "schedule": {"start": "PT1H", "repeat": "PT1H", "slip": "PT5M", "max-runs": 2},
    "archives": [{"archiver": "bitbucket", "data": {}}],
    "contexts": {"contexts": [[]]},
    "reference": {"a": [1, 2.5, None]},
    "tools": ["sleep"],
    "priority": 1,
    "_key": "k",
}
NOT_ASKED = {"/mtu-safe"}
"""Paths that send packets for seconds."""


@dataclass(frozen=True)
class Attack:
    """A request that nobody means well with."""

    method: str
    path: str
    query: str
    body: bytes


TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "\x00",
        "\ud800",
        "🌩",
        "P1D",
        "PT-1S",
        "@P",
        "@P0D",
        "2026-02-30T00:00:00",
        "::1",
        "[::1]:x",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(2**70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = list(value.items()) if isinstance(value, dict) else []
    inside = list(enumerate(value)) if isinstance(value, list) else inside
    return [at, *(place for step, each in inside for place in _places(each, (*at, step)))]


def _with(value: Any, place: tuple[Any, ...], other: Any) -> Any:
    if not place:
        return other
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = _with(value[place[0]], place[1:], other)
    return changed


@st.composite
def tasks(draw: st.DrawFn) -> Any:
    """A valid task with one or two of its values replaced by something else."""
    task: Any = TASK
    for _ in range(draw(st.integers(1, 2))):
        task = _with(task, draw(st.sampled_from(_places(task))), draw(VALUES))
    return task


@st.composite
def paths(draw: st.DrawFn) -> str:
    """A path of the table with anything in place of its words in braces, and slashes doubled."""
    route = draw(st.sampled_from([each for each in ROUTES if each.path not in NOT_ASKED]))
    ids = st.sampled_from(["KNOWN", "first", "next", "0f0f3a4e-3c1f-4d3c-8d8f-5f3b6c1d2e3f"])
    names = st.sampled_from([*LANGUAGES, "ping", "finished", "bitbucket"])
    words = [draw(ids | names | TEXTS) if word.startswith("{") else word for word in route.words]
    slash = draw(st.sampled_from(["/", "/", "//", "/./"]))
    return slash.join(
        ["", "pscheduler", *(quote(word, safe="", errors="replace") for word in words)]
    )


_NAMES = (
    "args spec proposal json data test detail expanded api pretty key wait wait-local wait-merged "
    "start end limit upcoming task format window participant priority"
)
PARAMETERS = st.dictionaries(
    st.sampled_from(_NAMES.split()),
    VALUES.map(json.dumps) | TEXTS | st.just("0"),
    max_size=3,
).map(lambda query: {**query, "wait": "0"} if "wait" in query or "wait-merged" in query else query)

ATTACKS = st.builds(
    Attack,
    st.sampled_from(["GET", "GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"]),
    paths(),
    PARAMETERS.map(lambda query: urlencode(query, errors="replace")),
    tasks().map(lambda task: json.dumps(task).encode())
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=30),
) | st.builds(
    Attack,
    st.just("POST"),
    st.just("/pscheduler/tasks"),
    st.just(""),
    tasks().map(lambda task: json.dumps(task).encode()),
)


@pytest_asyncio.fixture
async def node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Served]:
    """A node with the façade; nothing is planned or measured."""
    place = f"127.0.0.1:{free_port()}"
    dsn = await new_database()
    async with (
        served("a", dsn, clock, tmp_path, tls=True, pscheduler_listen=place) as running,
        listening(running),
    ):
        yield running


async def test_whatever_is_sent_is_answered_in_words(node: Served) -> None:
    """Refusals are lines of text with a status of the caller's fault, whatever is asked for."""
    base = f"https://{node.settings.pscheduler_listen}"
    loop = asyncio.get_running_loop()
    connector = aiohttp.TCPConnector(ssl=unchecked()["ssl"])
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send(attack: Attack) -> tuple[int, str, str]:
            query = f"?{attack.query}" if attack.query else ""
            url = URL(f"{base}{attack.path.replace('KNOWN', known)}{query}", encoded=True)
            async with session.request(
                attack.method, url, data=attack.body or None, allow_redirects=False
            ) as answer:
                return answer.status, answer.content_type, await answer.text()

        made = Attack("POST", "/pscheduler/tasks", "", json.dumps(TASK).encode())
        known = ""
        status, _, href = await send(made)
        assert status == 200, href
        known = json.loads(href).rpartition("/")[2]

        @settings(max_examples=300)
        @given(ATTACKS)
        def attacked(attack: Attack) -> None:
            status, kind, text = asyncio.run_coroutine_threadsafe(send(attack), loop).result()
            assert status < 500 or status == 501, (status, text)
            if status >= 400 and attack.method != "HEAD":
                assert kind == "text/plain"
                assert text.strip()
                assert text.endswith("\n")

        await asyncio.to_thread(attacked)
