"""Clients of pScheduler work with a node as they are: the command line, and the psConfig agent."""

from __future__ import annotations

import json

import pytest

from node.runtime.clock import SystemClock
from tests.acceptance.conftest import NAMED_PORT, facade_of
from tests.acceptance.outsider import Outsider
from tests.support.archiving import receiver
from tests.support.pscheduler.agent import Agent
from tests.support.pscheduler.command import CommandLine, Failed
from tests.support.worlds import ON_ONE_LOOP

pytestmark = [ON_ONE_LOOP, pytest.mark.usefixtures("tidy")]


@pytest.fixture
def command(a: Outsider) -> CommandLine:
    """Return the command line of pScheduler, with the first node as its host."""
    return CommandLine(facade_of(a.url))


@pytest.fixture
def agent(a: Outsider) -> Agent:
    """Return the psConfig agent of the first node."""
    return Agent(facade_of(a.url))


@pytest.mark.needs("ping")
async def test_a_task_is_measured_and_printed(a: Outsider, command: CommandLine) -> None:
    """A task is posted, followed and printed with the requests of the command line."""
    assert await command.ping() == f"{command.host}: pScheduler is alive"
    printed = await command.task("rtt", "--dest", a.address, "--count", "2")
    assert printed.startswith(f"rtt --count 2 --dest {a.address}\n")
    assert "0% Packet Loss" in printed
    assert printed.endswith("No further runs scheduled.")
    task = next(url for url in command.asked if url.startswith("GET /tasks/"))
    [run] = await command.schedule(task=task.split("/")[2])
    assert (run["state"], run["state-display"]) == ("finished", "Finished")
    assert run["test"]["name"] == "rtt"
    assert run["task"]["test"]["spec"]["dest"] == a.address
    html = await command.result(run["href"], "text/html")
    assert "<table" in html
    shown = await a.get(f"/v1/tasks/{task.split('/')[2]}")
    assert shown["requester"].startswith("pscheduler:127.")


@pytest.mark.needs("iperf3")
@pytest.mark.nightly
async def test_two_nodes_measure(a: Outsider, b: Outsider, command: CommandLine) -> None:
    """A test with two participants is booked on both, and its text is printed."""
    words = ("--duration", "PT1S", "--host", command.host, "--host", facade_of(b.url))
    printed = await command.task("idle", *words)
    assert "Duration" in printed
    words = ("--dest", b.address, "--dest-node", facade_of(b.url), "--duration", "PT1S")
    assert "Throughput" in await command.task("throughput", *words)
    task = next(url for url in command.asked if url.startswith("GET /tasks/")).split("/")[2]
    assert (await b.get(f"/v1/tasks/{task}"))["lead"] == a.name


@pytest.mark.nightly
async def test_repeated_runs_are_followed(command: CommandLine) -> None:
    """The next run is in place before the one before it ends, so that watching goes on."""
    repeated = {"repeat": "PT3S", "max-runs": 2, "slip": "PT1S"}
    printed = await command.task("idle", "--duration", "PT1S", schedule=repeated)
    assert printed.count("idle --duration PT1S") == 2


async def test_a_task_is_cancelled(command: CommandLine) -> None:
    """A cancelled task is still answered, without runs to come; it can be cancelled again."""
    later = {"start": "PT1H", "slip": "PT1M"}
    url = await command.post("idle", "--duration", "PT1S", schedule=later)
    run = await command.get(f"{url}/runs/first", wait=20)
    assert (run["state"], run["result-merged"]) == ("pending", None)
    await command.cancel(url)
    await command.cancel(url)
    task = await command.get(url, detail=True)
    assert task["detail"]["enabled"] is False
    assert await command.get(f"{url}/runs") == []
    with pytest.raises(Failed, match="not found"):
        await command.get(run["href"])


async def test_a_key_is_needed_where_there_is_one(command: CommandLine) -> None:
    """Private values are told to who sends the key of the task only, and a wrong key is refused."""
    later = {"start": "PT1H", "slip": "PT1M"}
    url = await command.post("idle", "--duration", "PT1S", schedule=later, _key="secret")
    assert (await command.get(url))["_key"] is None
    assert (await command.get(url, key="secret"))["_key"] == "secret"
    assert (await command.request("GET", url, {"key": "wrong"})).status == 403
    await command.cancel(f"{url}?key=secret")


async def test_figures_and_plugins(command: CommandLine) -> None:
    """The verbs that read the server's state are answered in their forms."""
    figures = await command.metrics()
    assert set(map(type, figures.values())) == {int}
    assert isinstance(await command.monitor(), list)
    for kind in ("tests", "tools", "archivers", "contexts"):
        listed = await command.get(command.url(f"/{kind}"), expanded=True)
        assert all(each["href"].startswith("https://") for each in listed)
        assert {"version", "maintainer", "name", "description"} <= set(listed[0])
    words = json.dumps(["--count", 3])
    spec = await command.get(command.url("/tests/rtt/spec"), args=words)
    assert spec == {"schema": 1, "count": 3}
    clock = await command.get(command.url("/clock"))
    assert set(clock) <= {"time", "synchronized", "source", "reference", "offset", "error"}


@pytest.mark.needs("ping")
async def test_the_agent_keeps_what_it_posted(a: Outsider, agent: Agent) -> None:
    """A second pass finds all tasks unchanged; a third one deletes what is no longer wanted."""
    now = SystemClock().now()
    spec = {"dest": a.address, "count": 3, "interval": "PT1.0S", "timeout": "PT2S"}
    async with receiver(port=NAMED_PORT) as taker:
        archive = {"archiver": "http", "data": {"schema": 1, "_url": taker.url, "op": "post"}}
        tasks = [
            agent.task("rtt", spec, now, archives=[archive]),
            agent.task("idle", {"duration": "PT0H0M1S"}, now, priority=3, schema=3),
        ]
        first = await agent.run(tasks)
        assert len(first.added) == 2
        second = await agent.run(tasks)
        assert (second.kept, second.added, second.deleted) == (first.added, [], [])
        third = await agent.run(tasks[:1])
        assert (third.kept, third.deleted) == (first.added[:1], first.added[1:])
        # An edit by other means makes it another task.
        task = first.added[0].rpartition("/")[2]
        edited = await a.ask("PATCH", f"/v1/tasks/{task}", {"priority": 1})
        assert edited.status == 200, edited
        fourth = await agent.run(tasks[:1])
        assert (len(fourth.added), fourth.deleted) == (1, first.added[:1])
        await agent.run([])


async def test_a_document_comes_back_as_it_was_posted(a: Outsider, agent: Agent) -> None:
    """A document comes back as it was posted, numbers and texts included."""
    now = SystemClock().now()
    odd = {"large": 2**70, "float": 1.0, "small": 1e-7, "text": "naïve ☃", "none": None, "on": True}
    task = agent.task("idle", {"duration": "PT1S"}, now)
    task["reference"]["odd"] = odd
    task["lead-bind"] = "127.0.0.1"
    [url] = (await agent.run([task])).added
    [found] = await agent.mine()
    assert found["reference"]["odd"] == odd
    assert type(found["reference"]["odd"]["large"]) is int
    assert "lead-bind is not used" in found["detail"]["diags"]
    assert {**found, "tool": None, "href": None, "detail": None} == {
        **task,
        "tool": None,
        "href": None,
        "detail": None,
    }
    assert found["href"] == url
    await agent.run([])
