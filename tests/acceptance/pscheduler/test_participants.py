"""Tasks of a lab in which a host that runs pScheduler takes part, over HTTP and with real tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider
from tests.support.pscheduler.participant import Fault, StandIn, free_ports

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]

NAME = "ps.example"
AWAY = "192.0.2.2"


@pytest_asyncio.fixture(loop_scope="session")
async def host(a: Outsider, tmp_path: Path) -> AsyncIterator[StandIn]:
    """Return a host that runs pScheduler and is known to node a while the test lasts."""
    async with StandIn(NAME, tmp_path, free_ports()) as stand_in:
        added = await parley(a, "node", "add", stand_in.url)
        assert (added.code, "Its certificate proves nothing" in added.err) == (0, True), added
        yield stand_in
        removed = await a.ask("DELETE", f"/v1/nodes/{NAME}")
        assert removed.status == 200, removed


async def test_all_hosts_of_a_template_are_added(a: Outsider, tmp_path: Path) -> None:
    """Hosts that run pScheduler are added, and it is told why others are not; once is enough."""
    own = a.url.partition("://")[2].partition(":")[0]
    async with StandIn(NAME, tmp_path, free_ports()) as stand_in:
        place = stand_in.url.partition("://")[2].partition("/")[0]
        nobody = f"127.0.0.9:{free_ports()}"
        addresses = {"here": (own, own), "there": ("192.0.2.1", place), "away": (AWAY, nobody)}
        ends = {"source": "{% address[0] %}", "dest": "{% address[1] %}"}
        nodes = {f"{end}-node": f"{{% pscheduler_address[{at}] %}}" for at, end in enumerate(ends)}
        template = {
            "addresses": {
                name: {"address": address, "pscheduler-address": there}
                for name, (address, there) in addresses.items()
            },
            "groups": {"all": {"type": "mesh", "addresses": [{"name": it} for it in addresses]}},
            "tests": {"throughput": {"type": "throughput", "spec": {**ends, **nodes}}},
            "schedules": {"hourly": {"repeat": "PT1H"}},
            "tasks": {
                "rates": {"group": "all", "test": "throughput", "schedule": "hourly"},
            },
        }
        file = tmp_path / "template.json"
        file.write_text(json.dumps(template))
        added = await parley(a, "node", "add", "--from", str(file), "-o", "json")
        assert added.code == 0, added
        told = {each["host"]: each for each in json.loads(added.out)}
        assert told[place]["node"] == NAME
        assert (told[nobody]["node"], "refused" in told[nobody]["reason"]) == (None, True), told
        assert "1 of 2 hosts added" in added.err
        again = await parley(a, "node", "add", "--from", str(file), "-o", "json")
        assert [each["host"] for each in json.loads(again.out)] == [nobody]
        assert again.code == 1
        assert (await a.ask("DELETE", f"/v1/nodes/{NAME}")).status == 200


async def measured(a: Outsider, test: str, *others: str, **document: Json) -> Json:
    """Return the only run of a new task of these nodes, once it has finished."""
    names = [a.name, *others, NAME]
    run = await a.run(await a.create(test, participants=names, **document))
    return await a.finished(run)


async def test_it_is_shown_as_what_it_is(a: Outsider, host: StandIn) -> None:
    """Lists and the doctor tell that it runs pScheduler, and what that means."""
    listed = await parley(a, "node", "list")
    assert NAME in listed.out
    assert "pscheduler" in listed.out
    shown = await a.get("/v1/nodes")
    [node] = [each for each in shown["items"] if each["name"] == NAME]
    assert (node["kind"], node["url"], node["knows_this"]) == ("pscheduler", host.url, None)
    document = {"test": {"type": "idle", "spec": {}}, "participants": [a.name, NAME]}
    planned = await a.ask("POST", "/v1/plans", document)
    assert planned.body["sentence"].endswith(f"{NAME} cannot say what would give way"), planned
    doctor = await parley(a, "doctor", NAME)
    assert "its certificate proves nothing" in doctor.out, doctor
    assert "does not tell its limits: it runs pscheduler" in doctor.out, doctor


@pytest.mark.nightly
async def test_all_idle_and_their_parts_are_merged(a: Outsider, b: Outsider, host: StandIn) -> None:
    """Two nodes of Parley and the host idle at the same time; the host's part is fetched."""
    # The second node knows the host, too: of a stranger it would believe no address of loopback.
    assert (await b.ask("POST", "/v1/nodes", {"url": host.url})).status == 201
    run = await measured(a, "idle", b.name, spec={"duration": "PT2S"})
    assert run["result"] == {"participants": 3, "duration_ms": 2000}
    for what in (run["task"], run["id"]):
        explained = await parley(a, "explain", what)
        assert f"{NAME} books without holds" in explained.out, explained
    assert host.booked == []
    assert (await b.ask("DELETE", f"/v1/nodes/{NAME}")).status == 200


@pytest.mark.needs("iperf3", "cubic")
async def test_throughput_is_measured_to_it(a: Outsider, host: StandIn) -> None:
    """The node is iperf3's client and the host its server; both ends' figures are merged."""
    spec = {"duration": "PT3S", "omit": "PT0S", "rate_bps": 8_000_000}
    run = await measured(a, "throughput", spec=spec)
    assert 6_000_000 < run["result"]["received"]["rate_bps"] < 10_000_000, run["result"]
    [there] = [part for part in run["parts"] if part["name"] == NAME]
    assert there["result"]["received"]["bytes"] > 1_000_000
    assert "iperf3 -s -1 -J" in there["output"]


@pytest.mark.nightly
async def test_a_text_is_sent_to_it(a: Outsider, host: StandIn) -> None:
    """The host listens at the port that it names, and tells what came."""
    run = await measured(a, "simplestream", spec={"text": "Hello, pScheduler."})
    assert run["result"]["received"] == "Hello, pScheduler."


async def test_a_run_that_the_host_takes_away_is_displaced(a: Outsider, host: StandIn) -> None:
    """A run that is preempted over there, unannounced, is found out before it begins here."""
    schedule = {"start": "PT8S", "slip": "PT1M"}
    names = [a.name, NAME]
    run = await a.run(
        await a.create("idle", participants=names, spec={"duration": "PT2S"}, schedule=schedule)
    )
    host.preempt(host.runs[-1])
    lost = await a.over(run)
    # On a busy host it is found out when the run is about to begin, which cancels it.
    assert lost["state"] in {"displaced", "cancelled"}, lost
    assert lost["started_at"] is None
    assert "says that the run is preempted, and had not told so" in lost["reason"]


async def test_what_is_not_confirmed_is_taken_back_everywhere(a: Outsider, host: StandIn) -> None:
    """A run whose host is killed between booking and data is taken back, and deleted there, too."""
    host.faults.add(Fault.DIES_BEFORE_DATA)
    schedule = {"start": "PT8S", "slip": "PT1M"}
    task = await a.create("idle", participants=[a.name, NAME], schedule=schedule)
    run = await a.run(task)
    lost = await a.over(run)
    assert lost["state"] == "displaced", lost
    assert f"{NAME} could not be told that the run stands" in lost["reason"]
    assert [each.data_full for each in host.runs] == [None]
    await host.start()
    await a.cancel(task)
    while host.booked or host.open_tasks:
        await host.next_call()


async def test_removing_it_ends_its_tasks_there(a: Outsider, tmp_path: Path) -> None:
    """With the host its tasks end, here and there."""
    async with StandIn("other.example", tmp_path, free_ports()) as stand_in:
        added = await a.ask("POST", "/v1/nodes", {"url": stand_in.url})
        assert added.status == 201, added
        names = [a.name, "other.example"]
        schedule = {"start": "PT1H"}
        task = await a.create("idle", participants=names, schedule=schedule)
        await a.until_state(await a.run(task), "scheduled")
        assert (await a.ask("DELETE", "/v1/nodes/other.example")).status == 200
        assert (stand_in.booked, stand_in.open_tasks) == ([], [])
