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
from node.model.errors import DatabaseUnavailable, NoRoom, PeerAnswered, PeerFailed
from node.model.wire.participants import Proposal, ProposalRequest
from node.model.wire.problems import problem_of
from tests.support.worlds import introduction


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

    app = web.Application()
    app.router.add_post("/v1/participant/proposals", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = peers.Peers(session, lambda *_: {}, 5.0)
        peer = client.to("identity", "b", str(server.make_url("/")))
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

    app = web.Application()
    app.router.add_get("/v1/nodes/self", card)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = peers.Peers(session, lambda *_: {}, 5.0)
        with pytest.raises(PeerAnswered, match="more than 10 bytes"):
            await client.card(str(server.make_url("/")))


async def test_a_fault_of_ours_with_one_question_spoils_no_other() -> None:
    """An internal error in one of several requests is reported for that one alone."""

    async def fine() -> Proposal:
        return ANSWER

    async def faulty() -> Proposal:
        raise ZeroDivisionError

    answers = orjson.loads((await participant._each([fine(), faulty(), fine()])).body)  # type: ignore[arg-type]
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
        return responses.problem(kind(problem.detail), "/")

    async def each(request: web.Request) -> web.Response:
        asked.append(len((await request.json())["items"]))
        return web.json_response({"items": [{"problem": problem.model_dump(mode="json")}]})

    app = web.Application()
    app.router.add_post("/v1/participant/considerations", failing)
    app.router.add_post("/v1/participant/proposals", each)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = peers.Peers(session, lambda *_: {}, 5.0)
        peer = client.to("identity", "b", str(server.make_url("/")))
        sentence = "^b cannot do it: the database does not answer: disk full$"
        with pytest.raises(PeerFailed, match=sentence):
            await peer.consider(introduction([]))
        with pytest.raises(PeerFailed, match=sentence):
            await peer.propose(_request())
    assert asked == [1]
