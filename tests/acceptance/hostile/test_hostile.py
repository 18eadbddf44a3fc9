"""Wrong and malicious documents and requests get a clear answer and have no effect."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from uuid import uuid4

import orjson
import pytest

from tests.acceptance.hostility import FAR, IDLE, NOBODY, complains_of, each, is_problem
from tests.acceptance.outsider import Answer, Json, Outsider
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("nothing_made"),
]

NOT_DOCUMENTS = [
    b"",
    b" ",
    b"{",
    b"[]]",
    b"nul",
    b"{'test': 1}",
    b"\xff\xfe\x00",
    b'\xef\xbb\xbf{"test": {}}',
    b'{"test": "\xed\xa0\x80"}',
    b'{"test": "\\ud800"}',
    b'{"test": NaN}',
    b'{"test": 1e999}',
    b'{"test": 01}',
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    orjson.dumps({"test": IDLE})[:-1],
    orjson.dumps({"test": IDLE}) * 2,
    gzip.compress(orjson.dumps({"test": IDLE})),
]


@each("body", NOT_DOCUMENTS)
async def test_invalid_json(a: Outsider, body: bytes) -> None:
    """A body that is not JSON, or not meaningful JSON, is refused with a sentence."""
    is_problem(await a.ask("POST", "/v1/tasks", body), 400, 422)


DEEP: Json = 1
for _ in range(80):
    DEEP = [DEEP]

WRONG: list[tuple[str, Json]] = [
    ("", []),
    ("", b"null"),
    ("", "idle"),
    ("/test", {}),
    ("/test", {"test": 5}),
    ("/test", {"test": None}),
    ("/test/type", {"test": {"spec": {}}}),
    ("/test/type", {"test": {"type": "nope"}}),
    ("/test/type", {"test": {"type": "../../etc/passwd"}}),
    ("/test/type", {"test": {"type": "idle\n"}}),
    ("/test/type", {"test": {"type": "\u0131dle"}}),
    ("/test/spec", {"test": {"type": "idle", "spec": []}}),
    ("/test/spec/dest", {"test": {"type": "rtt", "spec": {}}}),
    ("/test/spec/count", {"test": {"type": "rtt", "spec": {"dest": "b", "count": 10**30}}}),
    ("/test/spec/count", {"test": {"type": "rtt", "spec": {"dest": "b", "count": 1e308}}}),
    ("/test/spec/count", {"test": {"type": "rtt", "spec": {"dest": "b", "count": -1}}}),
    ("/test/spec/count", {"test": {"type": "rtt", "spec": {"dest": "b", "count": True}}}),
    ("/test/spec/x", {"test": {"type": "rtt", "spec": {"dest": "b", "x": 1}}}),
    ("/test/spec/x~1y~0z", {"test": {"type": "rtt", "spec": {"dest": "b", "x/y~z": 1}}}),
    ("/test/spec/class", {"test": {"type": "idle", "spec": {"class": "superb"}}}),
    ("/test/spec/dest", {"test": {"type": "latency", "spec": {"source": "a", "dest": "zz"}}}),
    ("/test/spec", {"test": {"type": "latency", "spec": {"source": "a", "dest": "a"}}}),
    (
        "/test/spec/duration",
        {"test": {"type": "throughput", "spec": {"dest": "b", "duration": "P10D"}}},
    ),
    (
        "/test/spec/congestion",
        {"test": {"type": "throughput", "spec": {"dest": "b", "congestion": "-x"}}},
    ),
    ("/schedule/repeat", {"test": IDLE, "schedule": {"repeat": "P1M"}}),
    ("/schedule/repeat", {"test": IDLE, "schedule": {"repeat": "P1Y"}}),
    ("/schedule/repeat", {"test": IDLE, "schedule": {"repeat": "PT0S"}}),
    ("/schedule/repeat", {"test": IDLE, "schedule": {"repeat": "PT1S"}}),
    ("/schedule/repeat", {"test": IDLE, "schedule": {"repeat": "-PT5M"}}),
    ("/schedule/repeat", {"test": IDLE, "schedule": {"repeat": "P" + "9" * 400 + "D"}}),
    ("/schedule/repeat", {"test": IDLE, "schedule": {"repeat": 300}}),
    ("/schedule/cron", {"test": IDLE, "schedule": {"repeat": "PT5M", "cron": "* * * * *"}}),
    ("/schedule/cron", {"test": IDLE, "schedule": {"cron": "* * *"}}),
    ("/schedule/cron", {"test": IDLE, "schedule": {"cron": "0 0 30 2 *"}}),
    ("/schedule/cron", {"test": IDLE, "schedule": {"cron": "99 99 * * *"}}),
    ("/schedule/cron", {"test": IDLE, "schedule": {"cron": "*/0 * * * *"}}),
    ("/schedule/cron", {"test": IDLE, "schedule": {"cron": "@reboot"}}),
    ("/schedule/cron", {"test": IDLE, "schedule": {"cron": "* " * 1000}}),
    ("/schedule/timezone", {"test": IDLE, "schedule": {"cron": "0 0 * * *", "timezone": "Mars/X"}}),
    (
        "/schedule/timezone",
        {"test": IDLE, "schedule": {"cron": "0 0 * * *", "timezone": "../../etc/passwd"}},
    ),
    (
        "/schedule/timezone",
        {"test": IDLE, "schedule": {"cron": "0 0 * * *", "timezone": "/etc/localtime"}},
    ),
    ("/schedule/timezone", {"test": IDLE, "schedule": {"timezone": "UTC"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": "soon"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": "2020-01-01T00:00:00Z"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": "2099-01-01T00:00:60"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": "2099-02-30T00:00:00Z"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": "9999-12-31T23:59:59Z"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": "0001-01-01T00:00:00+23:59"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": "२०९९-01-01T00:00:00Z"}}),
    ("/schedule/start", {"test": IDLE, "schedule": {"start": 1e20}}),
    ("/schedule/until", {"test": IDLE, "schedule": {**FAR, "until": "2100-01-01T00:00:00Z"}}),
    (
        "/schedule/until",
        {"test": IDLE, "schedule": {"repeat": "PT1H", "until": "2020-01-01T00:00:00Z"}},
    ),
    ("/schedule/slip", {"test": IDLE, "schedule": {"slip": "-PT1S"}}),
    ("/schedule/max_runs", {"test": IDLE, "schedule": {"max_runs": 0}}),
    ("/schedule/max_runs", {"test": IDLE, "schedule": {"max_runs": "x"}}),
    ("/schedule/max_runs", {"test": IDLE, "schedule": {"max_runs": 10**40}}),
    ("/schedule/slip_random", {"test": IDLE, "schedule": {"slip_random": "maybe"}}),
    ("/schedule/often", {"test": IDLE, "schedule": {"often": True}}),
    ("/priority", {"test": IDLE, "priority": 2**31}),
    ("/priority", {"test": IDLE, "priority": -(2**63)}),
    ("/priority", {"test": IDLE, "priority": "high"}),
    ("/priority", {"test": IDLE, "priority": 1.5}),
    ("/priority", {"test": IDLE, "priority": True}),
    ("/tools", {"test": IDLE, "tools": "sleep"}),
    ("/tools/0", {"test": IDLE, "tools": ["iperf3"]}),
    ("/tools/1", {"test": IDLE, "tools": ["sleep", "-x"]}),
    ("/participants/0", {"test": IDLE, "participants": ["nobody"]}),
    ("/participants", {"test": IDLE, "participants": ["a", "a"]}),
    ("/participants", {"test": IDLE, "participants": ["a"] * 100}),
    ("/participants", {"test": IDLE, "participants": {"pool": "x", "k": 3}}),
    ("/archives/0/spec/url", {"test": IDLE, "archives": [{"archiver": "http"}]}),
    ("/campaign", {"test": IDLE, "campaign": "A B"}),
    ("/unknown", {"test": IDLE, "unknown": 1}),
    ("/__proto__", {"test": IDLE, "__proto__": {"priority": 5}}),
    ("/reference/a", {"test": IDLE, "reference": {"a": "\x00"}}),
    ("/reference", {"test": IDLE, "reference": {"a\x00": 1}}),
    ("/reference", {"test": IDLE, "reference": DEEP}),
]


@each(("pointer", "document"), WRONG)
@pytest.mark.nightly
async def test_a_wrong_field_is_named(a: Outsider, pointer: str, document: Json) -> None:
    """Each wrong field is answered with a pointer to it and a sentence."""
    complains_of(await a.ask("POST", "/v1/tasks", document), pointer)


HOSTS = [
    "-oX",
    "--help",
    "-f",
    "$(reboot)",
    "`id`",
    "a;b",
    "a|b",
    "a b",
    "a\nb",
    "a\x00b",
    "a\r\nHost: b",
    "",
    ".",
    "..",
    "a..b",
    "a" * 64,
    "a." * 200 + "a",
    "\uff41",
    "\u0430",
    "a\u200b",
    "a\u202e",
    "localhost\\",
    "http://a/",
    "a/../b",
    "[::1]",
    "fe80::1%eth0",
    "127.0.0.1:80",
    "\U0001f4a9",
]


@each("host", HOSTS)
async def test_invalid_hosts(a: Outsider, host: str) -> None:
    """A text that is not a host name is refused."""
    for spec in ({"dest": host}, {"source": host, "dest": "b"}):
        for test in ("rtt", "latency", "throughput"):
            answer = await a.ask("POST", "/v1/tasks", {"test": {"type": test, "spec": spec}})
            complains_of(answer, "/test/spec")
    answer = await a.ask("POST", "/v1/tasks", {"test": IDLE, "participants": ["a", host]})
    complains_of(answer, "/participants/1")


async def test_bodies_that_are_too_large(a: Outsider) -> None:
    """A body of more than a megabyte is refused, with or without a length."""
    large = {"test": IDLE, "reference": "x" * 1_100_000}
    is_problem(await a.ask("POST", "/v1/tasks", large), 413)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    headers = {"Authorization": f"Bearer {a.token}"}
    async with a.session.post(a.url + "/v1/tasks", data=chunks(), headers=headers) as response:
        assert response.status == 413
        assert response.content_type == "application/problem+json"


async def raw(node: Outsider, request: bytes) -> tuple[int, bytes]:
    """Send these bytes to a node, and return the status and the whole answer."""
    host, _, port = node.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request.replace(b"TOKEN", node.token.encode()))
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(65_536), PATIENCE_S)
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1]), answer


HEAD = b"POST /v1/tasks HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer TOKEN\r\n"


@each(
    ("request_", "status"),
    [
        (HEAD + b"\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 400),
        (HEAD + b"Content-Encoding: zip\r\nContent-Length: 2\r\n\r\n{}", 400),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n{}", 413),
        (HEAD + b"X: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"BREW /v1/tasks HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ],
)
async def test_invalid_http(a: Outsider, request_: bytes, status: int) -> None:
    """Invalid framing is refused, and neither blocks nor breaks the node."""
    answered, text = await raw(a, request_)
    assert answered == status, text


async def test_duplicate_keys(a: Outsider) -> None:
    """A member that is there twice is refused by name, even if each alone would be accepted."""
    body = b'{"test":{"type":"idle"},"test":{"type":"idle"}}'
    answer = await a.ask("POST", "/v1/tasks", body)
    is_problem(answer, 422)
    assert "has the member 'test' twice" in answer.body["detail"]


QUERIES = [
    "/v1/runs?limit=0",
    "/v1/runs?limit=99999999999999999999",
    "/v1/runs?limit=%C2%B2",
    "/v1/runs?limit=1e3",
    "/v1/runs?limit=00000000199999",
    "/v1/runs?cursor=zz",
    "/v1/runs?cursor=9" + "9" * 40 + "_00000000-0000-0000-0000-000000000000",
    "/v1/runs?cursor=-1_00000000-0000-0000-0000-000000000000",
    "/v1/runs?from=soon",
    "/v1/runs?from=2026-02-30T00:00:00",
    "/v1/runs?state=bogus",
    "/v1/runs?foo=1",
    "/v1/runs?task=x",
    "/v1/runs?prefix=%25",
    "/v1/runs?prefix=%00",
    "/v1/runs?wait=nan",
    "/v1/runs?wait=-1",
    "/v1/runs?wait=inf",
    "/v1/runs?wait=1e9",
    "/v1/runs?order=up",
    "/v1/tasks?test=%27%3B--",
    "/v1/tasks?state=scheduled",
    "/v1/events?x=1",
]


@each("path", QUERIES)
@pytest.mark.mostly_nightly
async def test_a_wrong_parameter_is_named(a: Outsider, path: str) -> None:
    """Parameters that are wrong or unknown are refused by name, never ignored."""
    answer = await a.ask("GET", path)
    is_problem(answer, 422)
    assert answer.pointers == ["?" + path.partition("?")[2].partition("=")[0]]


@each(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nope", 404),
        ("GET", "/v1/tasks/xx", 404),
        ("GET", "/v1/tasks/%00", 404),
        ("GET", "/v1/tasks/..%2f..%2fetc%2fpasswd", 404),
        ("GET", NOBODY, 404),
        ("GET", NOBODY + "/runs", 404),
        ("GET", NOBODY + "/explain", 404),
        ("DELETE", NOBODY, 404),
        ("DELETE", NOBODY.replace("tasks", "runs"), 404),
        ("GET", NOBODY.replace("tasks", "runs") + "/explain", 404),
        ("GET", "/v1/tests/nope", 404),
        ("DELETE", "/v1/nodes/zz", 404),
        ("PATCH", "/v1/tasks", 405),
        ("PUT", "/v1/runs", 405),
        ("POST", "/v1/schedule", 405),
        ("TRACE", "/v1/tasks", 405),
        ("DELETE", "/healthz", 405),
    ],
)
@pytest.mark.mostly_nightly
async def test_unknown_places(a: Outsider, method: str, path: str, status: int) -> None:
    """Unknown paths, unknown objects and unsupported methods are refused."""
    is_problem(await a.ask(method, path), status)


@each(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic eDp5",
        "Bearer " + "x" * 5000,
        "Bearer parley_" + "A" * 43,
        "Bearer \u00e9\u00fc",
        "Bearer ' OR 1=1 --",
    ],
)
async def test_bad_tokens(a: Outsider, b: Outsider, authorization: str | None) -> None:
    """A request without a valid token changes nothing, and another node's token is not valid."""
    headers = {} if authorization is None else {"Authorization": authorization}
    for method, path in (("POST", "/v1/tasks"), ("DELETE", NOBODY), ("POST", "/v1/nodes")):
        for sent in (headers, {"Authorization": f"Bearer {b.token}"}):
            async with a.session.request(
                method, a.url + path, json={"test": IDLE}, headers=sent
            ) as response:
                answer = Answer(response.status, await response.json(), response.headers)
            is_problem(answer, 401)
            assert answer.headers["WWW-Authenticate"] == "Bearer"


PARTICIPANT = [
    ("PUT", f"tasks/{uuid4()}"),
    ("POST", "proposals"),
    ("POST", "holds"),
    ("POST", "rulings"),
    ("POST", "tasks/freed"),
    ("POST", "considerations"),
    ("POST", "outlooks"),
    ("GET", f"exchanges/{uuid4()}"),
    ("POST", "runs/ends"),
    ("POST", "tasks/ends"),
    ("POST", "parts"),
    ("POST", "digests"),
]


@each(("method", "path"), PARTICIPANT)
async def test_participants_sign(a: Outsider, method: str, path: str) -> None:
    """Participant requests require a node's signature, and a user's token is not sufficient."""
    for headers in (
        {},
        {"Signature": "parley=:AAAA:", "Signature-Input": "parley=()"},
        {"Signature": "x" * 3000, "Signature-Input": 'parley=("@method");keyid="'},
    ):
        answer = await a.ask(method, f"/v1/participant/{path}", {}, headers)
        is_problem(answer, 401)


@each(
    "url",
    [
        "x",
        "file:///etc/passwd",
        "http://u:p@h/",
        "http://h/path",
        "gopher://h:70",
        "http://\x00",
        "",
    ],
)
async def test_invalid_node_urls(a: Outsider, url: str) -> None:
    """A node can be added only by the plain address of its API."""
    complains_of(await a.ask("POST", "/v1/nodes", {"url": url}), "/url")


async def test_a_node_with_another_key(a: Outsider, b: Outsider) -> None:
    """A known node is not taken over by a key that is not its own."""
    document = {"url": b.url, "identity": "ed25519:" + "A" * 43}
    is_problem(await a.ask("POST", "/v1/nodes", document), 403, 409, 422, 502)
    known = await a.get("/v1/nodes")
    assert {node["name"] for node in known["items"]} == {"a", "b", "c"}


async def test_bad_idempotency_keys(a: Outsider) -> None:
    """A key that is too long is refused by name."""
    answer = await a.ask("POST", "/v1/tasks", {"test": IDLE}, {"Idempotency-Key": "x" * 201})
    is_problem(answer, 422)
    assert answer.pointers == ["Idempotency-Key"]
