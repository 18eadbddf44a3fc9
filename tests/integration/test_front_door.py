"""Requests of strangers cost a node little, and are answered in words."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import re
import secrets
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import orjson
import pytest
from structlog.testing import capture_logs

from node.access.request_rates import STRANGERS_MOST
from node.api import app, bodies, operations
from node.journal import events
from node.model import times
from node.model.readiness import Readiness
from node.model.wire.validation import FAULTS_MAX
from node.operation.readiness import readiness_of
from node.service import NodeService
from node.store.database import Notice
from node.trust.keys import NodeKey
from node.trust.signatures import new_nonce, sign
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, asker

TOKEN = b"Authorization: Bearer secret"

PROMPT_S = 1.0
"""Maximum seconds of processor that a hostile request may cost the event loop."""


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to attack, with a client that has a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


@pytest.fixture
async def open_a(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Asker]:
    """Return a node whose owner lets programs on its host read without a token."""
    async with asker("a", await new_database(), clock, tmp_path, read_local=True) as client:
        yield client


async def raw(a: Asker, request: bytes) -> tuple[int, bytes]:
    """Send these bytes, and return the status and the whole answer until the node hangs up."""
    settings = a.node.settings
    reader, writer = await asyncio.open_connection(settings.listen_host, settings.listen_port)
    writer.write(request)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    answer = bytearray()
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                answer += chunk
    writer.close()
    assert answer, "the node hung up without an answer"
    return int(answer.split(b" ", 2)[1]), bytes(answer)


def get(path: bytes, *headers: bytes, host: bytes = b"localhost") -> bytes:
    """Return a request that asks for one answer only."""
    lines = [b"GET " + path + b" HTTP/1.1", b"Host: " + host, b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def whole(reader: asyncio.StreamReader) -> bytes:
    """Return an answer with its body."""
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = re.findall(rb"Content-Length: (\d+)", head)
        return head + await reader.readexactly(int(length))


def detail_of(answer: bytes) -> str:
    """Return the detail of a problem document in a whole answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    return str(orjson.loads(body)["detail"])


def bomb(encoding: str) -> bytes:
    """Return a megabyte that unfolds to a gigabyte: the same block, which ends at a byte."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    begin = compressor.compress(b"") + compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(bytes(1 << 20)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return begin + block * (990_000 // len(block))


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return a request with a body and a token that asks for one answer only."""
    lines = [f"POST {path} HTTP/1.1", "Host: a", "Connection: close", *headers]
    lines += ["Authorization: Bearer secret", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def test_a_bomb_is_not_unfolded(a: Asker) -> None:
    """A compressed body is refused at its head, without a look at what it unfolds to."""
    for encoding in ("gzip", "deflate"):
        body = bomb(encoding)
        for path in ("/healthz", "/v1/participant/holds", "/v1/tasks", "/nowhere"):
            began = time.process_time()
            status, answer = await raw(a, post(path, body, f"Content-Encoding: {encoding}"))
            assert time.process_time() - began < PROMPT_S
            assert status in {400, 401, 404, 405}, answer
            assert b"X-Content-Type-Options: nosniff" in answer


async def test_a_compressed_body_is_refused_in_words(a: Asker) -> None:
    """Every content encoding is refused with a problem document that says what to do."""
    for encoding in ("gzip", "br", "zstd", "zip", "gzip, gzip"):
        body = gzip.compress(b"{}")
        status, answer = await raw(a, post("/v1/tasks", body, f"Content-Encoding: {encoding}"))
        assert status == 400
        assert "send it uncompressed" in detail_of(answer)


FORWARDED = [b"X-Forwarded-For: 192.0.2.1", b"Forwarded: for=192.0.2.1", b"Via: 1.1 proxy"]


async def test_no_reading_through_a_proxy(open_a: Asker) -> None:
    """A request that a proxy passed on needs a token, also where this host may read without one."""
    assert (await raw(open_a, get(b"/v1/tasks")))[0] == 200
    for header in FORWARDED:
        assert (await raw(open_a, get(b"/v1/tasks", header)))[0] == 401
        assert (await raw(open_a, get(b"/v1/tasks", header, TOKEN)))[0] == 200


async def test_this_host_gives_nothing_by_itself(a: Asker) -> None:
    """A program on the node's host needs a token to read, unless its owner says otherwise."""
    assert (await raw(a, get(b"/v1/tasks")))[0] == 401
    assert (await raw(a, get(b"/healthz")))[0] == 200
    assert (await raw(a, get(b"/v1/tasks", TOKEN)))[0] == 200


async def test_an_odd_host_is_not_local(open_a: Asker) -> None:
    """A Host that is none is answered like any other name."""
    for host in (b"[::1].x", b"[::1", b"", b"\xff", b"localhost@x", b"[", b"a b"):
        status, answer = await raw(open_a, get(b"/v1/tasks", host=host))
        assert status == 401, (host, answer)


async def test_a_whole_url_is_not_local(open_a: Asker) -> None:
    """A target with a host of its own does not lend the request that host."""
    status, _ = await raw(open_a, get(b"http://localhost/v1/tasks", host=b"evil.example"))
    assert status == 401


async def test_a_page_of_another_site_reads_nothing(open_a: Asker) -> None:
    """Requests of another site's page are refused; those of the node's own page are served."""
    for site, status in ((b"cross-site", 403), (b"same-site", 403), (b"same-origin", 200)):
        for path in (b"/v1/tasks", b"/v1/nodes/self", b"/healthz"):
            assert (await raw(open_a, get(path, b"Sec-Fetch-Site: " + site)))[0] == status
    assert (await raw(open_a, get(b"/v1/events", b"Sec-Fetch-Site: cross-site")))[0] == 403


ODD = [b"%00", b"a%00b", b"%ff", b"\xff", b"%ed%a0%80", b"%2e%2e%2f", b"%0d%0a"]
NAMED = [b"nodes", b"tests", b"tasks", b"runs", b"pools", b"campaigns", b"meshes", b"archives"]
NAMED += [b"reservations", b"archivers"]


async def test_an_odd_name_is_not_found(a: Asker) -> None:
    """A name with a NUL or bytes that are no text is refused without an internal error."""
    for name, kind, method in itertools.product(ODD, NAMED, (b"GET", b"DELETE", b"PATCH")):
        request = get(b"/v1/" + kind + b"/" + name, b"Authorization: Bearer secret")
        status, answer = await raw(a, method + request.removeprefix(b"GET"))
        assert status in {400, 404, 405}, (method, kind, name, answer)


async def test_odd_headers_are_refused(a: Asker) -> None:
    """Headers with bytes that are no text are refused in words."""
    document = orjson.dumps({"test": {"type": "idle", "spec": {}}})
    for value in ("\xff", "a\xffb", "\xc3\xa4", "x" * 300):
        status, answer = await raw(a, post("/v1/tasks", document, f"Idempotency-Key: {value}"))
        assert status == 422, answer
        refused = post("/v1/tasks", document).replace(b"secret", value.encode("latin-1"))
        status, answer = await raw(a, refused)
        assert status == 401, answer


LONG = {
    "unknown fields": {f"f{number:05}": 1 for number in range(75_000)},
    "few unknown fields": {f"f{number}": 1 for number in range(5_000)},
    "items": {"test": {"type": "idle", "spec": {}}, "tools": [1] * 300_000},
    "more items": {"reference": [1] * 450_000},
    "participants": {"participants": [{"x": number} for number in range(40_000)]},
    "long words": {("x" * 40_000) + str(number): 1 for number in range(20)},
}


async def test_a_document_with_many_faults(a: Asker) -> None:
    """At most twenty of many faults are named, in an instant."""
    for kind, document in LONG.items():
        request = post("/v1/tasks", orjson.dumps(document))
        began = time.process_time()
        status, answer = await raw(a, request)
        assert time.process_time() - began < PROMPT_S, kind
        assert status == 422, answer[:1000]
        faults = orjson.loads(answer.partition(b"\r\n\r\n")[2])["errors"]
        assert 1 <= len(faults) <= FAULTS_MAX, kind
        assert len(answer) < max(8_000, len(request) + 8_000), kind


async def test_a_document_of_empty_lists(a: Asker) -> None:
    """Very many lists are refused before they are parsed, brackets in texts are none of them."""
    lists, texts = b"[" + b"[]," * 300_000 + b"[]]", b'{"a": "' + b"[{" * 100_000 + b'"}'
    for body, said in ((lists, "has more than 40000 values"), (texts, "/test: is required")):
        began = time.process_time()
        status, answer = await raw(a, post("/v1/tasks", body))
        assert time.process_time() - began < PROMPT_S / 4
        assert status == 422
        assert said in detail_of(answer)


async def test_the_first_faults_are_named(a: Asker) -> None:
    """The answer says where the first faults are, and that there are more."""
    _, answer = await a.ask("POST", "/v1/tasks", LONG["few unknown fields"])
    assert answer["errors"][0]["pointer"] == "/f0"
    assert "no such field" in answer["errors"][0]["detail"]
    assert answer["errors"][-1]["detail"] == "has more unknown fields"
    _, answer = await a.ask("POST", "/v1/tasks", {"participants": [{"x": 1}] * 2_000})
    assert answer["errors"][0]["pointer"] == "/test"
    assert answer["errors"][-1]["detail"].endswith(" more faults")


@contextlib.asynccontextmanager
async def connected(
    a: Asker, sent: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection and send these bytes."""
    settings = a.node.settings
    reader, writer = await asyncio.open_connection(settings.listen_host, settings.listen_port)
    writer.write(sent)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return what the node sends until it hangs up."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
    return b""


async def test_the_silent_are_hung_up_on(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection without a whole head, or idle after an answer, is closed after a while."""
    monkeypatch.setattr(app, "HEAD_S", 0.2)
    idle = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    async with asker("a", await new_database(), clock, tmp_path) as a:
        for sent in (b"", b"GET", b"GET / HTTP/1.1\r\nHost: ", idle, idle + b"GET /"):
            async with connected(a, sent) as (reader, _):
                answer = await ended(reader)
                assert answer.startswith(b"HTTP/1.1 200") == sent.startswith(idle), answer


async def test_a_slow_body_is_given_up(a: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not arrive in time is answered so."""
    monkeypatch.setattr(bodies, "BODY_S", 0.2)
    async with connected(a, post("/v1/tasks", b" " * 1000)[:-1]) as (reader, _):
        answer = await whole(reader)
    assert answer.startswith(b"HTTP/1.1 408"), answer
    assert "has not arrived within 0.2 s" in detail_of(answer)


async def test_whoever_hangs_up_within_a_body_leaves_no_fault(
    a: Asker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that hangs up before its body has arrived is a refusal, no fault of the node."""
    answered = asyncio.Event()
    statuses: list[int] = []

    def note(_method: str, _route: str, status: int, _took: int) -> None:
        statuses.append(status)
        answered.set()

    monkeypatch.setattr(a.node.core.instruments, "request", note)
    begun = post("/v1/tasks", b"{}", "Expect: 100-continue")[:-1]
    async with connected(a, begun) as (reader, writer), asyncio.timeout(PATIENCE_S):
        await reader.readuntil(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.transport.abort()
        await answered.wait()
    assert (await raw(a, get(b"/healthz")))[0] == 200
    assert statuses[0] == 400
    assert not [each for each in caplog.records if each.exc_info], caplog.text


async def test_the_silent_make_room(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """The connection that was idle for longest is closed for a new one beyond the limit."""
    dsn = await new_database()
    async with (
        asker("a", dsn, clock, tmp_path, connections_max=10) as a,
        contextlib.AsyncExitStack() as stack,
    ):
        silent = [await stack.enter_async_context(connected(a)) for _ in range(30)]
        assert (await raw(a, get(b"/healthz")))[0] == 200
        for reader, _ in silent[:20]:
            assert await ended(reader) == b""


async def test_no_request_is_cut_off_for_another(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A new connection is refused in words if all others have requests under way."""
    dsn = await new_database()
    async with (
        asker("a", dsn, clock, tmp_path, connections_max=10) as a,
        contextlib.AsyncExitStack() as stack,
    ):
        under_way = []
        for _ in range(10):
            begun = connected(a, post("/v1/tasks", b"{}", "Expect: 100-continue")[:-1])
            under_way.append(await stack.enter_async_context(begun))
            async with asyncio.timeout(PATIENCE_S):
                await under_way[-1][0].readuntil(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with connected(a) as (reader, _):
            answer = await ended(reader)
        assert answer.startswith(b"HTTP/1.1 503"), answer
        assert "as many connections as it accepts" in detail_of(answer)
        under_way[0][1].close()
        async with asyncio.timeout(PATIENCE_S):
            while (await raw(a, get(b"/healthz")))[0] != 200:
                pass
        under_way[1][1].write(b"}")
        assert b" 422 " in await under_way[1][0].readline()


async def test_event_streams_make_room(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Streams that take all connections keep nobody out: the oldest one ends, and can resume."""
    dsn = await new_database()
    async with (
        asker("a", dsn, clock, tmp_path, connections_max=10) as a,
        contextlib.AsyncExitStack() as stack,
    ):
        streams = []
        for _ in range(10):
            opened = connected(a, get(b"/v1/events", TOKEN))
            streams.append(await stack.enter_async_context(opened))
            assert b"200 OK" in await streams[-1][0].readline()
        async with connected(a, get(b"/healthz")) as (reader, _):
            assert (await ended(reader)).startswith(b"HTTP/1.1 200")
        assert b"retry: 2000" in await ended(streams[0][0])


async def test_a_burst_of_events_delays_nobody(a: Asker) -> None:
    """Many readers and many events cost little: events are kept once, and written together."""
    async with contextlib.AsyncExitStack() as stack:
        readers = [
            (await stack.enter_async_context(connected(a, get(b"/v1/events", TOKEN))))[0]
            for _ in range(50)
        ]
        for reader in readers:
            await reader.readuntil(b"retry: 2000")
        began = time.process_time()
        for number in range(events.HISTORY):
            a.node.hub.on_notice(Notice("task", str(UUID(int=number)), ("active",)))
        last = f'"id":"{UUID(int=events.HISTORY - 1)}"'.encode()
        async with asyncio.timeout(PATIENCE_S):
            for reader in readers:
                seen = b""
                while last not in seen:
                    seen = seen[-len(last) :] + await reader.read(65_536)
        assert time.process_time() - began < 2 * PROMPT_S
        for number in range(events.HISTORY + 1):
            a.node.hub.on_notice(Notice("task", str(UUID(int=number)), ("active",)))
        for reader in readers:
            assert f'"id":"{UUID(int=5)}"'.encode() not in await ended(reader), (
                "this one was lost, so the stream ends"
            )


async def test_many_notices_of_one_kind_are_read_together(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known nodes are read once more for many notifications, and never twice at once."""
    reads = []
    going_on = asyncio.Event()

    async def refresh() -> None:
        reads.append(1)
        await going_on.wait()

    monkeypatch.setattr(a.node.directory, "refresh", refresh)
    for _ in range(1000):
        a.node._on_notice(Notice("node", "x", ("changed",)))
    reading = set(a.node.rereader.tasks)
    await asyncio.wait(reading, timeout=0)
    assert len(reads) == 1
    a.node._on_notice(Notice("node", "x", ("changed",)))
    going_on.set()
    await asyncio.gather(*reading)
    assert len(reads) == 2


async def test_bodies_are_held_in_bounds(a: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is refused for the moment if the bodies of others leave no room."""
    monkeypatch.setattr(bodies, "HELD_MAX", 100_000)
    body = b"{" + b" " * 60_000 + b"}"
    async with connected(a, post("/v1/tasks", body)[:-1]) as (reader, writer):
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await raw(a, post("/v1/tasks", body)))[0] != 503:
                pass
        assert "reading too many other requests" in detail_of(answer[1])
        assert b"Retry-After: 1" in answer[1]
        writer.write(body[-1:])
        assert (await ended(reader)).startswith(b"HTTP/1.1 422")
    assert (await raw(a, post("/v1/tasks", body)))[0] == 422


def signed(a: Asker, key: NodeKey, known_as: str, length: int) -> bytes:
    """Return the head of a participant request, signed with this key in the name of another."""
    path, created = "/v1/participant/holds", a.node.clock.now() // times.SECOND
    nonce, to = new_nonce(secrets.token_bytes), a.node.card.identity
    headers = sign(
        key, "POST", f"http://a{path}", bytes(length), created=created, nonce=nonce, to=to
    )
    lines = [f"{name}: {value.replace(key.identity, known_as)}" for name, value in headers.items()]
    head = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {length}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


async def test_the_head_decides_before_the_body_is_read(a: Asker, clock: ManualClock) -> None:
    """A caller that is not known, or did not sign, is refused before the body has come."""
    clock.advance(times.HOUR)
    stranger, own, length = NodeKey.generate(), a.node.key, 8_000_000
    for head, why in (
        (signed(a, stranger, stranger.identity, length), "does not know"),
        (signed(a, stranger, own.identity, length), "wrong signature"),
        (signed(a, own, own.identity, length).replace(b"Signature:", b"S:"), "is not signed"),
        (post("/v1/tasks", bytes(9000)).replace(b"secret", b"guess")[:-9000], "is not valid"),
    ):
        async with connected(a, head) as (reader, _):
            answer = await whole(reader)
        assert answer.startswith(b"HTTP/1.1 401"), answer
        assert why in detail_of(answer)
    async with connected(a, signed(a, own, own.identity, length) + bytes(length)) as (reader, _):
        assert b"400" in await reader.readline()  # read, and found to be no JSON


async def test_many_who_ask_whether_a_node_is_ready_cost_little(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers who ask at once whether a node is ready share one look at its database."""
    looks = 0

    async def counted(node: NodeService) -> Readiness:
        nonlocal looks
        looks += 1
        return await readiness_of(node)

    monkeypatch.setattr(operations, "readiness_of", counted)
    checks = operations.readiness_checks(a.node)
    found = await asyncio.gather(*(checks.ask(None) for _ in range(50)))
    assert not any(each.faults for each in found)
    assert looks <= 2
    assert (await raw(a, get(b"/readyz")))[0] == 200


async def test_only_those_who_may_are_asked_for_a_body(a: Asker) -> None:
    """A body that waits to be asked for is asked for when the head is found to be in order."""
    request = post("/v1/tasks", b"{}", "Expect: 100-continue")
    for sent, first in ((request.replace(b"secret", b"guess"), b"401"), (request, b"100")):
        async with connected(a, sent[:-2]) as (reader, writer):
            assert first in await reader.readline()
            if first == b"100":
                await reader.readuntil(b"\r\n")
                writer.write(b"{}")
                assert b"422" in await whole(reader)
    status, answer = await raw(a, post("/v1/tasks", b"{}", "Expect: x"))
    assert status == 400
    assert "Expect: x is not supported" in detail_of(answer)


async def test_descriptions_of_tests_are_made_once(a: Asker) -> None:
    """Asking for all tests again and again costs the event loop little."""
    assert (await raw(a, get(b"/v1/tests", TOKEN)))[0] == 200
    began = time.process_time()
    for _ in range(10):
        assert (await raw(a, get(b"/v1/tests", TOKEN)))[0] == 200
    assert time.process_time() - began < PROMPT_S


SECRET = b"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmVk"
UNREAD = [
    (get(b"/v1/tasks", b"Authorization: Bearer " + SECRET + b"x" * 9000), 431),
    (get(b"/v1/tasks", b"X-" + SECRET + b"x" * 9000 + b": y"), 431),
    (get(b"/v1/tasks?token=" + SECRET + b"x" * 9000), 431),
    (get(b"/v1/tasks", b"Authorization Bearer " + SECRET), 400),
    (get(b"/v1/tasks", b"Authorization: Bearer " + SECRET + b"\x00"), 400),
    (get(b"/v1/tasks", b"Content-Length: " + SECRET), 400),
    (b"Authorization: Bearer " + SECRET + b"\r\n\r\n", 400),
    (b"GET /v1/tasks?token=" + SECRET + b" HTTP/9\r\n\r\n", 400),
    (post("/v1/tasks", b"")[:-4].replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
     + b"\r\n\r\n" + SECRET + b"\r\n\r\n", 400),
]  # fmt: skip
"""Requests that cannot be read, each with something that is nobody's business."""


@pytest.mark.parametrize(("request_", "expected"), UNREAD)
@pytest.mark.mostly_nightly
async def test_what_cannot_be_read_is_not_repeated(
    a: Asker, request_: bytes, expected: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """The answer to a head that is too long, or none, has nothing of it; neither has the log."""
    with capture_logs() as logs:
        status, answer = await raw(a, request_)
    assert status == expected, answer
    written = answer.decode(errors="replace") + repr(logs) + "".join(capfd.readouterr())
    assert SECRET.decode()[:20] not in written


@pytest.mark.parametrize("url", ["http://[::1", "https://[::1", "http://[", "https://a:99999"])
async def test_a_url_that_is_none_is_a_fault_of_its_field(a: Asker, url: str) -> None:
    """A text that is no URL is answered 422 with its pointer, and never 500."""
    status, problem = await a.ask("POST", "/v1/nodes", {"url": url})
    assert (status, problem["errors"][0]["pointer"]) == (422, "/url"), problem


async def test_the_description_is_written_once(a: Asker) -> None:
    """The description of the API is told from memory, compressed if that is taken, or not again."""
    a.node.openapi = {"openapi": "3.1.0", "paths": {f"/{n}": {} for n in range(20_000)}}
    asked = get(b"/v1/openapi.json", b"Accept-Encoding: gzip")
    _, first = await raw(a, asked)
    head, _, body = first.partition(b"\r\n\r\n")
    assert orjson.loads(gzip.decompress(body)) == a.node.openapi
    [tag] = re.findall(rb'ETag: ("[0-9a-f]+-gzip")', head, re.IGNORECASE)
    assert head.lower().count(b"content-encoding: gzip") == 1
    plain = (await raw(a, get(b"/v1/openapi.json")))[1].partition(b"\r\n\r\n")[2]
    assert orjson.loads(plain) == a.node.openapi
    status, again = await raw(a, get(b"/v1/openapi.json", b"If-None-Match: " + tag))
    assert (status, again.partition(b"\r\n\r\n")[2]) == (304, b"")
    began = time.process_time()
    for _ in range(20):
        assert (await raw(a, asked))[1].partition(b"\r\n\r\n")[2] == body
    assert time.process_time() - began < PROMPT_S


async def test_a_stranger_has_a_rate(a: Asker) -> None:
    """An address without a token may ask so often in a minute, and those of this host always."""
    rates = a.node.request_rates
    for address in ("192.0.2.7", "2001:db8::1"):
        for left in range(STRANGERS_MOST - 1, -1, -1):
            allowance = rates.spend_of_stranger(address)
            assert allowance is not None
            assert (allowance.left, allowance.wait_s) == (left, 0)
    over = rates.spend_of_stranger("2001:db8::ffff")  # of the same network
    assert over is not None
    assert over.wait_s > 0
    assert rates.spend_of_stranger("192.0.2.8") is not None
    assert rates.spend_of_stranger("127.0.0.1") is None
