"""The façade of a node without a lead: who may do what, and what is told of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from node.model import times
from node.pscheduler.listener import listening
from node.pscheduler.requesters import Gate
from node.pscheduler.telling import interval_id, unplaced_id
from node.settings import Settings
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.pscheduler.command import CommandLine
from tests.support.served_nodes import Asker, asker, free_port

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
    settings = {"pscheduler_listen": place, "pscheduler_read": "192.0.2.0/24", "limits": limits}
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
tests = ["idle", "idlebg"]
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
    """By default this host writes and nobody else reads; networks of the owner are added."""
    closed = Gate(None, ())
    here, other = closed.requester("::ffff:127.0.0.1", ()), closed.requester("192.0.2.7", ())
    assert (here.may_write, here.may_read, here.label) == (True, True, "pscheduler:127.0.0.1")
    assert (other.may_write, other.may_read) == (False, False)
    settings = Settings(pscheduler_allow="192.0.2.0/25", pscheduler_read="2001:db8::/32")
    opened = Gate(settings.pscheduler_writers, settings.pscheduler_readers)
    assert opened.requester("192.0.2.7", ()).may_write
    assert not opened.requester("192.0.2.200", ()).may_read
    assert opened.requester("2001:db8::1%eth0", ()).may_read
    assert not opened.requester("127.0.0.1", ()).may_write


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


@pytest.mark.parametrize("test", ["latency", "latencybg", "clock", "throughput", "simplestream"])
async def test_a_dest_that_is_no_node_cannot_be_measured(node: Asker, test: str) -> None:
    """A valid spec whose dest is not known here is refused (422), and says what would help."""
    command = command_of(node)
    spec = {"dest": "192.0.2.99"}
    task = {**IDLE, "test": {"type": test, "spec": spec}}
    reply = await command.request("POST", command.url("/tasks"), body=task)
    assert (reply.status, reply.content_type) == (422, "text/plain"), reply
    assert reply.text.startswith("Unable to complete request: No node 192.0.2.99 is known here")


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
        assert await command.get(command.url("/tasks")) == []
        plain = await command.request("GET", f"http://{place}/pscheduler/")
        assert (plain.status, plain.content_type) == (400, "text/plain")
        await node.node.audit.flush()
        rows = await node.rows("SELECT verb, kind::text, outcome::text FROM audit")
        assert [tuple(row) for row in rows] == [("pscheduler_create", "stranger", "refused")]


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
