"""The client for other nodes handles their answers over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from node.api import participant, responses
from node.client import peers
from node.model.classes import SchedulingClass
from node.model.errors import (
    DatabaseUnavailable,
    NoRoom,
    NotFound,
    PeerAnswered,
    PeerFailed,
)
from node.model.wire.nodes import NodeCard
from node.model.wire.participants import Proposal, ProposalRequest
from node.model.wire.problems import problem_of
from node.runtime.clock import SystemClock
from node.trust.keys import NodeKey
from node.trust.signatures import Asked
from node.trust.signer import Signer
from tests.support.signing import answer_nonce, signing_with
from tests.support.worlds import introduction

OWN, OTHER = NodeKey.generate(), NodeKey.generate()


def _client(session: aiohttp.ClientSession) -> peers.Peers:
    return peers.Peers(session, Signer(OWN, SystemClock().now), 5.0)


def _request() -> ProposalRequest:
    return ProposalRequest(
        task=uuid4(),
        lease_epoch=1,
        scheduling_class=SchedulingClass.EXCLUSIVE,
        duration=1,
        priority=0,
        windows=((0, 9),),
    )


ANSWER = Proposal(now=0, horizon=9, free=tuple((n, n + 1) for n in range(100)))


async def _ask_three(propose: Callable[[list[Any]], Any]) -> list[Proposal | BaseException]:
    """Send three requests at once; ``propose(items)`` returns the other node's answer."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(propose((await request.json())["items"]))

    app = web.Application(middlewares=[signing_with(OTHER)])
    app.router.add_post("/v1/participant/proposals", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = _client(session)
        peer = client.client_of(OTHER.identity, "b", str(server.make_url("/")))
        requests = (peer.propose(_request()) for _ in range(3))
        return await asyncio.gather(*requests, return_exceptions=True)


async def test_answers_too_long_together_are_asked_for_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests whose answers are too long together are sent again one by one."""
    monkeypatch.setattr(peers, "_ANSWER_BYTES_MAX", 3 * len(ANSWER.model_dump_json()) // 2)
    counts: list[int] = []

    def propose(items: list[Any]) -> Any:
        counts.append(len(items))
        return {"items": [{"answer": ANSWER.model_dump(mode="json")}] * len(items)}

    assert await _ask_three(propose) == [ANSWER] * 3
    assert counts == [3, 1, 1, 1]


async def test_one_senseless_answer_spoils_no_other() -> None:
    """An invalid answer to one of three requests in a message fails that request alone."""
    invalid: list[str] = []

    def propose(items: list[Any]) -> Any:
        if not invalid:
            invalid.append(items[1]["task"])
        good = {"answer": ANSWER.model_dump(mode="json")}
        return {"items": [{"answer": 7} if i["task"] in invalid else good for i in items]}

    first, second, third = await _ask_three(propose)
    assert first == third == ANSWER
    assert isinstance(second, PeerAnswered)


async def test_a_card_without_end_is_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is too long is not accepted as a card."""
    monkeypatch.setattr(peers, "_ANSWER_BYTES_MAX", 10)

    async def card(_: web.Request) -> web.Response:
        return web.Response(text="x" * 100)

    app = web.Application(middlewares=[signing_with(OTHER)])
    app.router.add_get("/v1/nodes/self", card)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = _client(session)
        with pytest.raises(PeerAnswered, match="more than 10 bytes"):
            await client.card(str(server.make_url("/")))


async def test_a_fault_of_ours_with_one_question_spoils_no_other() -> None:
    """An internal error in one of several requests is reported for that one alone."""

    async def fine() -> Proposal:
        return ANSWER

    async def faulty() -> Proposal:
        raise ZeroDivisionError

    answers = orjson.loads((await participant._batch_response([fine(), faulty(), fine()])).body)  # type: ignore[arg-type]
    assert [list(item) for item in answers["items"]] == [["answer"], ["problem"], ["answer"]]
    assert "an internal error occurred" in answers["items"][1]["problem"]["detail"]


@pytest.mark.parametrize("kind", [DatabaseUnavailable, NoRoom])
async def test_what_another_host_cannot_do_is_not_this_hosts_fault(
    kind: type[DatabaseUnavailable],
) -> None:
    """The problem of another node's host names that node, alone and among the items of a batch."""
    problem = problem_of(kind("the database does not answer: disk full"))
    asked: list[int] = []

    async def failing(_: web.Request) -> web.Response:
        return responses.problem_response(kind(problem.detail), "/")

    async def each(request: web.Request) -> web.Response:
        asked.append(len((await request.json())["items"]))
        return web.json_response({"items": [{"problem": problem.model_dump(mode="json")}]})

    app = web.Application(middlewares=[signing_with(OTHER)])
    app.router.add_post("/v1/participant/considerations", failing)
    app.router.add_post("/v1/participant/proposals", each)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = _client(session)
        peer = client.client_of(OTHER.identity, "b", str(server.make_url("/")))
        sentence = "^b cannot do it: the database does not answer: disk full$"
        with pytest.raises(PeerFailed, match=sentence):
            await peer.consider(introduction([]))
        with pytest.raises(PeerFailed, match=sentence):
            await peer.propose(_request())
    assert asked == [1]


FORGERIES: dict[str, str] = {
    "unsigned": "is not signed",
    "of another key": "is signed with the key",
    "to another request": "is one to another request",
    "another status": "its status or a signed header was changed",
    "another body": "has a body that differs from its Content-Digest",
    "half a signature": "the header content-digest is missing",
    "bound to another request": "to a request with another method, path or query",
}


def _forged(how: str, body: bytes, nonce: str) -> web.Response:
    """Return what somebody on the path makes of an answer with this body."""
    key = OWN if how == "of another key" else OTHER
    nonce = "of-an-earlier-request" if how == "to another request" else nonce
    asked = Asked("GET", "/metrics") if how == "bound to another request" else None
    headers = Signer(key, SystemClock().now).answer(200, body, nonce, asked)
    if how == "half a signature":
        del headers["Content-Digest"]
    return web.Response(
        body=body + b" " if how == "another body" else body,
        status=201 if how == "another status" else 200,
        headers={} if how == "unsigned" else headers,
        content_type="application/json",
    )


@pytest.mark.parametrize("how", FORGERIES)
async def test_an_answer_that_the_node_did_not_give_is_not_believed(how: str) -> None:
    """An answer, or a card, that was made or changed on the way is refused with the reason."""
    card = NodeCard(
        identity=OTHER.identity, name="b", url=None, address="b.example", version="1", lanes=1
    )

    async def propose(request: web.Request) -> web.Response:
        return _forged(how, ANSWER.model_dump_json().encode(), answer_nonce(request))

    async def show(request: web.Request) -> web.Response:
        return _forged(how, card.model_dump_json().encode(), answer_nonce(request))

    app = web.Application()
    app.router.add_post("/v1/participant/proposals", propose)
    app.router.add_get("/v1/nodes/self", show)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client, url = _client(session), str(server.make_url("/"))
        reason = f"cannot be trusted: the answer .*{FORGERIES[how]}"
        with pytest.raises(PeerAnswered, match=f"^b gave an answer that {reason}"):
            await client.client_of(OTHER.identity, "b", url).propose(_request())
        with pytest.raises(PeerAnswered, match=reason):
            await client.card(url)


async def test_an_unsigned_refusal_says_nothing_about_the_task() -> None:
    """The problem of a proxy, or a forged one, is a fault of the host that was asked."""

    async def gone(_: web.Request) -> web.Response:
        return responses.problem_response(NotFound("there is no such task"), "/")

    app = web.Application()
    app.router.add_post("/v1/participant/considerations", gone)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        peer = _client(session).client_of(OTHER.identity, "b", str(server.make_url("/")))
        with pytest.raises(PeerFailed, match=r"^b cannot do it: there is no such task"):
            await peer.consider(introduction([]))


async def test_the_card_of_a_node_is_no_answer_to_another_request() -> None:
    """A card, signed for the nonce of a request by who relays it, is no answer to that request."""
    binding = {"feature:bound-answers": True}

    async def relayed(request: web.Request) -> web.Response:
        body = ANSWER.model_dump_json().encode()
        signer, nonce = Signer(OTHER, SystemClock().now), answer_nonce(request)
        return web.Response(body=body, headers=signer.answer(200, body, nonce))

    app = web.Application()
    app.router.add_post("/v1/participant/proposals", relayed)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        peer = _client(session).client_of(OTHER.identity, "b", str(server.make_url("/")), binding)
        with pytest.raises(PeerAnswered, match="covers the wrong components"):
            await peer.propose(_request())
