"""One request and its answer over real sockets: kept connections, lost ones, and ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from node.client.exchanges import Exchange, NoAnswerError, Request, Server
from node.client.session import NodeSession
from node.model.errors import AnswerLost, NotFound, PeerAnswered, PeerUnreachable
from node.runtime.clock import SystemClock, steady_ns

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Start = Callable[[Serve], Awaitable[str]]


def said(body: str, *, length: int | None = None, kind: str = "application/json") -> bytes:
    """Return an answer in HTTP, of this length or another one than its head says."""
    size = len(body) if length is None else length
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
    return (head + body).encode()


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Serve connections by a function, and return the address."""
    async with AsyncExitStack() as stack:

        async def started(serve: Serve) -> str:
            async def each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await serve(reader, writer)
                writer.close()

            server = await stack.enter_async_context(
                await asyncio.start_server(each, "127.0.0.1", 0)
            )
            host, port = server.sockets[0].getsockname()
            return f"http://{host}:{port}"

        yield started


async def ask(server: Server, method: str = "GET", **limits: float) -> bytes:
    """Return the body of an answer, for which a thread waits."""
    exchange = Exchange(server, Request(method, "/", **limits))  # type: ignore[arg-type] # they are limits
    return (await asyncio.to_thread(exchange.answer)).raw


async def test_a_connection_is_kept_and_replaced_when_it_was_lost(start: Start) -> None:
    """Two requests have one connection; where it ended meanwhile, the next one has another."""
    requests: list[int] = []
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n")
            requests.append(len(connections))
            writer.write(said("{}"))

    with contextlib.closing(Server(await start(serve))) as server:
        assert [await ask(server) for _ in range(3)] == [b"{}"] * 3
    assert requests == [1, 1, 2]


async def test_a_half_answer_is_asked_for_again(start: Start) -> None:
    """An answer that ends before its length is none; the second half answer is an error."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said("{", length=2))

    with (
        contextlib.closing(Server(await start(serve))) as server,
        pytest.raises(NoAnswerError, match="the connection was lost"),
    ):
        await ask(server)
    assert len(requests) == 2


async def test_a_slow_answer_is_late_however_often_it_brings_something(start: Start) -> None:
    """The patience is for the whole answer; what changes something may have been done."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said("", length=1_000_000))
        while True:
            writer.write(b" ")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await reader.read()
                    return

    with contextlib.closing(Server(await start(serve))) as server:
        with pytest.raises(NoAnswerError, match=r"no answer within 0\.2 s"):
            await ask(server, patience_s=0.2)
        with pytest.raises(AnswerLost, match="it may have carried out"):
            await ask(server, "DELETE", patience_s=0.2)
        with pytest.raises(PeerAnswered, match="more than 3 bytes"):
            await ask(server, answer_bytes_max=3)
        exchange = Exchange(server, Request("GET", "/"), steady_ns() + 200_000_000)
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(exchange.answer)


async def test_who_is_cancelled_ends_the_connection(start: Start) -> None:
    """A request that nobody waits for any more leaves no connection and no second request."""
    requests: list[bytes] = []
    asked, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        asked.set()
        await reader.read()
        ended.set()

    async with NodeSession(await start(serve), None, SystemClock()) as session:
        asking = asyncio.create_task(session.check_node())
        await asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await ended.wait()
        events = session.events()
        asked.clear()
        ended.clear()
        reading = asyncio.ensure_future(anext(events))
        await asked.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await ended.wait()
    assert len(requests) == 2


async def test_streams_end_and_break(start: Start) -> None:
    """A stream that is closed is over, one that is cut is lost, and a problem is its error."""
    chunk = b"id: 1\nevent: run\ndata: {}\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    problem = '{"type":"/problems/not-found","title":"x","status":404,"detail":"no such task"}'
    size = f"Content-Length: {len(problem)}"
    answers = [
        head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk),
        head + b"%x\r\n%s\r\n" % (len(chunk), chunk),
        f"HTTP/1.1 404 no\r\nContent-Type: application/json\r\n{size}\r\n\r\n{problem}".encode(),
    ]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0))

    async with NodeSession(await start(serve), None, SystemClock()) as session:
        assert [each.number async for each in session.events()] == [1]
        cut = session.events()
        assert (await anext(cut)).number == 1
        with pytest.raises(PeerUnreachable, match="the connection was lost"):
            await anext(cut)
        with pytest.raises(NotFound, match="no such task"):
            await anext(session.events())


def test_what_is_no_url_is_no_server() -> None:
    """Nothing is connected to a host that nobody has named."""
    for url in ("127.0.0.1:8642", "http://", "ftp://a.example", "http://[::1"):
        with pytest.raises(NoAnswerError, match="this is no URL"):
            Server(url)
