"""Signed requests between nodes over real HTTP: only known and signed ones are served."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any
from uuid import uuid4

import aiohttp
import orjson
import pytest

from node.api import participant
from node.model import times
from node.model.errors import UnknownToPeer
from node.model.wire.nodes import NodeAddition
from node.model.wire.problems import MEDIA_TYPE
from node.model.wire.validation import FAULTS_MAX
from node.trust.keys import NodeKey
from node.trust.signatures import AGE_MAX_S, SKEW_S, new_nonce, sign
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Served, give_token, know, served

HOUR = START + times.HOUR
PATH = "/v1/participant/proposals"


@dataclass
class Caller:
    """A sender of requests to node b, signed by a by default."""

    a: Served
    b: Served
    http: aiohttp.ClientSession

    def body(self) -> bytes:
        """Return the body of a proposal."""
        proposal = {
            "task": str(uuid4()),
            "lease_epoch": 1,
            "scheduling_class": "normal",
            "duration": times.MINUTE,
            "priority": 0,
            "windows": [[HOUR, HOUR + times.HOUR]],
        }
        return orjson.dumps({"items": [proposal]})

    def signed(
        self,
        body: bytes,
        *,
        key: NodeKey | None = None,
        to: str | None = None,
        age_s: int = 0,
        path: str = PATH,
    ) -> dict[str, str]:
        """Return the headers that sign a proposal, or what is posted to another path."""
        return sign(
            key or self.a.key,
            "POST",
            f"{self.b.card.url}{path}",
            body,
            created=self.b.clock.now() // times.SECOND - age_s,
            nonce=new_nonce(lambda size: uuid4().bytes[:size]),
            to=to or self.b.card.identity,
        )

    async def post(self, body: bytes, headers: dict[str, str], path: str = PATH) -> tuple[int, Any]:
        """Return the status and the document of the answer."""
        url = f"{self.b.card.url}{path}"
        async with self.http.post(url, data=body, headers=headers) as response:
            return response.status, orjson.loads(await response.read())

    async def refused(
        self,
        body: bytes,
        headers: dict[str, str],
        path: str = PATH,
        code: str = "not-authenticated",
    ) -> str:
        """Return the reason of a 401 with this code."""
        url = f"{self.b.card.url}{path}"
        async with self.http.post(url, data=body, headers=headers) as response:
            document = orjson.loads(await response.read())
            assert (response.status, response.content_type) == (401, MEDIA_TYPE)
        assert document["type"].endswith(f"/{code}")
        assert document["status"] == 401
        assert document["instance"] == path.partition("?")[0]
        return str(document["detail"])


@pytest.fixture
async def caller(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Caller]:
    """Return two served nodes that know each other, some time after their start."""
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(served("a", await new_database(), clock, tmp_path))
        b = await stack.enter_async_context(served("b", await new_database(), clock, tmp_path))
        await know(a, b)
        await know(b, a)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        clock.advance(times.HOUR // 2)
        yield Caller(a, b, http)


async def test_a_signed_request_is_served(caller: Caller) -> None:
    """A known node's signed request is answered."""
    body = caller.body()
    status, document = await caller.post(body, caller.signed(body))
    assert status == 200
    assert document["items"][0]["answer"]["free"] == [[HOUR, HOUR + times.HOUR]]


@pytest.mark.parametrize("path", ["proposals", "holds", "rulings"])
@pytest.mark.mostly_nightly
async def test_a_message_has_no_more_than_a_node_sends(caller: Caller, path: str) -> None:
    """A message with more windows or runs than any node sends in one is refused, and says so."""
    task, run = str(uuid4()), {"slot": HOUR, "attempt": 1, "starts_at": HOUR, "ends_at": HOUR + 1}
    held = {
        "task": task,
        "generation": task,
        "lease_epoch": 1,
        "tool": "sleep",
        "priority": 0,
        "life": 1,
        "runs": [{**run, "run": task}] * 400,
    }
    item = {
        "proposals": orjson.loads(caller.body())["items"][0]
        | {"windows": [[HOUR, HOUR + 9]] * 400},
        "holds": {"exchange": task, "hold": held},
        "rulings": {"exchange": task, "commit": {"runs": [task] * 400, "data": {}}},
    }[path]
    body, url = orjson.dumps({"items": [item] * 6}), f"/v1/participant/{path}"
    status, document = await caller.post(body, caller.signed(body, path=url), url)
    assert status == 413
    assert "send at most 2048 in one" in document["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("proposals", b'{"items":[{%s}]}' % b",".join(b'"f%d":1' % n for n in range(90_000))),
        ("digests", b'{"tasks":[{%s}]}' % b",".join(b'"f%d":1' % n for n in range(90_000))),
        ("proposals", b'{"items":[{"windows":[%s]}]}' % b",".join([b"[1]"] * 90_000)),
        ("holds", b'{"items":[%s]}' % b",".join([b"[]"] * 90_000)),
        ("work", b'{"answers":[%s]}' % b",".join([b"{}"] * 90_000)),
    ],
)
@pytest.mark.nightly
async def test_a_document_of_faults_costs_little(caller: Caller, path: str, body: bytes) -> None:
    """A known node's document with 90,000 faults, wherever, takes neither memory nor time."""
    peak_before, began = getrusage(RUSAGE_SELF).ru_maxrss, time.process_time()
    status, document = await caller.post(
        body, caller.signed(body, path=f"/v1/participant/{path}"), f"/v1/participant/{path}"
    )
    assert status == 422
    assert len(document["errors"]) <= FAULTS_MAX
    assert time.process_time() - began < 2
    assert getrusage(RUSAGE_SELF).ru_maxrss - peak_before < 60_000  # kB


async def test_an_unsigned_request_is_refused(caller: Caller) -> None:
    """An unsigned request is refused."""
    assert await caller.refused(caller.body(), {}) == (
        "the request is not signed; nodes sign what they send to each other with their keys "
        "(RFC 9421)"
    )


@pytest.mark.parametrize(
    ("age_s", "reason"),
    [(AGE_MAX_S + 1, "the request is stale: signed at "), (-SKEW_S - 1, "comes from the future")],
)
async def test_a_request_of_another_time_is_refused(
    caller: Caller, age_s: int, reason: str
) -> None:
    """A signature that is too old, or from the future, is refused with both clocks."""
    body = caller.body()
    detail = await caller.refused(body, caller.signed(body, age_s=age_s))
    assert reason in detail
    assert "and this node's clock says 2026-12-01T00:30:00Z" in detail


async def test_a_request_from_before_the_start_is_refused(caller: Caller) -> None:
    """A signature from before the start is refused, as nonces are lost in a restart."""
    caller.b._began = caller.b.clock.monotonic()
    body = caller.body()
    detail = await caller.refused(body, caller.signed(body, age_s=1))
    assert "before this node started at 2026-12-01T00:30:00Z" in detail


async def test_a_replayed_request_is_refused(caller: Caller) -> None:
    """A signature is accepted only once."""
    body = caller.body()
    headers = caller.signed(body)
    assert (await caller.post(body, headers))[0] == 200
    detail = await caller.refused(body, headers)
    assert "has been received before: its nonce was used; sign it again" in detail


async def test_an_altered_body_is_refused(caller: Caller) -> None:
    """A request with an altered body is refused."""
    body = caller.body()
    detail = await caller.refused(body.replace(b"normal", b"background"), caller.signed(body))
    assert detail == "the request has a body that differs from its Content-Digest"


async def test_an_altered_path_is_refused(caller: Caller) -> None:
    """A signature is not valid for another path or query."""
    body = caller.body()
    detail = await caller.refused(body, caller.signed(body), f"{PATH}?more=1")
    assert detail.startswith("the request has a wrong signature: method, path, query")


@pytest.mark.nightly
async def test_an_unknown_key_is_refused(caller: Caller) -> None:
    """A request with an unknown key is refused with the key and the remedy."""
    body = caller.body()
    headers = caller.signed(body, key=NodeKey.generate())
    detail = await caller.refused(body, headers, code="unknown-peer")
    assert "which this node does not know; its owner adds it with: parley node" in detail


async def test_a_request_for_another_node_is_refused(caller: Caller) -> None:
    """A request that was signed for another node is refused."""
    body = caller.body()
    detail = await caller.refused(body, caller.signed(body, to=NodeKey.generate().identity))
    assert detail.startswith("the request is meant for the node with the key ")


async def test_a_foreign_signature_is_refused(caller: Caller) -> None:
    """A request in the name of a known node is refused without that node's key."""
    body = caller.body()
    headers = caller.signed(body, key=NodeKey.generate())
    parts = headers["Signature-Input"].partition('keyid="')
    rest = parts[2].partition('"')[2]
    headers["Signature-Input"] = f'{parts[0]}keyid="{caller.a.card.identity}"{rest}'
    detail = await caller.refused(body, headers)
    assert detail.startswith("the request has a wrong signature")


async def test_a_removed_node_is_refused(caller: Caller) -> None:
    """A removed node is refused."""
    await caller.b.node_removal.remove("a")
    body = caller.body()
    detail = await caller.refused(body, caller.signed(body), code="unknown-peer")
    assert "which this node does not know" in detail


async def test_a_users_token_opens_no_participant_route(caller: Caller) -> None:
    """A user's token is not valid for requests between nodes."""
    await give_token(caller.b, "parley_secret")
    headers = {"Authorization": "Bearer parley_secret"}
    for route in participant.ROUTES:
        path = route.path.replace("{id}", str(uuid4())).replace("{task}", str(uuid4()))
        url = f"{caller.b.card.url}{path}"
        async with caller.http.request(route.method, url, data=b"{}", headers=headers) as response:
            document = orjson.loads(await response.read())
            assert response.status == 401, path
        assert document["detail"].startswith("the request is not signed")
    async with caller.http.post(
        f"{caller.b.card.url}/v1/tasks", data=b"{}", headers=headers
    ) as response:
        assert response.status == 422


async def test_a_signature_opens_no_users_route(caller: Caller) -> None:
    """A node's signature is not valid for requests of users."""
    body = b"{}"
    headers = sign(
        caller.a.key,
        "POST",
        f"{caller.b.card.url}/v1/tasks",
        body,
        created=caller.b.clock.now() // times.SECOND,
        nonce=new_nonce(lambda size: uuid4().bytes[:size]),
        to=caller.b.card.identity,
    )
    assert "this needs a token" in await caller.refused(body, headers, "/v1/tasks")


async def test_the_client_raises_the_reason(caller: Caller) -> None:
    """The client of a refused node raises an error with the reason."""
    await caller.b.node_removal.remove("a")
    with pytest.raises(UnknownToPeer, match="b does not know this node: its database was lost"):
        await caller.a.peer(caller.b.card.identity).decision(uuid4())


async def test_nodes_pin_each_other_by_url(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A node that is added by its URL is pinned with its key and then served."""
    async with (
        served("a", await new_database(), clock, tmp_path) as a,
        served("b", await new_database(), clock, tmp_path) as b,
    ):
        for node, other in ((a, b), (b, a)):
            known = await node.registration.add(NodeAddition(url=other.card.url))
            assert known.identity == other.card.identity
        assert (await a.peer(b.card.identity).decision(uuid4())).state == "aborted"
