"""The API keeps to HTTP: methods, media types, caches, conditions, and pages of its problems."""

from __future__ import annotations

import asyncio
import gzip
import secrets
from collections.abc import AsyncIterator
from html import escape
from pathlib import Path
from uuid import uuid4

import aiohttp
import orjson
import pytest
import structlog
from multidict import CIMultiDictProxy
from structlog.testing import capture_logs

from node.api.conditions import CONDITIONAL
from node.api.problem_types import PROBLEM_TYPES
from node.model.principals import Role
from node.model.times import SECOND
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.reservations import document as reservation
from tests.support.served_nodes import Asker, asker, give_token, know, user


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node with a client that has a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def test_every_type_of_problem_leads_to_its_page(a: Asker) -> None:
    """The type of a problem is the path of a page that says what it means and what to do."""
    status, problem = await a.ask("GET", "/v1/nothing")
    assert (status, problem["type"]) == (404, "/problems/not-found")
    for each in PROBLEM_TYPES.values():
        async with a.session.get(f"{a.node.card.url}{each.type}") as response:
            page = await response.text()
        assert (response.status, response.content_type) == (200, "text/html")
        assert escape(each.title) in page
    async with a.session.get(f"{a.node.card.url}/problems") as response:
        listed = await response.text()
    assert all(each.type in listed for each in PROBLEM_TYPES.values())
    assert (await a.ask("GET", "/problems/nothing"))[0] == 404


async def heads(
    a: Asker, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, CIMultiDictProxy[str], bytes]:
    """Return status, headers, and bytes of an answer as they were sent."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{a.node.card.url}{path}"
    skipped = () if "Content-Type" in named else ("Content-Type",)
    async with (
        aiohttp.ClientSession(auto_decompress=False, headers=a.session.headers) as session,
        session.request(method, url, data=body, headers=named, skip_auto_headers=skipped) as answer,
    ):
        return answer.status, answer.headers, await answer.read()


async def test_a_method_that_is_not_allowed_is_told_which_are(a: Asker) -> None:
    """405 has the header Allow, with HEAD beside GET."""
    status, told, _ = await heads(a, "PUT", "/v1/tasks")
    assert (status, told["Allow"]) == (405, "GET, HEAD, POST")
    status, told, _ = await heads(a, "GET", "/v1/tasks/changes")
    assert (status, told["Allow"]) == (405, "POST"), "a word that is no id"
    status, told, _ = await heads(a, "DELETE", "/v1/tokens/self")
    assert (status, told["Allow"]) == (405, "GET, HEAD")


async def test_head_is_answered_like_get_without_its_body(a: Asker) -> None:
    """HEAD has status and headers of GET; for a problem, too, and for the stream of events."""
    for path, expected in (("/v1/nodes", 200), ("/healthz", 200), ("/v1/tasks/x", 404)):
        got = await heads(a, "GET", path)
        status, told, body = await heads(a, "HEAD", path)
        assert (status, body) == (expected, b"")
        assert told["Content-Length"] == str(len(got[2]))
        assert told["Content-Type"] == got[1]["Content-Type"]
    status, told, body = await heads(a, "HEAD", "/v1/events")
    assert (status, told["Content-Type"], body) == (200, "text/event-stream", b"")


async def test_large_answers_are_compressed_for_those_who_accept_it(a: Asker) -> None:
    """Gzip is sent to those who accept it only, under a tag of its own."""
    _, plain_told, plain = await heads(a, "GET", "/v1/tests", Accept_Encoding="gzip;q=0")
    _, told, packed = await heads(a, "GET", "/v1/tests", Accept_Encoding="br, gzip;q=0.5")
    assert "Content-Encoding" not in plain_told
    assert told["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 4
    assert plain_told["Vary"] == told["Vary"] == "Accept-Encoding"
    assert plain_told["ETag"] != told["ETag"]
    _, told, _ = await heads(a, "GET", "/healthz", Accept_Encoding="gzip")
    assert "Content-Encoding" not in told, "it is not worth it"


async def test_what_the_caller_has_is_not_sent_again(a: Asker) -> None:
    """If-None-Match with the tag of the answer gets 304, until something changes."""
    for coding in ("gzip", "identity"):
        _, told, _ = await heads(a, "GET", "/v1/tests", Accept_Encoding=coding)
        status, again, body = await heads(
            a, "GET", "/v1/tests", If_None_Match=told["ETag"], Accept_Encoding=coding
        )
        assert (status, body) == (304, b"")
        assert again["ETag"].strip('"') in told["ETag"]
    _, told, _ = await heads(a, "GET", "/v1/pools")
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    status, _, _ = await heads(a, "GET", "/v1/pools", If_None_Match=told["ETag"])
    assert status == 200


async def test_a_change_of_what_has_changed_is_refused(a: Asker) -> None:
    """If-Match with an old tag is answered 412, and nothing changes; with the new one it does."""
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    _, old, _ = await heads(a, "GET", "/v1/pools/all")
    patch = b'{"description": "%s"}'
    kind = {"Content_Type": "application/merge-patch+json"}
    status, new, _ = await heads(
        a, "PATCH", "/v1/pools/all", patch % b"one", If_Match=old["ETag"], **kind
    )
    assert status == 200
    for method, body in (("PATCH", patch % b"two"), ("DELETE", None)):
        for tag in (old["ETag"], '"99"', '"x"', f"W/{new['ETag']}", "99"):
            status, _, answer = await heads(a, method, "/v1/pools/all", body, If_Match=tag, **kind)
            assert (status, orjson.loads(answer)["type"]) == (
                412,
                "/problems/precondition-failed",
            ), (method, tag)
    assert (await a.ask("GET", "/v1/pools/all"))[1]["description"] == "one"
    status, _, _ = await heads(a, "DELETE", "/v1/pools/all", If_Match=new["ETag"])
    assert status == 204


@pytest.mark.nightly
async def test_a_change_at_the_same_moment_is_noticed(a: Asker) -> None:
    """A request with If-Match does not touch what was changed after the request had come."""
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    await a.ask("POST", "/v1/campaigns", {"name": "ops"})
    hook = {"name": "hook", "archiver": "http", "spec": {"url": "https://192.0.2.1/"}}
    await a.ask("POST", "/v1/archives", hook)
    _, reserved = await a.ask("POST", "/v1/reservations", reservation())
    _, task = await a.ask("POST", "/v1/tasks", {"test": {"type": "rtt", "spec": {"dest": "a"}}})
    task_path = f"/v1/tasks/{task['id']}"
    changes = (
        ("DELETE", "/v1/pools/all", "", "pool", "name = 'all'"),
        ("DELETE", "/v1/campaigns/ops", "", "campaign", "name = 'ops'"),
        ("DELETE", "/v1/archives/hook", "", "archive", "name = 'hook'"),
        ("DELETE", f"/v1/reservations/{reserved['id']}", "", "reservation", "true"),
        ("POST", task_path, "/pause", "task", "true"),
        ("POST", task_path, "/resume", "task", "true"),
        ("POST", task_path, "/release", "task", "true"),
        ("DELETE", task_path, "", "task", "true"),
    )
    for method, path, verb, table, which in changes:
        _, told, _ = await heads(a, "GET", path)
        async with a.node.database.transaction() as connection:
            await connection.execute(f"UPDATE {table} SET revision = revision + 1 WHERE {which}")
            process = await connection.fetchval("SELECT pg_backend_pid()")
            asked = asyncio.create_task(heads(a, method, path + verb, If_Match=told["ETag"]))
            while not await a.rows(_WAITING, process):
                assert not asked.done(), asked.result()
        assert (await asked)[0] == 412, (method, path, verb)
        status, told, _ = await heads(a, "GET", path)
        assert status == 200
        status, _, _ = await heads(a, method, path + verb, If_Match=told["ETag"])
        assert status in {200, 204}


_WAITING = "SELECT FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"


async def test_a_condition_is_never_ignored(a: Asker) -> None:
    """If-Match at something without a revision is refused; the star holds for all that exists."""
    body = b'{"attributes": {"country": "DE"}}'
    patch = ("PATCH", "/v1/nodes/a", body)
    assert (await heads(a, *patch, If_Match='"1"', Content_Type="application/json"))[0] == 412
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    assert (await heads(a, "DELETE", "/v1/pools/all", If_Match="*"))[0] == 204


async def test_every_resource_with_a_revision_compares_it(a: Asker) -> None:
    """Tasks, reservations, campaigns, pools, and archives: all refuse a tag that is none."""
    some_id = uuid4()
    for operation in CONDITIONAL:
        method, path = operation.split(" ")
        path = path.format(id=some_id, name="nothing")
        body = b"{}" if method == "PATCH" else None
        status, _, answer = await heads(
            a, method, path, body, If_Match='"x"', Content_Type="application/json"
        )
        assert status == 412, (operation, answer)


async def test_media_types_are_what_they_are_called(a: Asker) -> None:
    """A body of another type is refused with 415, an answer of another type with 406."""
    pool = orjson.dumps({"name": "all", "match": {}})
    status, told, _ = await heads(a, "POST", "/v1/pools", pool, Content_Type="text/plain")
    assert (status, told["Accept"]) == (415, "application/json")
    status, told, _ = await heads(a, "PATCH", "/v1/pools/all", b"{}", Content_Type="text/plain")
    assert (status, told["Accept-Patch"]) == (
        415,
        "application/json, application/merge-patch+json",
    )
    assert (await heads(a, "GET", "/v1/pools", Accept="text/html"))[0] == 406
    assert (await heads(a, "GET", "/v1/pools", Accept="application/json;q=0, */*"))[0] == 406
    for accepted in ("*/*", "application/*", "text/html, application/json;q=0.1", "x/y, */*;q=0.1"):
        assert (await heads(a, "GET", "/v1/pools", Accept=accepted))[0] == 200, accepted
    assert (await heads(a, "POST", "/v1/pools", pool))[0] == 201, "no type at all is JSON"


async def test_a_user_who_asks_too_often_is_told_when_to_ask_again(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Beyond the owner's limit there is 429 until the time it names; the owner has no limit."""
    async with asker("a", await new_database(), clock, tmp_path, requests_per_minute=2) as owner:
        await give_token(owner.node, "alices", "alice", Role.READ)
        async with user(owner, "alices") as alice:
            told = [(await heads(alice, "GET", "/v1/clock"))[1] for _ in range(2)]
            assert [each["RateLimit"] for each in told] == [
                '"requests";r=1;t=60',
                '"requests";r=0;t=60',
            ]
            status, refused, body = await heads(alice, "GET", "/v1/clock")
            assert (status, orjson.loads(body)["type"]) == (429, "/problems/too-fast")
            assert refused["Retry-After"] == "30"
            assert refused["RateLimit"] == '"requests";r=0;t=30'
            assert refused["RateLimit-Policy"] == '"requests";q=2;w=60'
            clock.advance(30 * SECOND)
            assert (await heads(alice, "GET", "/v1/clock"))[0] == 200
        assert [(await heads(owner, "GET", "/v1/clock"))[0] for _ in range(5)] == [200] * 5


async def test_a_trace_goes_on_at_other_nodes_and_in_the_log(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """The log of both nodes names the trace of a request that made one ask the other."""
    trace = secrets.token_hex(16)
    seen: list[str | None] = []
    async with (
        asker("a", await new_database(), clock, tmp_path / "a") as a,
        asker("b", await new_database(), clock, tmp_path / "b") as b,
    ):
        await know(a.node, b.node)
        await know(b.node, a.node)

        async def noted(*_: object) -> None:
            context = structlog.contextvars.get_contextvars()
            seen.append(context.get("trace_id"))
            raise ZeroDivisionError

        b.node.acceptance.consider = noted  # type: ignore[method-assign, assignment]
        document = orjson.dumps({"test": {"type": "idle"}, "participants": ["a", "b"]})
        with capture_logs([structlog.contextvars.merge_contextvars]) as logged:
            await heads(
                a,
                "POST",
                "/v1/tasks",
                document,
                traceparent=f"00-{trace}-{secrets.token_hex(8)}-01",
                Content_Type="application/json",
            )
        assert set(seen) == {trace}
        assert {each["trace_id"] for each in logged if each["event"] == "request failed"} == {trace}
        assert structlog.contextvars.get_contextvars() == {}
