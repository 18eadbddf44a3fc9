"""The users' client against answers that are late, lost, or not from a node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from node.cli.output import OutputWriter
from node.cli.progress import Progress
from node.cli.reservations import _add
from node.cli.session import Session
from node.client.users import UserClient
from node.model.errors import (
    AnswerLost,
    Conflict,
    NotFound,
    ParleyError,
    PeerAnswered,
    PeerUnreachable,
)
from node.model.wire.nodes import NodeAddition
from node.model.wire.problems import problem_of
from node.runtime.clock import SystemClock
from tests.support.loopback import serving

TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[str]]


@pytest.fixture
async def client(node: Any) -> AsyncIterator[UserClient]:
    """Return a client of the stand-in."""
    async with UserClient(node.url, node.token, SystemClock()) as client:
        yield client


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve every path by one handler, and return the address."""
    async with AsyncExitStack() as stack:

        async def start(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", handler)
            return await stack.enter_async_context(serving(app))

        yield start


async def test_a_lost_post_is_sent_again_with_its_key(client: UserClient, node: Any) -> None:
    """A POST whose connection breaks is repeated once, with the same idempotency key."""
    node.created, node.drop_posts = node.add_task(TASK), 1
    assert (await client.create_task({"test": {"type": "rtt"}})).id == UUID(TASK)
    keys = [key for _, key in node.posted]
    assert len(keys) == 2
    assert keys[0] == keys[1]
    node.drop_posts = 2
    with pytest.raises(PeerUnreachable, match="no node answers"):
        await client.create_task({"test": {"type": "rtt"}})
    assert len({key for _, key in node.posted}) == 2


async def test_problems_are_the_errors_they_were_made_of(client: UserClient, node: Any) -> None:
    """The client raises the errors that the node raised."""
    with pytest.raises(NotFound):
        await client.task(UUID(TASK))
    node.created = Conflict("the key was used for another document")
    with pytest.raises(Conflict, match="another document"):
        await client.create_task({})
    card = NodeAddition(url="http://b.example:8642")
    with pytest.raises(ParleyError):
        await client.add_node(card)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, "<html>hello</html>", PeerAnswered),
        (404, "Not Found", PeerAnswered),
        (302, "", PeerAnswered),
        (418, '{"teapot": true}', PeerAnswered),
        (500, "Internal Server Error", ParleyError),
        (200, '{"items": 1}', PeerAnswered),
        (200, "", PeerAnswered),
    ],
)
async def test_answers_of_others(
    serve: Serve, status: int, body: str, error: type[ParleyError]
) -> None:
    """A page, a redirect, or a crash raises an error of Parley with the address."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, headers={"Location": "http://127.0.0.1:1"})

    async with UserClient(await serve(answer), None, SystemClock()) as client:
        with pytest.raises(error) as caught:
            await client.tests()
    assert type(caught.value) is error


async def test_a_silent_server(serve: Serve) -> None:
    """A server that accepts a request but does not answer is unreachable after a timeout."""

    async def answer(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with UserClient(await serve(answer), None, SystemClock(), patience_s=0.2) as client:
        with pytest.raises(PeerUnreachable, match=r"no answer within 0\.2 s"):
            await client.tools()
        with pytest.raises(AnswerLost, match=r"gave no answer within 0\.2 s; it may have"):
            await client.remove_reservation(UUID(TASK))


async def test_a_lost_answer_is_asked_for_under_the_same_key(serve: Serve) -> None:
    """A lost answer is requested again under the same key; a second loss says what may exist."""
    keys: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) != 2:
            await asyncio.Event().wait()
        problem = problem_of(Conflict("told by the second answer")).model_dump(mode="json")
        return web.json_response(problem, status=409)

    progress = Progress(quiet=True)
    async with UserClient(await serve(answer), None, SystemClock(), patience_s=0.2) as client:
        session = Session(client, SystemClock(), OutputWriter("table", ()), progress)
        with pytest.raises(Conflict, match="told by the second answer"):
            await _add(session, {})
        with pytest.raises(
            AnswerLost, match="the reservation may exist nevertheless: see parley res"
        ):
            await _add(session, {})
    assert keys[0] == keys[1] != keys[2] == keys[3]


async def test_waiting_asks_again(client: UserClient, node: Any) -> None:
    """Waiting for a plan repeats until there is one, unless it is far off or will never come."""
    node.add_task(TASK, planned=False, plan_at="2020-01-01T00:00:00Z")
    waiting = asyncio.create_task(client.until_planned(UUID(TASK)))
    while len(node.asked) < 2:
        await node.was_asked.wait()
        node.was_asked.clear()
    node.tasks[0]["planned"] = True
    assert (await waiting).planned
    node.tasks[0].update(planned=False, plan_at="2099-01-01T00:00:00Z")
    assert not (await client.until_planned(UUID(TASK))).planned
    node.tasks[0]["state"] = "refused"
    assert await client.until_run(UUID(TASK), ("scheduled",)) is None


async def test_names_are_kept_in_their_place(client: UserClient, node: Any) -> None:
    """A node's name with a slash stays one segment of the path."""
    with pytest.raises(ParleyError):
        await client.remove_node("../tasks/x")
    assert node.asked[-1][:2] == ("DELETE", "/v1/nodes/..%2Ftasks%2Fx")


async def test_a_token_is_kept_from_strangers(serve: Serve, bare: Any) -> None:
    """A server that is not a node does not get the token, and dns explains --server."""
    shown: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        return web.json_response({"status": "ok"})

    stranger = await serve(answer)
    ended = await bare("dns", "b.example", "--server", stranger, PARLEY_TOKEN="secret")
    assert (ended.code, shown) == (5, [None])
    assert f"✗ {stranger} does not answer like a node\n" in ended.err
    assert "--server names the node that asks; name the DNS server with --ask" in ended.err


async def test_a_token_goes_to_another_node(node: Any, bare: Any) -> None:
    """A node named by --server gets the token after it has shown its card."""
    node.documents["/v1/nodes/self"] = {"identity": "ed25519:b", "unheard_of": True}
    node.add_task(TASK)
    ended = await bare("task", "cancel", "aa", "--server", node.url, PARLEY_TOKEN=node.token)
    assert ended.code == 0
    assert node.asked[0][:2] == ("GET", "/v1/nodes/self")
