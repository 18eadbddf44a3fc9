"""Requests that are malformed below HTTP's documents: framing, request lines, and headers."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.hostile.messages import Actor
from tests.hostile.record import Received
from tests.hostile.scene import Scene, Site

FAMILY = "framing"
_WAIT_S = 20.0
_SILENCE_S = 0.3
_READ_MAX = 2_000_000
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (?=[1-5][0-9]{2} [A-Z])")
_TASK = b'{"test": {"type": "idle"}, "schedule": {"start": "2098-01-01T00:00:00Z"}}'
_SMUGGLED = b"GET /v1/tokens HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n\r\n"


@dataclass(frozen=True)
class Raw:
    """Bytes of a request; ``answers`` is the most answers that they may get."""

    hostile: str
    data: bytes
    answers: int = 1
    allowed: frozenset[int] | None = None


def _post(*headers: bytes, body: bytes = _TASK, line: bytes = b"POST /v1/tasks HTTP/1.1") -> bytes:
    head = [line, b"Host: a", b"Authorization: Bearer TOKEN", b"Content-Type: application/json"]
    return b"\r\n".join([*head, *headers, b"", body])


def _get(*headers: bytes, line: bytes = b"GET /v1/tasks HTTP/1.1") -> bytes:
    return b"\r\n".join([line, *headers, b"", b""])


def smuggling() -> Iterator[Raw]:
    """Yield requests that two servers could take for different ones."""
    chunked = b"5\r\nhello\r\n0\r\n\r\n"
    length = b"Content-Length: %d" % len(_TASK)
    encodings = (
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: identity, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding:\tchunked",
        b"Transfer-Encoding:\x0bchunked",
        b"Transfer_Encoding: chunked",
        b" Transfer-Encoding: chunked",
        b"X: y\nTransfer-Encoding: chunked",
        b"Transfer-Encoding:\r\n chunked",
        b"transfer-encoding: CHUNKED",
    )
    for encoding in encodings:
        yield Raw("length and encoding", _post(b"Content-Length: 4", encoding, body=chunked), 1)
        yield Raw(
            "a request behind an encoding",
            _post(encoding, length, body=b"0\r\n\r\n" + _SMUGGLED),
            1,
            frozenset({400, 401, 411, 413, 415, 422, 501}),
        )
    lengths = (b"+4", b"-4", b"0x4", b"4, 4", b"4, 5", b"4 4", b"04", b"4_0", b"", b"4\x00", b"1e1")
    for each in (*lengths, "\uff14".encode(), b"9" * 40):
        sound = each == b"04"  # then what follows is another request
        request = _post(b"Content-Length: " + each, body=b"{}ab" + _SMUGGLED)
        yield Raw(f"length {each!r}", request, 2 if sound else 1)
    yield Raw("two lengths", _post(b"Content-Length: 2", b"Content-Length: 3", body=b"{}"))
    sizes = (b"zz", b"-1", b"+1", b"0x5", b"5;" + b"a" * 9000, b"5\n", b"", b"FFFFFFFFFFFFFFFFF")
    for size in (*sizes, b"5 ", b" 5", b"5;a=\r", b"1_0"):
        body = size + b"\r\nhello\r\n0\r\n\r\n"
        yield Raw(f"chunk {size[:9]!r}", _post(b"Transfer-Encoding: chunked", body=body))
    for ends in (
        b"0\r\nHost: b\r\n\r\n",
        b"0\n\n",
        b"0\r\nX:" + b"y" * 20_000 + b"\r\n\r\n",
        b"0\r\r\n",
    ):
        yield Raw("trailers", _post(b"Transfer-Encoding: chunked", body=ends))
    yield Raw("upgrade", _get(b"Host: a", b"Connection: Upgrade", b"Upgrade: h2c"))
    yield Raw("preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    yield Raw("expects", _post(b"Expect: 100-continue", length), 2)
    yield Raw("expects oddly", _post(b"Expect: x", length))


def lines() -> Iterator[Raw]:
    """Yield odd request lines and heads."""
    refused = frozenset({400, 401, 403, 404, 405, 414, 431, 501, 505})
    for line in (
        b"GET http://localhost/v1/tasks HTTP/1.1",
        b"GET http://evil.example/v1/tasks HTTP/1.1",
        b"GET //v1/tasks HTTP/1.1",
        b"GET /v1/../v1/tokens HTTP/1.1",
        b"GET /v1/%2e%2e/v1/tokens HTTP/1.1",
        b"GET /v1/tasks%00 HTTP/1.1",
        b"GET /v1/tasks\x00 HTTP/1.1",
        b"GET /v1/tasks\xff HTTP/1.1",
        b"GET /v1/%zz HTTP/1.1",
        b"GET \\v1\\tasks HTTP/1.1",
        b"GET /V1/TASKS HTTP/1.1",
        b"GET /v1/tasks/ HTTP/1.1",
        b"GET /v1/tasks;x HTTP/1.1",
        b"GET * HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT 127.0.0.1:22 HTTP/1.1",
        b"TRACE / HTTP/1.1",
        b"BREW / HTTP/1.1",
        b"get /v1/tasks HTTP/1.1",
        b"G\x00T / HTTP/1.1",
        b"GET  /v1/tasks  HTTP/1.1",
        b"GET\t/v1/tasks\tHTTP/1.1",
        b"GET /v1/tasks",
        b"GET /v1/tasks HTTP/0.9",
        b"GET /v1/tasks HTTP/1.0",
        b"GET /v1/tasks HTTP/1.1 x",
        b"GET /v1/tasks HTTP/9.9",
        b"GET /v1/tasks HTTP/1.10",
        b"GET /v1/tasks http/1.1",
        b"GET /v1/tasks?token=TOKEN" + b"a" * 9000 + b" HTTP/1.1",
        b"GET /v1/runs?" + b"a=1&" * 2000 + b" HTTP/1.1",
        b"X" * 9000 + b" / HTTP/1.1",
    ):
        yield Raw(f"line {line[:40]!r}", _get(b"Host: a", line=line), 1, refused)
    for name in (
        b"Host: a, b",
        b"Host: a\r\nHost: b",
        b"Host: [::1].x",
        b"Host: a\x00",
        b"Host:",
        b"Host: @",
        b"Host: [",
        b"Host: a:99999999",
        b"Host: \xff",
        b"Host: localhost@evil",
        b"X:y",
        b"Host: " + b"a" * 7000,
    ):
        yield Raw(f"{name[:30]!r}", _get(name), 1, refused)
    for header in _headers():
        yield Raw(f"header {header[:40]!r}", _get(b"Host: a", header), 1)
    yield Raw("many headers", _get(b"Host: a", *(b"X-%d: y" % n for n in range(5000))), 1, refused)
    yield Raw("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, 1, refused)
    yield Raw("SSH", b"SSH-2.0-OpenSSH_9\r\n\r\n", 1, refused)
    yield Raw("zeros", b"\x00" * 5000 + b"\r\n\r\n", 1, refused)
    yield Raw("endless line", b"GET /" + b"a" * 100_000, 1, refused)


def _headers() -> Iterator[bytes]:
    """Yield header lines by which somebody could pass for somebody else, or be read wrongly."""
    yield from (
        b"Authorization: Bearer \xff\xfe",
        b"Authorization: Bearer TOKEN, Bearer x",
        b"Authorization: Basic TOKEN",
        b"Authorization: Bearer " + b"x" * 7000,
        b"Authorization: Bearer TOKEN" + b"x" * 9000,
        b"X-TOKEN" + b"x" * 9000 + b": y",
        b"Authorization Bearer TOKEN",
        b"Authorization: Bearer TOKEN\x00",
        b"Authorization: bearer\tTOKENx",
        b"Authorization:",
        b"X-Forwarded-For: 127.0.0.1",
        b"X-Forwarded-Host: localhost",
        b"X-Original-URL: /v1/tokens",
        b"X-Rewrite-URL: /v1/tokens",
        b"X-HTTP-Method-Override: DELETE",
        b"Forwarded: for=127.0.0.1",
        b"Via: 1.1 localhost",
        b"Sec-Fetch-Site: cross-site",
        b"Origin: http://evil.example",
        b"Cookie: token=TOKEN",
        b"Range: bytes=0-1,1-2,2-3",
        b"Accept: " + b"a/b," * 1500,
        b"Accept-Encoding: gzip;q=nan",
        b"If-Match: *",
        b'If-None-Match: "x"',
        b"If-Modified-Since: never",
        b"Last-Event-ID: 99999999999999999999",
        b"Parley-Nonce: \x7f",
        b"Parley-Nonce: " + b"A" * 5000,
        b"Idempotency-Key: \xff",
        b"Content-Type: \xff/\xff",
        b"Content-Type: application/json; charset=utf-7",
        b"Content-Length: 0",
        b"Connection: close, keep-alive, \xff",
        b"\xff: x",
        b": x",
        b"a b: x",
        b"X: a\rb",
        b"X: a\nb: c",
        b" folded",
    )


def encoded() -> Iterator[Raw]:
    """Yield compressed bodies, bombs among them."""
    bomb = zlib.compress(b"\0" * 20_000_000, 9)
    for name, body in (
        (b"gzip", gzip.compress(b"\0" * 20_000_000)),
        (b"deflate", bomb),
        (b"br", bomb),
        (b"zstd", bomb),
        (b"compress", bomb),
        (b"gzip, gzip", gzip.compress(gzip.compress(_TASK))),
        (b"identity, gzip", gzip.compress(_TASK)),
        (b"GZIP", gzip.compress(_TASK)),
        (b"x" * 500, _TASK),
        (b"\xff", _TASK),
    ):
        headers = (b"Content-Encoding: " + name, b"Content-Length: %d" % len(body))
        allowed = frozenset({400, 401, 413, 415})
        yield Raw(f"body as {name[:20]!r}", _post(*headers, body=body), 1, allowed)


async def run(scene: Scene, rng: random.Random, number: int, clients: int) -> None:
    """Send a number of malformed requests, as a stranger and as a user."""
    every = [*smuggling(), *lines(), *encoded()]
    places = asyncio.Semaphore(clients)

    async def one(raw: Raw) -> None:
        async with places:
            actor = rng.choice((Actor.STRANGER, Actor.RUN, Actor.OWN))
            await send(scene, raw, scene.sites[rng.choice((0, 0, 1, 2))], actor)

    chosen = [*every, *(rng.choice(every) for _ in range(number - len(every)))][:number]
    rng.shuffle(chosen)
    async with asyncio.TaskGroup() as group:
        for raw in chosen:
            group.create_task(one(raw))


async def send(scene: Scene, raw: Raw, site: Site, actor: Actor) -> None:
    """Send bytes, read what comes until the node closes or stays silent, and judge it."""
    record = scene.record
    record.count(FAMILY, actor)
    host, _, port = site.node.url.removeprefix("http://").rpartition(":")
    token = site.tokens.get(actor, "none").encode()
    began, answer = time.monotonic(), b""
    try:
        async with asyncio.timeout(_WAIT_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(raw.data.replace(b"TOKEN", token))
                answer = await _read(reader)
                if not answer:
                    writer.write_eof()
                    answer = await reader.read(_READ_MAX)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        if not answer:
            record.lost[f"{FAMILY}: {type(error).__name__}"] += 1
    _judge(scene, raw, answer, f"{actor}: {raw.hostile}", time.monotonic() - began)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Return what a node answers until it says no more for a moment."""
    answer = b""
    with contextlib.suppress(TimeoutError):
        while len(answer) < _READ_MAX:
            async with asyncio.timeout(_SILENCE_S):
                chunk = await reader.read(65_536)
            if not chunk:
                break
            answer += chunk
    return answer


def _judge(scene: Scene, raw: Raw, answer: bytes, request: str, seconds: float) -> None:
    """Note what is wrong about the bytes that came back."""
    scene.record.look_for_secrets(request, [answer])
    heads = _STATUS_LINE.split(answer)[1:]
    if len(heads) > raw.answers:
        scene.record.fault("two answers", f"{request}: {answer[:2000]!r}")
    if not heads:
        return
    status = int(heads[-1][:3])
    head, _, body = heads[-1].partition(b"\r\n\r\n")
    headers = {
        name.strip().decode(errors="replace").title(): value.strip().decode(errors="replace")
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if headers.get("Transfer-Encoding") == "chunked":
        body = b""
    if status in {400, 431} or not body:  # the parser of HTTP answers in plain text
        headers["Content-Type"], body = "application/problem+json", _stand_in(status)
    scene.record.judge_answer(request, Received(status, headers, body, seconds), raw.allowed)


def _stand_in(status: int) -> bytes:
    return b'{"type": "", "title": "", "detail": "", "status": %d}' % status
