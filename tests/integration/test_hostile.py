"""A small round of ``make hostile``, and faults on purpose, which it has to find."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web

from node.cli.lab.nodes import LabNode
from node.model import times
from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.hostile import aftermath, drawn, facade, honest, participants
from tests.hostile.battle import attack
from tests.hostile.documents import now
from tests.hostile.framing import Raw
from tests.hostile.framing import send as send_raw
from tests.hostile.messages import Actor, Message, permitted
from tests.hostile.participants import Participant
from tests.hostile.plan import Plan
from tests.hostile.record import Record
from tests.hostile.report import lines_of
from tests.hostile.scene import VICTIM_LABEL, Scene, Site
from tests.integration.host_leftovers import nothing_left
from tests.support.clocks import ManualClock
from tests.support.loopback import serving
from tests.support.served_nodes import served

SMALL = Plan(requests=700, seconds=30, rest_s=1, drawn=0, flood=0.1, answer_s=15)
SECRET = "parley_secret"


@pytest.mark.timeout(400)
@pytest.mark.needs("echo")
@pytest.mark.nightly
async def test_a_small_round_finds_nothing() -> None:
    """No promise is broken by some seconds of hostile requests of all kinds."""
    progress: list[str] = []
    with nothing_left():
        outcome = await attack(SMALL, progress.append)
    assert outcome.record.faults == [], (progress, [*lines_of(outcome)])
    # On a busy host fewer requests fit into the time.
    assert outcome.record.total > 100
    assert set(outcome.record.by_actor) == set(Actor)


async def _broken(request: web.Request) -> web.Response:
    """Answer as no node may."""
    match request.path:
        case "/500":
            return web.json_response({}, status=500)
        case "/traceback":
            return web.Response(text="Traceback (most recent call last):\n")
        case "/secret":
            return web.Response(text="fine", headers={"X-Token": SECRET})
        case "/victim":
            return web.Response(text=f"a task of {VICTIM_LABEL}")
        case "/plain":
            return web.Response(text="no", status=403)
        case _:
            return web.json_response({}, headers={"X-Content-Type-Options": "nosniff"})


@pytest.fixture
async def broken() -> AsyncIterator[Scene]:
    """Return a scene whose only node answers wrongly."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _broken)
    async with serving(app) as url, aiohttp.ClientSession() as session:
        node = LabNode("a", url, SECRET, "", "127.0.0.1", "")
        key = NodeKey.generate()
        site = Site(node, key.identity, 0, {Actor.RUN: "x"})
        yield Scene([site], [key], key, key, session, Record({SECRET.encode()}))


@pytest.mark.parametrize(
    ("path", "checks"),
    [
        ("/500", {"5xx", "no problem document", "nosniff"}),
        ("/traceback", {"traceback in an answer", "nosniff"}),
        ("/secret", {"secret shown", "nosniff"}),
        ("/victim", {"other user's task shown", "nosniff"}),
        ("/plain", {"no problem document", "nosniff"}),
        ("/served", {"wrong status"}),
        ("/fine", set()),
    ],
)
async def test_a_wrong_answer_is_found(broken: Scene, path: str, checks: set[str]) -> None:
    """Each kind of wrong answer is noted as such, and a right one is not."""
    allowed = {401} if path == "/served" else None
    await broken.send(Message("x", "", "GET", path, Actor.RUN, allowed=allowed))
    assert set(broken.record.found) == checks
    assert broken.record.total == 1


async def test_a_second_answer_is_found(broken: Scene) -> None:
    """Two answers to what may be one request only are noted, as a request was smuggled."""
    request = b"GET /fine HTTP/1.1\r\nHost: a\r\n\r\n"
    for allowed, found in ((2, 0), (1, 1)):
        raw = Raw("twice", 2 * request, allowed)
        await send_raw(broken, raw, broken.sites[0], Actor.STRANGER)
        assert broken.record.found["two answers"] == found


@pytest.mark.nightly
async def test_requests_are_drawn_from_a_description() -> None:
    """Requests drawn for an operation have its route, and are the same for the same seed."""
    query = {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 5}}
    answer = {"responses": {"200": {"description": "fine"}}}
    description = {
        "openapi": "3.1.0",
        "info": {"title": "x", "version": "1"},
        "paths": {"/v1/runs": {"get": {"parameters": [query], **answer}}},
    }
    first, second = [await drawn.finish(await drawn.start(description, 7, 5)) for _ in range(2)]
    assert first == second
    assert {each.route for each in first} == {"GET /v1/runs"}
    assert {each.kind for each in first} == {"negative", "positive"}


def test_the_table_of_permissions_is_the_measure() -> None:
    """By the table, a caller without the access gets one right answer, and another one several."""
    cases: dict[tuple[Actor, str], set[int] | None] = {
        (Actor.STRANGER, "GET /v1/tasks"): {401},
        (Actor.REVOKED, "GET /v1/tasks"): {401},
        (Actor.READ, "POST /v1/tasks"): {403},
        (Actor.RUN, "GET /metrics"): {403},
        (Actor.RUN, "GET /v1/tasks/{id}"): None,
        (Actor.OPERATE, "POST /v1/tokens"): {403},
        (Actor.OWN, "POST /v1/tokens"): None,
        (Actor.OWN, "POST /v1/participant/holds"): {401},
        (Actor.REMOVED, "POST /v1/participant/holds"): {401},
        (Actor.PEER, "POST /v1/participant/holds"): None,
        (Actor.PEER, "GET /v1/tasks"): {401},
        (Actor.STRANGER, "GET /healthz"): None,
    }
    assert {case: permitted(*case) for case in cases} == cases


BREAKS = {
    "more_than_quota": """
        WITH quota AS (
            INSERT INTO limit_quota (rule, quantity, period, most) VALUES ('r', 'runs', '1 hour', 1)
            RETURNING rule, quantity, period
        )
        INSERT INTO limit_use (rule, holder, quantity, period, begins_at, used)
        SELECT rule, 'h', quantity, period, date_bin('1 hour', now(), 'epoch'), 2 FROM quota
        """,
    "ledger_hours": """
        INSERT INTO charge_hour (hour, campaign_id, node, amount, bytes)
        VALUES (date_bin('1 hour', now(), 'epoch'), 1, 'x', 1000, 1000)
        """,
}


async def test_what_is_half_made_is_found(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Rows that break a promise are found, and those of a new node break none."""
    dsn = await new_database()
    async with served("a", dsn, clock, tmp_path) as a:
        node = LabNode("a", "", "", dsn, "", "")
        site = Site(node, a.card.identity, 0)
        assert await aftermath._broken(site) == []
        for statement in BREAKS.values():
            async with a.database.transaction() as connection:
                await connection.execute(statement)
        found = {check for check, _ in await aftermath._broken(site)}
        assert found == {*BREAKS, "quotas are not the sum over runs"}


def test_secrets_and_tracebacks_in_logs_are_found(tmp_path: Path) -> None:
    """A log that has a secret, or tells of an exception, is noted."""
    record = Record({SECRET.encode()})
    log = tmp_path / "a.log"
    log.write_text('{"event": "ready"}\n')
    aftermath.logs(log, record)
    assert not record.found
    log.write_text(f'{{"event": "x", "exception": "Traceback"}}\n{{"token": "{SECRET}"}}\n')
    aftermath.logs(log, record)
    assert dict(record.found) == {"traceback in a log": 1, "secret shown": 1}


async def test_a_request_without_an_answer_is_counted(broken: Scene) -> None:
    """A connection that ends without an answer is counted, and is no fault by itself."""

    async def hang_up(_: asyncio.StreamReader, writer: Any) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    node = LabNode("a", f"http://127.0.0.1:{port}", "", "", "", "")
    broken.sites.append(Site(node, broken.sites[0].identity, 0))
    assert await broken.send(Message("x", "", "GET", "/", node=1)) is None
    assert broken.record.lost.total() == 1
    server.close()
    await server.wait_closed()


class _AtOnce:
    """A clock that nobody waits for."""

    async def sleep(self, _seconds: float) -> None:
        """Return at once."""

    async def sleep_until(self, _instant: int) -> None:
        """Return at once."""


RUN = "0f0f3a4e-3c1f-4d3c-8d8f-5f3b6c1d2e3f"
LIE = {"slept_ms": "long", "padding": "x" * 200_000}


def _always(answer: Any, status: int = 200) -> Any:
    async def answer_it(_: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    return answer_it


async def _posted(_: web.Request) -> web.Response:
    return web.json_response(f"https://a/pscheduler/tasks/{uuid4()}")


async def _taken(_: web.Request) -> web.Response:
    return web.Response(status=204, headers={"X-Content-Type-Options": "nosniff"})


async def _told(request: web.Request) -> web.Response:
    return web.json_response({"reference": request.app[MARK]})


async def _without_words(_: web.Request) -> web.Response:
    return web.Response(status=403)


def _gullible() -> web.Application:
    """Return a node that takes whatever a participant or a client tells."""
    app = web.Application(client_max_size=10_000_000)
    app[MARK] = "mark of the victim"
    parts = [{}, {"result": LIE}]
    for method, path, handler in (
        ("POST", "/v1/tasks", _always({"id": "t"}, 201)),
        ("GET", "/v1/tasks/t/runs", _always({"items": [{"state": "finished", "reason": None}]})),
        ("GET", "/v1/tasks/{task}", _always({"priority": 7})),
        ("GET", "/v1/runs/{run}", _always({"id": RUN, "state": "finished", "parts": parts})),
        ("POST", "/v1/participant/{path:.*}", _taken),
        ("POST", "/pscheduler/tasks", _posted),
        ("GET", "/pscheduler/status", _always("Traceback", 500)),
        ("GET", "/pscheduler/schedule", _without_words),
        ("*", "/pscheduler/{path:.*}", _told),
    ):
        app.router.add_route(method, path, handler)
    return app


MARK = web.AppKey("mark", str)


@pytest.fixture
async def gullible(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Return a scene whose only node believes everything, and nobody waits."""
    for module in (participants, honest):
        monkeypatch.setattr(module, "_CLOCK", _AtOnce())
    app = _gullible()
    async with serving(app) as url, aiohttp.ClientSession() as session:
        node, key = LabNode("a", url, SECRET, "", "127.0.0.1", ""), NodeKey.generate()
        site = Site(node, key.identity, 0)
        yield Scene([site], [key], key, key, session, Record(), mark=app[MARK], facade=url)


@pytest.mark.parametrize("what", ["that is none", "with a command of 500 kB"])
async def test_a_lie_of_a_participant_that_is_believed_is_found(gullible: Scene, what: str) -> None:
    """A part that is taken too early, that is none, or of which all is kept, is noted."""
    participant = Participant(gullible, gullible.participant)
    participant.booked["t"] = RUN, now() + times.MINUTE
    await participants._lie(participant, what, {"result": {"slept_ms": "long"}})
    lies = {"a part that is none was taken"} if what in participants.LIES else set()
    taken = {"a part before its start", "wrong status", "a part fills the host"}
    assert set(gullible.record.found) == lies | taken


@pytest.mark.parametrize(("state", "found"), [("finished", 1), ("failed", 0)])
def test_a_replayed_answer_that_is_believed_is_found(
    gullible: Scene, state: str, found: int
) -> None:
    """A run that is booked by what its participant said of another one is noted."""
    participants.judge_replay(Participant(gullible, gullible.participant), "t", state)
    assert gullible.record.found["an answer about another exchange was taken"] == found


def test_a_participant_answers_for_another_task() -> None:
    """The participant says of each task what it has held of that, or else of another one."""
    key = NodeKey.generate()
    participant = Participant(Scene([], [], key, key, cast("Any", None), Record()), key)
    run = {"run": RUN, "starts_at": 7}
    holds = [{"hold": {"task": name, "runs": [{**run, "run": name}]}} for name in ("t", "u")]
    assert participant._hold(holds[0]) == {"held": ["t"]}
    participant.instead = "t"
    assert participant._hold(holds[1]) == {"held": ["t"]}
    assert participant.booked == {"t": ("t", 7), "u": ("u", 7)}


@pytest.mark.nightly
async def test_a_facade_that_serves_everybody_is_found(gullible: Scene) -> None:
    """Each right that a client may not have is noted when the façade gives it."""
    await facade.run(gullible, random.Random(1), 4 * 3 * facade.TASKS_MAX)
    assert set(gullible.record.found) == {
        "a client names an archive",
        "a client measures an inner host",
        "a stranger is served",
        "a client reaches another one's task",
        "a participant that nobody knows",
        "a client has a rank",
        "a client has any number of tasks",
        "a large document of a client is taken",
        "a refusal without words",
        "traceback in an answer",
        "5xx",
    }
