"""Introductions over real HTTP: what a pinned node may have here, and nothing more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import orjson
import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import TooManyRequests
from node.model.ids import TaskId, exchange_id, run_id
from node.model.reasons import introduced_too_fast, too_many_tasks_of_lead
from node.model.wire.participants import INTRODUCTION_BYTES_MAX, Introduction, ProposalRequest
from node.model.wire.problems import MEDIA_TYPE
from node.trust.signatures import new_nonce, sign
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Served, give_token, know, served

TASKS_MAX = 40


@dataclass
class Peer:
    """Node a, which sends node b whatever it likes, signed."""

    a: Served
    b: Served
    http: aiohttp.ClientSession

    def introduction(self, **changes: Any) -> dict[str, Any]:
        """Return the introduction of a task of three seconds every hour, with changes."""
        participant = {
            "node": self.b.card.identity,
            "name": "b",
            "url": self.b.card.url,
            "address": self.b.card.address,
        }
        return {
            "task": str(uuid4()),
            "test": "idle",
            "spec": {"duration": "PT3S", "class": "exclusive", "participants": ["b"]},
            "tools": [],
            "tool": "sleep",
            "scheduling_class": "exclusive",
            "duration": 3 * times.SECOND,
            "priority": 0,
            "participants": [participant],
            "participant": 0,
            "addresses": {},
            "schedule": {"repeat": "PT1H", "slip": "PT5M"},
            "campaign": None,
            "reference": None,
            "created_at": START,
            **changes,
        }

    async def send(self, method: str, path: str, body: bytes) -> tuple[int, Any, Mapping[str, str]]:
        """Send a signed request; return the status, the document and the headers of the answer."""
        url = f"{self.b.card.url}/v1/participant/{path}"
        headers = sign(
            self.a.key,
            method,
            url,
            body,
            created=self.b.clock.now() // times.SECOND,
            nonce=new_nonce(lambda size: uuid4().bytes[:size]),
            to=self.b.card.identity,
        )
        async with self.http.request(method, url, data=body, headers=headers) as response:
            document = orjson.loads(await response.read())
            if response.status >= 400:
                assert response.content_type == MEDIA_TYPE
            return response.status, document, response.headers

    async def introduce(self, **changes: Any) -> tuple[int, Any, Mapping[str, str]]:
        """Introduce a task, and return the answer."""
        document = self.introduction(**changes)
        return await self.send("PUT", f"tasks/{document['task']}", orjson.dumps(document))

    async def rows(self, query: str, *values: Any) -> list[Any]:
        """Return rows of the tables of b."""
        async with self.b.database.connection() as connection:
            return list(await connection.fetch(query, *values))

    async def kept(self) -> int:
        """Return the number of tasks that b keeps."""
        return len(await self.rows("SELECT FROM task"))


@pytest.fixture
async def peer(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Peer]:
    """Return a node, and one that it knows as a peer."""
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(served("a", await new_database(), clock, tmp_path))
        b = await stack.enter_async_context(
            served("b", await new_database(), clock, tmp_path, peer_tasks=TASKS_MAX)
        )
        await know(a, b)
        await know(b, a)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        clock.advance(times.HOUR)
        yield Peer(a, b, http)


async def test_a_sound_task_is_accepted(peer: Peer) -> None:
    """A task that agrees with its spec is kept."""
    status, answer, _ = await peer.introduce()
    assert (status, answer["accepted"]) == (200, True)
    assert await peer.kept() == 1


async def test_an_introduction_that_is_too_long_is_refused(peer: Peer) -> None:
    """More than 64 kB are refused, and nothing is kept; a little less is accepted."""
    long = INTRODUCTION_BYTES_MAX - len(orjson.dumps(peer.introduction(reference="")))
    status, problem, _ = await peer.introduce(reference="x" * (long + 1))
    assert status == 413
    assert problem["detail"] == "the body is larger than 65536 bytes"
    assert await peer.kept() == 0
    assert (await peer.introduce(reference="x" * long))[0] == 200
    for path, method in (("considerations", "POST"), (f"tasks/{uuid4()}", "PUT")):
        body = orjson.dumps(peer.introduction(reference="x" * 100_000))
        assert (await peer.send(method, path, body))[0] == 413


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("/schedule/cron", {"schedule": {"cron": "* * *"}}),
    ("/schedule/cron", {"schedule": {"cron": "99 99 * * *"}}),
    ("/schedule/cron", {"schedule": {"cron": "*/0 * * * *"}}),
    ("/schedule/cron", {"schedule": {"cron": "0 0 30 2 *"}}),
    ("/schedule/cron", {"schedule": {"cron": "\u0660 * * * *"}}),
    ("/schedule/cron", {"schedule": {"cron": "* " * 1000}}),
    ("/schedule/cron", {"schedule": {"cron": "0 * * * *", "repeat": "PT1H"}}),
    ("/schedule/timezone", {"schedule": {"cron": "0 * * * *", "timezone": "Mars/X"}}),
    ("/schedule/timezone", {"schedule": {"cron": "0 * * * *", "timezone": "/etc/localtime"}}),
    ("/schedule/timezone", {"schedule": {"repeat": "PT1H", "timezone": "UTC"}}),
    ("/schedule/repeat", {"schedule": {"repeat": "PT0S"}}),
    ("/schedule/repeat", {"schedule": {"repeat": "-PT5M"}}),
    ("/schedule/repeat", {"schedule": {"repeat": "PT1S"}}),
    ("/schedule/repeat", {"schedule": {"repeat": 0}}),
    ("/schedule/slip", {"schedule": {"slip": "-PT1S"}}),
    ("/schedule/start", {"schedule": {"start": "9999-12-31T23:59:59Z"}}),
    ("/schedule/start", {"schedule": {"start": "PT10M"}}),
    ("/schedule/until", {"schedule": {"until": "2027-01-01T00:00:00Z"}}),
    ("/schedule/until", {"schedule": {"repeat": "PT1H", "until": "2020-01-01T00:00:00Z"}}),
    ("/schedule/max_runs", {"schedule": {"max_runs": 0}}),
    ("/schedule/max_runs", {"schedule": {"max_runs": 10**18}}),
    ("/schedule", {"schedule": []}),
    ("/created_at", {"created_at": -1}),
    ("/created_at", {"created_at": times.LATEST}),
    ("/duration", {"duration": 0}),
    ("/duration", {"duration": 10**18}),
    ("/priority", {"priority": 2**31}),
    ("/participant", {"participant": 32}),
    ("/participants", {"participants": [{}] * 1000}),
    ("/participants/0/address", {"participants": [{"node": "n", "name": "b", "address": "-x"}]}),
    ("/tools", {"tools": ["ping"] * 17}),
    ("/tools/0", {"tools": ["x" * 101]}),
    ("/tool", {"tool": "x" * 101}),
    ("/test", {"test": "x" * 101}),
    ("/campaign", {"campaign": "x" * 101}),
    ("/addresses", {"addresses": {f"h{n}": "h" for n in range(65)}}),
    ("/addresses", {"addresses": {"b": "$(reboot)"}}),
    ("/reference/a", {"reference": {"a": "\x00"}}),
    ("/freeing", {"freeing": {"before_epoch": 2**63}}),
    ("/revision", {"revision": 0}),
    ("/unknown", {"unknown": 1}),
]


@pytest.mark.nightly
async def test_a_wrong_field_is_named(peer: Peer) -> None:
    """Nonsense in an introduction is refused with a pointer, before anything is kept."""
    for pointer, changes in WRONG:
        status, problem, _ = await peer.introduce(**changes)
        assert status == 422, (changes, problem)
        named = [each["pointer"] for each in problem["errors"]]
        assert any(
            each.startswith(pointer) or (each and pointer.startswith(each)) for each in named
        ), (
            changes,
            problem,
        )
    for body in (b"", b"{", b"[" * 30_000, b'{"task": NaN}', b"nul", b"[]"):
        assert (await peer.send("PUT", f"tasks/{uuid4()}", body))[0] in {400, 422}
    assert await peer.kept() == 0


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("runs of 1 d, but by its spec they take 3 s with sleep", {"duration": times.DAY}),
    ("runs of 1 d, but by its spec they take 3 s", {"duration": times.DAY, "tool": "mine"}),
    ("runs of 1 d, but by its spec they take 3 s", {"duration": times.DAY, "tool": None}),
    (
        "runs of 1 s, but by its spec they take 1 h",
        {
            "duration": times.SECOND,
            "spec": {"duration": "PT1H", "class": "exclusive", "participants": ["b"]},
        },
    ),
    ("there is no test", {"test": "nope"}),
    ("there is no participant 3", {"participant": 3}),
    ("/test/spec", {"spec": {"duration": "yesterday"}}),
]


async def test_a_task_that_contradicts_its_spec_is_refused(peer: Peer) -> None:
    """The duration of a task is limited; the answer says what would be accepted."""
    for reason, changes in REFUSED:
        schedule = {"repeat": "P7D"}
        status, answer, _ = await peer.introduce(schedule=schedule, **changes)
        assert (status, answer.get("accepted")) == (200, False), (changes, answer)
        assert reason in answer["reason"]
    assert await peer.kept() == 0
    for changes in ({"duration": 12 * times.SECOND}, {"priority": 2000}, {"priority": -5}):
        assert (await peer.introduce(**changes))[1]["accepted"]


async def test_a_node_adds_tasks_at_a_limited_rate(peer: Peer, clock: ManualClock) -> None:
    """Beyond five seconds' worth of new and changed tasks at once, ten a second are taken."""
    peer.b.acceptance._tasks_max = 1000
    answers = [await peer.introduce() for _ in range(52)]
    assert [status for status, _, _ in answers] == [200] * 50 + [429] * 2
    _, problem, headers = answers[-1]
    assert (headers["Retry-After"], problem["retry_after"]) == ("1", 1)
    assert problem["detail"] == introduced_too_fast(1)
    known = peer.introduction()
    clock.advance(100 * times.MILLISECOND)
    assert (await peer.send("PUT", f"tasks/{known['task']}", orjson.dumps(known)))[0] == 200
    changed = orjson.dumps({**known, "revision": 2, "priority": 5})
    assert (await peer.introduce())[0] == 429
    assert (await peer.send("PUT", f"tasks/{known['task']}", changed))[0] == 429
    clock.advance(100 * times.MILLISECOND)
    assert (await peer.send("PUT", f"tasks/{known['task']}", changed))[0] == 200
    clock.advance(times.SECOND)
    statuses = [(await peer.introduce())[0] for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    assert await peer.kept() == 61


@pytest.mark.nightly
async def test_a_node_has_a_limited_number_of_open_tasks(peer: Peer) -> None:
    """A node that leads as many open tasks here as it may is told to ask later, until some end."""
    first = peer.introduction()
    await peer.send("PUT", f"tasks/{first['task']}", orjson.dumps(first))
    for _ in range(TASKS_MAX - 1):
        assert (await peer.introduce())[0] == 200
    status, problem, headers = await peer.introduce()
    assert (status, headers["Retry-After"]) == (429, "60")
    assert problem["detail"] == too_many_tasks_of_lead(40, 40)
    await peer.b.termination.cancel_task(Introduction.model_validate(first).task)
    assert (await peer.introduce())[0] == 200


async def test_the_client_of_a_lead_hears_later(peer: Peer) -> None:
    """A lead that is told to ask later sees this, and when, and not a refusal."""
    peer.b.acceptance._tasks_max = 0
    introduction = Introduction.model_validate(peer.introduction())
    with pytest.raises(TooManyRequests, match="PARLEY_PEER_TASKS") as raised:
        await peer.a.peer(peer.b.card.identity).introduce(introduction)
    assert raised.value.retry_after_s == 60


def _question() -> ProposalRequest:
    return ProposalRequest(
        task=uuid4(),
        lease_epoch=1,
        scheduling_class=SchedulingClass.NORMAL,
        duration=times.MINUTE,
        priority=0,
        windows=((START + times.DAY, START + 2 * times.DAY),),
    )


@pytest.mark.nightly
async def test_a_node_may_ask_for_so_much_work(peer: Peer, clock: ManualClock) -> None:
    """Half a processor works for the questions of one key, and what ends or decides has no rate."""
    body = orjson.dumps({"items": [_question().model_dump(mode="json")]})
    long = body + b" " * 400_000
    work = 1 + len(long) // 4096
    minute = 30_000
    for _ in range(minute // work + 1):
        assert (await peer.send("POST", "proposals", long))[0] == 200
    over = (minute // work + 1) * work - minute
    status, problem, headers = await peer.send("POST", "proposals", body)
    assert (status, headers["Retry-After"]) == (429, "1")
    assert problem["detail"] == (
        "a asks for more work than this host does for another node (PARLEY_PEER_WORK); "
        "ask again in 1 s"
    )
    digests = orjson.dumps({"now": clock.now(), "until": clock.now(), "tasks": []})
    for path, sent in (("comparisons", b""), ("digests", digests)):
        assert (await peer.send("POST", path, sent))[0] == 429, path
    release = {"task": str(uuid4()), "lease_epoch": 1}
    ruling = orjson.dumps({"items": [{"exchange": str(uuid4()), "release": release}]})
    assert (await peer.send("POST", "rulings", ruling))[0] == 200
    assert (await peer.introduce())[0] == 200
    assert not peer.b.request_rates.spend_of_peer("ed25519:other", 1, 0)
    assert over < 500
    clock.advance(times.SECOND)
    assert (await peer.send("POST", "proposals", body))[0] == 200


async def test_long_messages_of_a_node_are_bounded(peer: Peer, clock: ManualClock) -> None:
    """A node tells what it likes as long as it is short, and eight megabytes a few times."""
    release = {"task": str(uuid4()), "lease_epoch": 1}
    short = orjson.dumps({"items": [{"exchange": str(uuid4()), "release": release}]})
    long = short + b" " * 150_000
    rates, sender = peer.b.request_rates, peer.a.card.identity
    taken = sum(not rates.spend_for_message(sender, 8_000_000) for _ in range(1000))
    assert 0 < taken < 20
    status, problem, headers = await peer.send("POST", "rulings", long)
    assert (status, int(headers["Retry-After"]) > 0) == (429, True)
    assert problem["detail"].startswith("a sends long messages too fast")
    assert (await peer.send("POST", "rulings", short))[0] == 200
    assert not rates.spend_for_message("ed25519:other", 8_000_000)
    clock.advance(times.MINUTE)
    assert (await peer.send("POST", "rulings", long))[0] == 200


async def test_many_keys_ask_for_no_more_than_a_half_more_than_one(peer: Peer) -> None:
    """Three quarters of a processor work for all nodes that no rule names, however many."""
    rates, minute = peer.b.request_rates, 30_000
    done = [
        not rates.spend_of_peer(f"ed25519:{number % 50}", 100, 0) for number in range(minute // 20)
    ]
    assert minute * 1.5 <= 100 * sum(done) < minute * 1.6
    assert rates.spend_of_peer("ed25519:fresh", 1, 0)


@pytest.mark.parametrize("hears", [True, False])
async def test_a_lead_hears_which_epoch_is_known(peer: Peer, *, hears: bool) -> None:
    """A refused hold tells the epoch that is known here, to a program that knows the field."""
    known = peer.introduction()
    await peer.send("PUT", f"tasks/{known['task']}", orjson.dumps(known))
    await peer.rows("UPDATE task SET lease_epoch = 9")
    features = {"feature:epochs": True} if hears else {}
    await peer.rows("UPDATE node SET attributes = $1", features)
    await peer.b.directory.refresh()
    start = START + times.DAY
    task = TaskId(UUID(known["task"]))
    run = {
        "run": run_id(task, start, 1),
        "slot": start,
        "attempt": 1,
        "starts_at": start,
        "ends_at": start + known["duration"],
    }
    hold = {
        "task": task,
        "generation": uuid4(),
        "lease_epoch": 8,
        "tool": "sleep",
        "priority": 0,
        "life": 30 * times.SECOND,
        "runs": [run],
    }
    item = {"exchange": exchange_id(task, 8), "hold": hold}
    _, answer, _ = await peer.send("POST", "holds", orjson.dumps({"items": [item]}))
    problem = answer["items"][0]["problem"]
    assert (problem["status"], "by epoch 9" in problem["detail"]) == (409, True)
    assert problem.get("epoch") == (9 if hears else None)
    assert ("epoch" in problem) is hears


async def test_what_was_asked_together_is_not_asked_apart_of_a_busy_node(peer: Peer) -> None:
    """Many questions that are answered 429 together are not sent again one by one."""
    asked, rates = [], peer.b.request_rates

    def busy(identity: str, cost: int, length: int) -> int:
        asked.append((identity, cost, length))
        return 7

    rates.spend_of_peer = busy  # type: ignore[method-assign]
    other = peer.a.peer(peer.b.card.identity)
    answers = await asyncio.gather(
        *(other.propose(_question()) for _ in range(40)), return_exceptions=True
    )
    assert [getattr(answer, "retry_after_s", answer) for answer in answers] == [7] * 40
    assert len(asked) <= 4
    assert {identity for identity, _, _ in asked} == {peer.a.card.identity}


async def test_a_signed_request_is_heard(peer: Peer) -> None:
    """The signer of a request is heard of; one write serves many requests, and no stranger."""
    query = "SELECT heard_at FROM node WHERE identity = $1"
    assert [row[0] for row in await peer.rows(query, peer.a.card.identity)] == [None]
    for _ in range(3):
        await peer.introduce()
    assert peer.b.leases._heard == {peer.a.card.identity}
    await peer.b.leases.write_contacts()
    assert [row[0] for row in await peer.rows(query, peer.a.card.identity)] == [peer.b.clock.now()]
    await give_token(peer.b)
    headers = {"Authorization": "Bearer secret"}
    async with peer.http.get(f"{peer.b.card.url}/v1/nodes", headers=headers) as response:
        own, other = (await response.json())["items"]
    assert (own["heard_at"], own["lease_until"]) == (None, None)
    assert other["heard_at"] == times.format_instant(peer.b.clock.now())
    assert other["lease_until"] == times.format_instant(peer.b.clock.now() + 7 * times.DAY)
    async with peer.http.post(f"{peer.b.card.url}/v1/participant/digests", data=b"{}") as response:
        assert response.status == 401
    assert not peer.b.leases._heard


async def test_documents_with_very_many_values_are_refused(peer: Peer) -> None:
    """No document of a peer may have more than 100,000 values."""
    many = b"0," * 150_000 + b"0"
    bodies = {
        "parts": b'{"result": {"a": [%b]}}' % many,
        "digests": b'{"tasks": [%b]}' % many,
        "holds": b'{"items": [%b]}' % many,
        "proposals": b'{"items": [{"windows": [%b]}]}' % many,
        "rulings": b'{"items": [%b]}' % many,
    }
    for path, body in bodies.items():
        status, problem, _ = await peer.send("POST", path, body)
        assert status == 422
        assert "has more than 100000 values; send fewer" in problem["detail"]


async def test_a_node_that_was_removed_meanwhile_adds_no_task(peer: Peer) -> None:
    """A task that is introduced while its lead is being removed is not kept."""
    introduction = Introduction.model_validate(peer.introduction())
    async with peer.b.database.connection() as connection:
        await connection.execute("DELETE FROM node WHERE identity = $1", peer.a.card.identity)
    answer = await peer.introduce(task=str(introduction.task))
    assert answer[0] == 401, answer
    assert await peer.kept() == 0
