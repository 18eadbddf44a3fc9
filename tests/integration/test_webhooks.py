"""Webhooks are told when something begins and when it is over, once each, whatever fails."""

from __future__ import annotations

import base64
import hmac
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from aiohttp import web

from node.journal.webhooks import Webhooks
from node.model import times
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.loopback import serving
from tests.support.served_nodes import Asker, asker, know, served

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
_TASK = """
    INSERT INTO task (
        id, lead, test, spec, scheduling_class, duration, participants, participant, schedule,
        created_at, reference
    )
    SELECT
        '00000000-0000-4000-8000-00000000000a', node.identity, 'rtt', '{"dest": "192.0.2.7"}',
        'background-multi', interval '1 s',
        '[{"node": "x", "name": "a", "url": null, "address": "a"}]', 0, '{}', $1,
        '{"mesh": "lab", "key": "k"}'
    FROM node WHERE node.is_self
"""
_RUN = """
    INSERT INTO run (
        id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at,
        lane, state, reason, finished_at, created_at, changed_at
    )
    SELECT
        gen_random_uuid(), task.id, $1, 1, 0, task.scheduling_class, 0, $1,
        $1::timestamptz + interval '1 s', int8range(NULL, NULL), $2::text::run_state,
        'ping: no route', $1, $1, $1
    FROM task
"""


@dataclass
class Receiver:
    """A receiver that checks the signature of what it accepts, with code of its own."""

    url: str = ""
    refuses: bool = False
    got: list[dict[str, Any]] = field(default_factory=list)
    attempts: int = 0

    async def take(self, request: web.Request) -> web.Response:
        """Check a message, and keep it unless all are refused now."""
        self.attempts += 1
        body = await request.read()
        message, seconds = (request.headers[f"Webhook-{name}"] for name in ("Id", "Timestamp"))
        key, content = base64.b64decode(SECRET[6:]), f"{message}.{seconds}.".encode() + body
        expected = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
        assert request.headers["Webhook-Signature"] == f"v1,{expected}"
        if self.refuses:
            return web.Response(status=503)
        document = orjson.loads(body)
        assert document["id"] == message
        self.got.append(document)
        return web.Response(status=204)

    def told(self) -> list[tuple[str, str, str]]:
        """Return type, state and subject of what was received since the last call."""
        told = [(each["type"], each["state"], each["subject"]) for each in self.got]
        self.got.clear()
        return told


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Start a receiver."""
    made, app = Receiver(), web.Application()
    app.router.add_post("/in", made.take)
    async with serving(app) as url:
        made.url = f"{url}/in"
        yield made


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Serve a node."""
    async with asker("a", await new_database(), clock, tmp_path / "a") as client:
        yield client


async def add(a: Asker, receiver: Receiver, **terms: Any) -> dict[str, Any]:
    """Add a webhook over HTTP, and return the answer."""
    document = {"name": "pager", "url": receiver.url, "secret": SECRET, **terms}
    status, added = await a.ask("POST", "/v1/webhooks", document)
    assert status == 201, added
    return dict(added)


async def tell(a: Asker) -> None:
    """Look for what there is to tell, and deliver it."""
    await a.node.webhooks.queue_messages()
    await a.node.webhook_outbox.run_once()


async def test_a_node_that_is_away_is_told_until_it_is_accepted(
    a: Asker, receiver: Receiver, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A message is sent again with the same id, survives a restart, and tells of the end, too."""
    await add(a, receiver)
    async with served("b", await new_database(), clock, tmp_path / "b") as b:
        await know(a.node, b)
        await tell(a)
        assert receiver.attempts == 0
        await a.rows("UPDATE node SET unreachable_since = $1 WHERE name = 'b'", clock.now())
        receiver.refuses = True
        await tell(a)
        _, listed = await a.ask("GET", "/v1/webhooks")
        [shown] = listed["items"]
        assert (shown["waiting"], shown["delivered_at"]) == (1, None)
        assert shown["last_error"].startswith("503")
        receiver.refuses = False
        a.node.webhooks = Webhooks(a.node.core, lambda: pytest.fail("it is told already"))
        await tell(a)
        assert receiver.got == [], "it waits before it is sent again"
        clock.advance(times.MINUTE)
        await tell(a)
        assert receiver.got[0]["sentence"].startswith("b does not answer since 2026-12-01T")
        assert receiver.told() == [("node-away", "begun", "b")]
        _, listed = await a.ask("GET", "/v1/webhooks")
        [shown] = listed["items"]
        assert (shown["waiting"], shown["last_error"]) == (0, None)
        assert shown["delivered_at"] is not None
        assert "secret" not in shown
    await a.rows("UPDATE node SET unreachable_since = NULL WHERE name = 'b'")
    a.node.webhooks = Webhooks(a.node.core, uuid4)
    await tell(a)
    assert receiver.told() == [("node-away", "over", "b")]


async def test_a_task_is_told_after_as_many_failures_as_were_named(
    a: Asker, receiver: Receiver, clock: ManualClock
) -> None:
    """Two failures are told of where two were named, once, and a success ends it."""
    await add(a, receiver, events=["task-failing"], failures=2)
    await a.rows(_TASK, START)
    for number, (state, expected) in enumerate(
        [
            ("failed", []),
            ("missed", ["begun"]),
            ("failed", []),
            ("finished", ["over"]),
            ("failed", []),
        ]
    ):
        await a.rows(_RUN, START + number * times.MINUTE, state)
        await tell(a)
        sentences = [each["sentence"] for each in receiver.got]
        assert [state for _, state, _ in receiver.told()] == expected, (number, sentences)
        if expected == ["begun"]:
            line = "rtt  a → 192.0.2.7: the last 2 runs had no result or no answer: ping: no route"
            assert sentences == [line]


_PAIR = """
    WITH made AS (
        INSERT INTO task (
            id, lead, test, spec, tool, scheduling_class, duration, participants, participant,
            schedule, created_at
        )
        SELECT
            gen_random_uuid(), node.identity, 'rtt', jsonb_build_object('dest', $2::text), 'ping',
            'background-multi', interval '1 s',
            jsonb_build_array(jsonb_build_object(
                'node', $1::text, 'name', $1::text, 'url', NULL, 'address', $1::text
            )), NULL, '{"repeat": "PT1M"}', $4
        FROM node WHERE node.is_self
        RETURNING id
    )
    INSERT INTO run (
        id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, lane, state,
        result, judgement, judgement_code, judgement_reason, finished_at, created_at, changed_at
    )
    SELECT
        gen_random_uuid(), made.id, $4, 1, 'background-multi', 0, $4,
        $4::timestamptz + interval '1 s', int8range(NULL, NULL), 'finished', '{}', $3,
        CASE WHEN $3 <> 'good' THEN 'all-lost' END,
        CASE WHEN $3 <> 'good' THEN 'all packets were lost' END, $4, $4, $4
    FROM made
"""


async def test_what_tasks_have_in_common_is_told_once(
    a: Asker, receiver: Receiver, clock: ManualClock
) -> None:
    """Runs without an answer are no success, and a host that explains them is one message."""
    await add(a, receiver, events=["task-failing"], failures=1)
    for source, dest in (("x", "d"), ("y", "d"), ("d", "x"), ("x", "y"), ("y", "x")):
        judgement = "no-answer" if "d" in {source, dest} else "good"
        await a.rows(_PAIR, source, dest, judgement, clock.now())
    await tell(a)
    [message] = receiver.got
    assert message["subject"] == "host d"
    assert message["sentence"].startswith(
        "d: 3 of 3 tasks since 2026-12-01T00:00:00Z, its measurement address answers nobody"
    )
    outcomes = (await a.ask("GET", "/v1/status"))[1]["outcomes"]
    assert outcomes["judgements"] == {"good": 2, "no-answer": 3}
    assert [each["sentence"] for each in outcomes["causes"]] == [message["sentence"]]
    assert outcomes["apart"] == []
    clock.advance(3 * times.MINUTE)
    assert (await a.ask("GET", "/v1/status"))[1]["outcomes"]["judgements"] == {"stale": 5}


async def test_a_mesh_is_told_when_it_delivers_too_little(
    a: Asker, receiver: Receiver, clock: ManualClock
) -> None:
    """Only what was due in the span counts, and only the mesh that was named."""
    await add(a, receiver, events=["mesh-below"], percent=60, span="PT10M", mesh="lab")
    await a.rows(_TASK, START)
    clock.move_to(START + times.HOUR)
    for number, state in enumerate(["finished", "failed", "finished", "finished"]):
        await a.rows(_RUN, clock.now() - (8 - number) * times.MINUTE, state)
    await tell(a)
    assert receiver.told() == []
    for number, state in enumerate(["failed", "finished", "finished"]):
        await a.rows(_RUN, clock.now() - (4 - number) * times.MINUTE, state)
    await tell(a)
    assert receiver.told() == [], "5 of 7 were delivered"
    await a.rows(
        "UPDATE run SET judgement = 'no-answer' WHERE slot >= $1", clock.now() - 3 * times.MINUTE
    )
    await tell(a)
    [message] = receiver.got
    assert message["sentence"] == (
        "mesh lab: 42.9 % of what was due in the last 10 min was delivered and not bad, less than "
        "60 %: of 7 runs 5 were delivered, 2 of these with a bad result or without an answer"
    )
    assert receiver.told() == [("mesh-below", "begun", "lab")]
    clock.advance(times.HOUR)
    await tell(a)
    assert receiver.told() == [("mesh-below", "over", "lab")]


async def test_an_owner_tests_and_removes_a_webhook(a: Asker, receiver: Receiver) -> None:
    """A test is told what became of it; a removed webhook and its messages are gone."""
    status, tested = await a.ask("POST", "/v1/webhooks/pager/test")
    assert status == 404
    added = await add(a, receiver)
    assert added["secret"] == SECRET
    assert (await a.ask("POST", "/v1/webhooks", {"name": "pager", "url": "http://x/"}))[0] == 409
    status, tested = await a.ask("POST", "/v1/webhooks/pager/test")
    assert status == 200
    assert receiver.got[0]["id"] == tested["message"]
    assert receiver.told() == [("test", "begun", "pager")]
    receiver.refuses = True
    status, problem = await a.ask("POST", "/v1/webhooks/pager/test")
    assert (status, problem["type"]) == (502, "/problems/webhook-failed")
    await a.rows(_TASK, START)
    for number in range(3):
        await a.rows(_RUN, START + number * times.MINUTE, "failed")
    await a.node.webhooks.queue_messages()
    [[waiting]] = await a.rows("SELECT count(*) FROM outbox")
    assert waiting == 1
    assert (await a.ask("DELETE", "/v1/webhooks/pager"))[0] == 204
    [[waiting]] = await a.rows("SELECT count(*) FROM outbox")
    assert waiting == 0
    wrongs: tuple[dict[str, Any], ...]
    wrongs = ({"secret": "whsec_short"}, {"url": "ftp://x/"}, {"events": []}, {"span": "PT1S"})
    for wrong in wrongs:
        document = {"name": "other", "url": receiver.url, **wrong}
        status, problem = await a.ask("POST", "/v1/webhooks", document)
        assert status == 422, (wrong, problem)
        assert problem["errors"][0]["pointer"] == f"/{next(iter(wrong))}"
