"""Much at once: silent and slow connections, large bodies, streams, and long polls."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from yarl import URL

from tests.hostile.documents import introduction
from tests.hostile.messages import Actor, Message
from tests.hostile.plan import Plan
from tests.hostile.scene import Scene, Site, fitting

FAMILY = "floods"
SILENT = 400
STREAMS = 200
POLLS = 100
BODIES = 20
_BODY = 8_000_000
_CONNECT_S = 20.0
_HOLD_S = 12.0
Pause = Callable[[float], Awaitable[None]]


async def run(scene: Scene, plan: Plan, rng: random.Random, pause: Pause) -> None:
    """Send one flood after the other at node a."""
    site = scene.sites[0]
    size = plan.flood
    await _bombs(scene, site, round(6 * size) or 1)
    await _large(scene, site, rng, round(BODIES * size) or 1)
    await _many_fields(scene, site, rng)
    await _silent(scene, site, round(SILENT * size), pause)
    await _streams(scene, site, round(STREAMS * size), pause)
    await _polls(scene, site, round(POLLS * size))
    await _wrong_tokens(scene, site, round(500 * size))


@contextlib.asynccontextmanager
async def _connection(
    site: Site,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    url = URL(site.node.url)
    async with asyncio.timeout(_CONNECT_S):
        reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _silent(scene: Scene, site: Site, number: int, pause: Pause) -> None:
    """Open connections that say nothing, half a head, or half a body, and keep them for a while."""
    token = site.tokens[Actor.RUN].encode()
    beginnings = (
        b"",
        b"GET /v1/tasks HTTP/1.1\r\nHost: a\r\nX-",
        b"POST /v1/tasks HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
        + token
        + b"\r\nContent-Length: 100000\r\n\r\n{",
        b"POST /v1/participant/holds HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n{",
    )

    async def one(beginning: bytes) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with _connection(site) as (_, writer):
                writer.write(beginning)
                for _ in range(6):
                    await pause(_HOLD_S / 6)
                    if beginning and not writer.is_closing():
                        writer.write(b"x")

    scene.record.count(FAMILY, Actor.STRANGER, number)
    async with asyncio.TaskGroup() as group:
        for count in range(number):
            group.create_task(one(beginnings[count % len(beginnings)]))


async def _bombs(scene: Scene, site: Site, number: int) -> None:
    """Send compressed bodies of which each would unfold to a gigabyte."""
    bomb = gzip.compress(b"\0" * 10_000_000) * 100
    for target in ("/healthz", "/v1/tasks", "/v1/participant/holds")[: max(1, number)]:
        message = Message(
            FAMILY,
            "a gigabyte, compressed",
            "POST" if target != "/healthz" else "GET",
            target,
            Actor.RUN,
            bomb,
            {"Content-Encoding": "gzip"},
            allowed={400, 401, 413},
        )
        await asyncio.gather(*(scene.send(message) for _ in range(max(1, number // 3))))


async def _large(scene: Scene, site: Site, rng: random.Random, number: int) -> None:
    """Send bodies of eight megabytes: unsigned, signed by nobody, by a peer, and by users."""
    body = b" " * _BODY
    documents = [
        Message(FAMILY, "8 MB", "POST", "/v1/participant/holds", Actor.STRANGER, body),
        Message(FAMILY, "8 MB", "POST", "/v1/participant/holds", Actor.REMOVED, body),
        Message(FAMILY, "8 MB", "POST", "/v1/tasks", Actor.STRANGER, body),
        Message(FAMILY, "8 MB", "POST", "/v1/tasks", Actor.RUN, body),
    ]
    refused = {400, 401, 413, 422, 503}
    await asyncio.gather(
        *(scene.send(fitting(rng.choice(documents), allowed=refused)) for _ in range(number))
    )
    for _ in range(max(1, number // 10)):
        peer = Message(FAMILY, "8 MB", "POST", "/v1/participant/holds", Actor.PEER, body)
        await scene.send(fitting(peer, allowed=refused))


async def _many_fields(scene: Scene, site: Site, rng: random.Random) -> None:
    """Send documents with very many unknown fields, faults, and values."""
    fields = {f"field{number}": number for number in range(100_000)}
    lists: list[object] = [[] for _ in range(300_000)]
    task = str(introduction(scene, site)["task"])
    documents: list[object] = [
        fields,
        {"items": lists},
        {"items": [fields]},
        lists,
        {"items": [{}] * 60_000},
    ]
    for document in documents:
        body = orjson.dumps(document)
        for method, target, actor in (
            ("POST", "/v1/tasks", Actor.RUN),
            ("POST", "/v1/pools", Actor.OPERATE),
            ("POST", "/v1/participant/holds", Actor.PEER),
            ("POST", "/v1/participant/proposals", Actor.PEER),
            ("PUT", f"/v1/participant/tasks/{task}", Actor.PEER),
        ):
            message = Message(FAMILY, "100,000 fields", method, target, actor, body)
            received = await scene.send(fitting(message, allowed={400, 413, 422}))
            if received is not None and len(received.body) > 100_000:
                scene.record.fault("long answer", f"{message}: {len(received.body)} bytes")


async def _streams(scene: Scene, site: Site, number: int, pause: Pause) -> None:
    """Open event streams and leave them without reading, some of them at once."""
    token = site.tokens[Actor.RUN].encode()
    credentials = b"Host: a\r\nAuthorization: Bearer " + token
    request = b"GET /v1/events HTTP/1.1\r\n" + credentials + b"\r\n\r\n"

    async def one(*, stays: bool) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with _connection(site) as (reader, writer):
                writer.write(request)
                first = await asyncio.wait_for(reader.read(2000), _CONNECT_S)
                if first and not first.startswith(b"HTTP/1.1 200"):
                    scene.record.fault("event stream refused", first[:300].decode())
                if scene.mark.encode() in first:
                    scene.record.fault("other user's task shown", first[:300].decode())
                if stays:
                    await pause(_HOLD_S)

    scene.record.count(FAMILY, Actor.RUN, number)
    async with asyncio.TaskGroup() as group:
        for count in range(number):
            group.create_task(one(stays=bool(count % 2)))


async def _polls(scene: Scene, site: Site, number: int) -> None:
    """Wait for runs and tasks by long polls that others give up."""
    targets = ("/v1/runs?wait=5", f"/v1/tasks/{site.things['task']}?wait=5", "/v1/runs?wait=300")
    messages = [
        Message(FAMILY, "a long poll", "GET", targets[count % 3], Actor.OPERATE)
        for count in range(number)
    ]

    async def one(message: Message) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(6):
                await scene.send(message)

    async with asyncio.TaskGroup() as group:
        for message in messages:
            group.create_task(one(message))


async def _wrong_tokens(scene: Scene, site: Site, number: int) -> None:
    """Try tokens that nobody has."""
    began = time.monotonic_ns()
    places = asyncio.Semaphore(20)

    async def one(count: int) -> None:
        async with places:
            guess = {"Authorization": f"Bearer parley_{began + count:043d}"}
            message = Message(FAMILY, "a guessed token", "GET", "/v1/tasks", headers=guess)
            await scene.send(fitting(message, allowed={401}))

    async with asyncio.TaskGroup() as group:
        for count in range(number):
            group.create_task(one(count))
